"""The low watermark of a stream, kept up to date batch by batch, is the one that looking at all proxies would give."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ingest.admission import StreamAdmission
from cluster.storage.stream_tables import ProxyPosition, StreamPosition

SILENCE_SECONDS = 10.0
PROXIES = st.sampled_from("pqr")
ADVANCES = st.tuples(st.just("advance"), PROXIES, st.integers(0, 30), st.sampled_from([True, True, True, False]))
STEPS = st.lists(
    ADVANCES | ADVANCES | st.sampled_from([("commit",), ("roll back",), ("wait", 3), ("wait", 11)]),
    min_size=15,
    max_size=40,
)


@dataclass
class Plain:
    """The definition: the minimum over proxies that sample and are not silent, or the maximum if none samples."""

    position: StreamPosition
    positions: dict[str, ProxyPosition] = field(default_factory=dict)
    active: dict[str, float] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    watermark_us: int | None = None

    def advance(self, proxy: str, watermark_us: int, now: float, *, sampling: bool) -> None:
        before = self.positions.get(proxy)
        highest = watermark_us if before is None else max(watermark_us, before.watermark_us)
        self.positions[proxy], self.active[proxy] = ProxyPosition(highest, sampling), now
        self.excluded.discard(proxy)
        self._look()

    def exclude(self, now: float) -> None:
        self.excluded |= {name for name, active in self.active.items() if now - active > SILENCE_SECONDS}
        self._look()

    def commit(self) -> None:
        self.position = StreamPosition(self.watermark_us, dict(self.positions))

    def roll_back(self) -> None:
        self.positions, self.watermark_us = dict(self.position.proxies), self.position.watermark_us
        self.active = {name: self.active[name] for name in self.positions}
        self.excluded &= set(self.positions)

    def _look(self) -> None:
        included = [each for name, each in self.positions.items() if name not in self.excluded]
        sampling = [each.watermark_us for each in included if each.sampling]
        found = min(sampling) if sampling else max((each.watermark_us for each in included), default=None)
        if found is not None and (self.watermark_us is None or found > self.watermark_us):
            self.watermark_us = found


@settings(max_examples=300)
@given(STEPS)
def test_the_watermark_is_that_of_its_definition_after_every_step(steps: list[tuple[str, ...]]) -> None:
    subject, plain, now = StreamAdmission(StreamPosition(), SILENCE_SECONDS), Plain(StreamPosition()), 0.0
    for step in steps:
        match step:
            case ("advance", str(proxy), int(watermark_us), bool(sampling)):
                plain.advance(proxy, watermark_us, now, sampling=sampling)
                returned = subject.advance(proxy, watermark_us, sampling=sampling, now_seconds=now)
                assert returned == plain.watermark_us
            case ("wait", int(seconds)):
                now += seconds
                plain.exclude(now)
                subject.exclude_silent_proxies(now)
            case ("commit",):
                plain.commit()
                subject.committed({}, subject.current_position())
            case _:
                plain.roll_back()
                subject.roll_back()
        assert subject.watermark_us == plain.watermark_us
        assert subject.current_position() == StreamPosition(plain.watermark_us, plain.positions)

"""The low watermark of a stream, kept up to date batch by batch, is the one that looking at all proxies would give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.ingest.admission import StreamAdmission
from cluster.storage.stream_tables import ProxyPosition, StreamPosition

GONE_AFTER = 10.0
PROXIES = st.sampled_from("pqr")
ADVANCES = st.tuples(st.just("advance"), PROXIES, st.integers(0, 30), st.sampled_from([True, True, True, False]))
WAITS = st.tuples(st.just("wait"), st.sampled_from([3.0, 11.0]), st.sets(PROXIES))
STEPS = st.lists(ADVANCES | ADVANCES | WAITS | st.sampled_from([("commit",), ("roll back",)]), min_size=15, max_size=40)


@dataclass
class Plain:
    """The definition, as the first lines of `cluster/ingest/admission.py` have it."""

    position: StreamPosition
    positions: dict[str, ProxyPosition] = field(default_factory=dict)
    away: dict[str, float] = field(default_factory=dict)
    """Proxies that are away, and for how long."""
    excluded: set[str] = field(default_factory=set)
    watermark_us: int | None = None

    def advance(self, proxy: str, watermark_us: int, *, sampling: bool) -> None:
        before = self.positions.get(proxy)
        highest = watermark_us if before is None else max(watermark_us, before.watermark_us)
        promises = before is not None and not sampling and (before.promises or watermark_us > before.watermark_us)
        self.positions[proxy] = ProxyPosition(highest, sampling, promises)
        self.away.pop(proxy, None)
        self.excluded.discard(proxy)
        self._look()

    def wait(self, seconds: float, online: set[str]) -> None:
        self.away = {name: self.away.get(name, 0.0) + seconds for name in self.positions if name not in online}
        self.excluded = {name for name in self.excluded if name not in online}
        self.excluded |= {name for name, away in self.away.items() if away >= GONE_AFTER}
        if self.positions.keys() - self.excluded:
            self._look()

    def commit(self) -> None:
        self.position = StreamPosition(self.watermark_us, dict(self.positions))

    def roll_back(self) -> None:
        self.positions, self.watermark_us = dict(self.position.proxies), self.position.watermark_us
        self.away = {name: away for name, away in self.away.items() if name in self.positions}
        self.excluded &= set(self.positions)

    def _look(self) -> None:
        included = {name: each for name, each in self.positions.items() if name not in self.excluded}
        holding = [
            each.watermark_us
            for name, each in included.items()
            if each.sampling or (each.promises and name in self.away)
        ]
        promised = [each.watermark_us for each in included.values() if each.promises]
        if holding or promised:
            found = min(holding or promised)
        else:
            found = max(each.watermark_us for each in included.values())
        if self.watermark_us is None or found > self.watermark_us:
            self.watermark_us = found

    @property
    def stored(self) -> StreamPosition:
        marked = {name: replace(each, gone=name in self.excluded) for name, each in self.positions.items()}
        return StreamPosition(self.watermark_us, marked)


@settings(max_examples=300)
@given(STEPS)
def test_the_watermark_is_that_of_its_definition_after_every_step(steps: list[tuple[Any, ...]]) -> None:
    subject, plain, now = StreamAdmission(StreamPosition(), lambda: GONE_AFTER), Plain(StreamPosition()), 0.0
    for step in steps:
        match step:
            case ("advance", str(proxy), int(watermark_us), bool(sampling)):
                plain.advance(proxy, watermark_us, sampling=sampling)
                returned = subject.advance(proxy, watermark_us, sampling=sampling, now_seconds=now)
                assert returned == plain.watermark_us
            case ("wait", float(seconds), set(online)):
                now += seconds
                plain.wait(seconds, online)
                subject.time_passed(online, now, counted_seconds=seconds)
            case ("commit",):
                plain.commit()
                subject.committed({}, subject.current_position())
            case _:
                plain.roll_back()
                subject.roll_back()
        assert subject.watermark_us == plain.watermark_us
        assert subject.current_position() == plain.stored

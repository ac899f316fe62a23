"""What the broker lacks of a proxy, without a broker: random orders of changes, connections and acknowledgements.

    proxy    offer a, entry m1, entry m1 ...     what it holds true
    round         offer a --> | lost | kept and not acknowledged | acknowledged
    broker   a, m1                               what it retains; a new connection may find it empty, or older

In the end, when all is calm, the broker retains what the proxy holds true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.messages import Message
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer, StreamWait, decode_proxy_clock, decode_proxy_spool, decode_proxy_waits
from protocols.wire.demands import DemandRequest, RefusedDemand, demand_report
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.demand_assembly import DemandAssemblies
from proxy.fleet.fleet import Fleet
from proxy.running import unpublished
from proxy.running.unpublished import (
    CLOCK_EVERY_US,
    EntrySchedule,
    Kind,
    Publish,
    PublishSpoolReport,
    Unpublished,
    spool_report,
)
from tests.proxy.conftest import announcement

ENTRY_US = 10
STREAMS, MOTES = ("a", "b"), ("m1", "m2", "m3")


def schema(name: str, columns: int) -> StreamSchema:
    return StreamSchema(name, tuple(Field(f"f{number}", FieldType.REAL) for number in range(columns)))


@dataclass
class World:
    """A proxy that holds something true, and a broker that retains what arrives."""

    offers: dict[str, StreamSchema] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    """By mote of the proxy: how often its entry has changed."""
    missing: list[DemandRequest] = field(default_factory=list)
    retained: dict[str, bytes] = field(default_factory=dict)
    saved: dict[str, bytes] = field(default_factory=dict)
    """What the broker retained when it last saved its state: it may fall back to that."""
    streams: dict[str, SimpleNamespace] = field(default_factory=dict)
    now_us: int = 0

    def __post_init__(self) -> None:
        self.unpublished = Unpublished(
            "p",
            cast("Fleet", self),
            cast("DemandAssemblies", SimpleNamespace(requests=lambda _: self.missing)),
            EntrySchedule(ENTRY_US, 5 * ENTRY_US),
            now_us=0,
        )

    def stream_waits(self, radio_us: int) -> tuple[StreamWait, ...]:
        return (StreamWait("a", "m1", radio_us, silent=True),)

    def has(self, mote: str) -> bool:
        return mote in self.entries

    def entry(self, mote: str) -> Any:
        return announcement(mote, boot=self.entries[mote]) if mote in self.entries else None

    def offer(self, name: str, columns: int) -> None:
        self.offers[name] = schema(name, columns)
        self.unpublished.offered(self.offers[name])

    def change(self, mote: str, changed: int) -> None:
        self.entries[mote] = self.entries.get(mote, 0) + 1
        self.unpublished.entries.note(mote, changed=bool(changed))

    def give_up(self, mote: str, _: int) -> None:
        if self.entries.pop(mote, None) is not None:
            self.unpublished.removed(mote)

    def reject(self, name: str, reasons: int) -> None:
        rejected = tuple(RefusedDemand(f"q{each}", "reason") for each in range(reasons))
        self.streams[name] = SimpleNamespace(demand_epoch=reasons, rejected_demands=rejected)

    def save(self, _: str, __: int) -> None:
        self.saved = dict(self.retained)

    def connect(self, _: str, lost: int) -> None:
        """Connect to a broker that kept its state, lost it, or fell back to what it had saved."""
        self.retained = (self.retained, {}, dict(self.saved))[lost]
        self.unpublished.connected()

    def arrives(self, message: Message) -> None:
        if message.retain and message.payload:
            self.retained[message.topic] = message.payload
        elif message.retain:
            self.retained.pop(message.topic, None)

    def true(self) -> dict[str, bytes]:
        """What the broker is to retain."""
        found = {topics.mote_entry("p", mote): encode(self.entry(mote)) for mote in self.entries}
        for name, each in self.offers.items():
            found[topics.stream_offer("p", name)] = encode(StreamOffer(VERSION, "p", each))
        for name, state in self.streams.items():
            if state.rejected_demands:
                report = demand_report("p", name, state.demand_epoch, state.rejected_demands)
                found[topics.demand_report("p", name)] = encode(report)
        return found

    def round(self) -> Iterator[Publish | PublishSpoolReport]:
        """Publish a round; what happens between two of its publications happens here."""
        self.now_us += ENTRY_US
        self.unpublished.begin_round(self.now_us)
        while (found := self.unpublished.next(self.now_us, self.now_us)) is not None:
            yield found

    def calm(self) -> list[str]:
        """Publish until nothing is due any more; return the topics."""
        found = []
        for _ in range(10):
            for each in self.round():
                if isinstance(each, Publish):
                    self.arrives(each.message)
                    found.append(each.message.topic)
                self.unpublished.published(each)
        return found


CHANGES = st.one_of(
    st.tuples(st.just("offer"), st.sampled_from(STREAMS), st.integers(1, 3)),
    st.tuples(st.just("change"), st.sampled_from(MOTES), st.integers(0, 1)),
    st.tuples(st.just("give_up"), st.sampled_from(MOTES), st.just(0)),
    st.tuples(st.just("reject"), st.sampled_from(STREAMS), st.integers(0, 2)),
    st.tuples(st.just("connect"), st.just(""), st.integers(0, 2)),
    st.tuples(st.just("save"), st.just(""), st.just(0)),
)
OUTCOMES = st.sampled_from(["acknowledged", "acknowledged", "acknowledged late", "arrived and lost", "lost"])
STEPS = st.lists(st.tuples(st.lists(CHANGES, max_size=4), st.lists(st.tuples(OUTCOMES, st.lists(CHANGES, max_size=2)))))


@given(STEPS)
def test_when_all_is_calm_the_broker_retains_what_is_true(
    steps: list[tuple[list[tuple[str, str, int]], list[tuple[str, list[tuple[str, str, int]]]]]],
) -> None:
    world = World()

    def happen(changes: list[tuple[str, str, int]]) -> None:
        for kind, name, number in changes:
            getattr(world, kind)(name, number)

    for before, outcomes in steps:
        happen(before)
        left = iter(outcomes)
        for each in world.round():
            outcome, meanwhile = next(left, ("acknowledged", []))
            if isinstance(each, Publish) and outcome != "lost":
                world.arrives(each.message)
            if "lost" in outcome:
                world.unpublished.failed()  # also where no new connection follows
                break
            happen(meanwhile)  # while the message, or its acknowledgement, is on the way
            world.unpublished.published(each)
    world.calm()
    assert world.retained == world.true()
    assert world.calm() == []


def published(world: World) -> list[tuple[str, str]]:
    found = []
    for each in world.round():
        found.append((each.kind.value, each.name) if isinstance(each, Publish) else ("spool", ""))
        world.unpublished.published(each)
    return found


def test_a_round_has_an_order() -> None:
    world = World()
    world.now_us = CLOCK_EVERY_US
    world.missing = [DemandRequest(VERSION, "p", "a", (3,))]
    for mote in MOTES:
        world.change(mote, 1)
    world.give_up("m2", 0)
    world.reject("a", 1)
    world.offer("b", 1)
    world.offer("a", 1)
    kinds = iter(world.round())
    found = []
    for each in kinds:
        found.append((each.kind.value, each.name) if isinstance(each, Publish) else ("spool", ""))
        world.missing = [] if found[-1][0] == "request" else world.missing
        world.unpublished.published(each)
    report = topics.demand_report("p", "a")
    assert found == [
        ("offer", "a"),
        ("offer", "b"),
        ("clock", ""),
        ("waits", ""),
        ("spool", ""),
        ("report", report),
        ("request", "a"),
        ("removal", "m2"),
        ("entry", "m3"),
        ("entry", "m1"),
    ]
    assert published(world) == []


def test_an_offer_that_changes_on_its_way_is_published_again() -> None:
    world = World()
    world.offer("a", 1)
    first = world.unpublished.offer()
    assert first is not None
    world.offer("a", 2)
    world.unpublished.published(first)
    second = world.unpublished.offer()
    assert second is not None
    assert second.schema == schema("a", 2)
    world.unpublished.published(second)
    assert world.unpublished.offer() is None


def test_an_acknowledgement_of_an_earlier_connection_counts_no_longer() -> None:
    world = World()
    world.offer("a", 1)
    first = world.unpublished.offer()
    assert first is not None
    world.connect("", 1)
    world.unpublished.published(first)
    assert world.unpublished.offer() is not None


def test_a_broker_that_falls_back_keeps_no_entry_of_a_mote_that_was_given_up() -> None:
    world = World()
    world.change("m1", 1)
    world.calm()
    world.save("", 0)
    world.give_up("m1", 0)
    world.calm()
    world.connect("", 2)
    assert topics.mote_entry("p", "m1") in world.retained
    world.calm()
    assert world.retained == {}
    assert world.calm() == []


def test_only_the_latest_motes_that_were_given_up_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpublished, "MOST_FORMER", 2)
    world = World()
    for mote in ("m1", "m2", "m1", "m3"):
        world.change(mote, 1)
        world.give_up(mote, 0)
    world.calm()
    world.connect("", 0)
    assert [name for kind, name in published(world) if kind == "removal"] == ["m1", "m3"]


def test_a_mote_that_came_back_keeps_its_entry() -> None:
    world = World()
    world.change("m1", 1)
    world.give_up("m1", 0)
    world.change("m1", 1)
    assert [each for each in published(world) if each[0] in {"removal", "entry"}] == [("entry", "m1")]


@pytest.mark.parametrize("fails_at", ["clock", "waits", "spool"])
def test_the_clock_is_not_repeated_sooner_after_a_failure(fails_at: str) -> None:
    world = World()
    for each in world.round():
        if fails_at == (each.kind.value if isinstance(each, Publish) else "spool"):
            world.unpublished.failed()
            break
        world.unpublished.published(each)
    world.now_us = CLOCK_EVERY_US - 2 * ENTRY_US
    assert published(world) == []
    world.now_us += ENTRY_US
    assert published(world) == [("clock", ""), ("waits", ""), ("spool", "")]


def test_the_clock_is_not_retained() -> None:
    world = World()
    (clock, *_) = [each for each in world.round() if isinstance(each, Publish) and each.kind is Kind.CLOCK]
    assert (clock.message.qos, clock.message.retain) == (0, False)
    assert decode_proxy_clock(clock.message.payload).clock_us == ENTRY_US


def test_what_streams_wait_for_is_not_retained() -> None:
    world = World()
    (waits,) = [each for each in world.round() if isinstance(each, Publish) and each.kind is Kind.WAITS]
    assert (waits.message.topic, waits.message.qos, waits.message.retain) == (topics.proxy_waits("p"), 0, False)
    assert decode_proxy_waits(waits.message.payload).streams == (StreamWait("a", "m1", world.now_us, silent=True),)


@pytest.mark.parametrize(("since_us", "waits_us"), [(None, None), (70, 30), (130, 0)])
def test_a_spool_waits_since_its_oldest_batch(since_us: int | None, waits_us: int | None) -> None:
    message = spool_report("p", batches=2, size_bytes=6, since_us=since_us, now_us=100)
    report = decode_proxy_spool(message.payload)
    assert (report.batches, report.waits_us, message.qos, message.retain) == (2, waits_us, 0, False)

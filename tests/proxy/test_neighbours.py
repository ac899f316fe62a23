"""Two proxies for one mote.

a         online --------------------------- offline
                 entry m1
b         online (later)
m1 to b              rejected: it is a's              accepted
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from protocols.errors import FrameError
from protocols.wire import topics
from protocols.wire.catalog import MoteEntry, MoteState, Presence, Status
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import NumberedAnnouncement
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import RejectAnnouncement
from proxy.fleet.fleet_members import NO_CHANGES, FleetLimits, NeighbourChanges, Neighbours
from tests.proxy.test_service import introduce, running, send, settings, until

__all__ = ["settings"]

S = 1_000_000
NOTHING_OURS, ALL_OURS = (lambda _: False), (lambda _: True)


def entry_of(proxy, mote):
    numbers = (0, 1, 1, 0, 0, 0, 0, 0, 0)
    return MoteEntry(VERSION, mote, proxy, "loop", "traffic", {}, MoteState.SLEEPING, *numbers, None, 0)


def status(neighbours, proxy, presence=Presence.ONLINE, since=1, ours=NOTHING_OURS):
    payload = encode(Status(VERSION, proxy, presence, "e", since))
    return neighbours.received(topics.parse(topics.proxy_status(proxy)), payload, ours)


def entry(neighbours, proxy, mote, *, present=True, ours=NOTHING_OURS):
    payload = encode(entry_of(proxy, mote)) if present else b""
    return neighbours.received(topics.parse(topics.mote_entry(proxy, mote)), payload, ours)


def test_a_mote_belongs_to_the_online_proxy_that_has_it():
    b = Neighbours("b", 5)
    assert entry(b, "a", "m1") == NO_CHANGES
    assert b.claimant("m1", ours=False) is None, "not known whether a is online"
    status(b, "a", since=9)
    assert b.claimant("m1", ours=False) == "a"
    assert b.claimant("m2", ours=False) is None
    assert status(b, "a", Presence.OFFLINE) == NeighbourChanges(freed=("m1",))
    assert status(b, "a", Presence.OFFLINE) == NO_CHANGES
    assert b.claimant("m1", ours=False) is None
    status(b, "a", since=9)
    assert entry(b, "a", "m1", present=False) == NeighbourChanges(freed=("m1",))
    assert b.claimant("m1", ours=False) is None
    assert entry(b, "a", "m1", present=False) == NO_CHANGES


@pytest.mark.parametrize(("since", "lost"), [(4, True), (5, True), (6, False)])
@pytest.mark.parametrize("first", ["status", "entry"])
def test_of_two_at_once_the_one_longer_online_keeps_it(since, lost, first):
    b = Neighbours("b", 5)  # at the same instant the name decides: a is before b
    news = [
        status(b, "a", since=since, ours=ALL_OURS) if each == "status" else entry(b, "a", "m1", ours=ALL_OURS)
        for each in sorted(["status", "entry"], key=lambda each: each != first)
    ]
    assert [each.given_up for each in news] == [(), ("m1",) if lost else ()]
    assert b.claimant("m1", ours=True) == ("a" if lost else None)


def test_own_and_repeated_messages_change_nothing():
    b = Neighbours("b", 5)
    assert status(b, "b", since=0, ours=ALL_OURS) == NO_CHANGES
    assert entry(b, "b", "m1", ours=ALL_OURS) == NO_CHANGES
    assert b.claimant("m1", ours=False) is None
    status(b, "a", since=1)
    entry(b, "a", "m1")
    topic = topics.parse(topics.mote_entry("a", "m1"))
    assert b.received(topic, b"a repeated entry is not decoded", ALL_OURS) == NO_CHANGES


def test_a_mote_that_a_third_proxy_has_is_not_free():
    b = Neighbours("b", 5)
    for other in ("a", "c"):
        status(b, other)
        entry(b, other, "m1")
    assert status(b, "a", Presence.OFFLINE) == NO_CHANGES
    assert b.claimant("m1", ours=False) == "c"
    assert b.received(topics.parse(topics.proxy_status("c")), b"", NOTHING_OURS) == NeighbourChanges(freed=("m1",))


def test_messages_that_are_no_status_or_entry_are_rejected():
    b = Neighbours("b", 5)
    of_a = topics.parse(topics.mote_entry("a", "m1")), topics.parse(topics.proxy_status("a"))
    for topic, payload in [
        (of_a[0], b"\xc1"), (of_a[0], encode(entry_of("a", "m2"))), (of_a[0], encode(entry_of("c", "m1"))),
        (of_a[1], b"\x00"), (of_a[1], encode(Status(VERSION, "c", Presence.ONLINE, "e", 0))),
    ]:  # fmt: skip
        with pytest.raises(FrameError):
            b.received(topic, payload, NOTHING_OURS)


def test_memory_is_bounded():
    b = Neighbours("b", 5, most_proxies=2, most_entries=3)
    for proxy in ("a", "c", "d"):
        status(b, proxy)
        for number in range(5):
            entry(b, proxy, f"{proxy}{number}")
    found = [b.claimant(f"{proxy}{number}", ours=False) for proxy in "acd" for number in range(5)]
    assert found == ["a"] * 3 + [None] * 12
    entry(b, "a", "a0", present=False)
    entry(b, "c", "c0")
    assert b.claimant("c0", ours=False) == "c"


SAID = st.tuples(st.sampled_from(["online", "offline", "has", "has not"]), st.sampled_from("ab"), st.sampled_from("xy"))


@given(st.lists(SAID, max_size=30), st.booleans())
def test_of_two_proxies_with_the_same_messages_exactly_one_keeps_a_mote(messages, swapped):
    since = {"a": 2, "b": 1} if swapped else {"a": 1, "b": 2}
    all_of = {name: Neighbours(name, since[name]) for name in "ab"}
    has, online = {name: set() for name in "ab"}, set()
    for what, proxy, mote in messages:
        for each in all_of.values():
            if what in {"online", "offline"}:
                status(each, proxy, Presence(what), since[proxy])
            else:
                entry(each, proxy, mote, present=what == "has")
        if what in {"online", "offline"}:
            (online.add if what == "online" else online.discard)(proxy)
        else:
            (has[proxy].add if what == "has" else has[proxy].discard)(mote)
    for mote in "xy":
        if online == {"a", "b"} and mote in has["a"] & has["b"]:
            first = min("ab", key=lambda name: since[name])
            assert [all_of[name].claimant(mote, ours=True) for name in "ab"] == [
                None if name == first else first for name in "ab"
            ]


async def receive_status(service, proxy, presence, since):
    await send(service, topics.proxy_status(proxy), Status(VERSION, proxy, presence, "e", since), retain=True)


async def test_a_mote_of_another_proxy_is_rejected_until_that_is_offline(settings, frames):
    async with running(settings) as service:
        await receive_status(service, "a", Presence.ONLINE, 2**62)
        await send(service, topics.mote_entry("a", "m1"), entry_of("a", "m1"), retain=True)
        await introduce(service, frames)
        assert service.metrics.value("announcements_refused", "two_proxies") == 1
        assert service.fleet.entry("m1") is None
        await send(service, topics.packet("p", "m1"), frames.packet(0, listen=50_000))
        assert service.link.on(topics.control("p", "m1")) == [], "its boot was rejected: no further request"
        await receive_status(service, "a", Presence.OFFLINE, 2**62)
        await send(service, topics.packet("p", "m1"), frames.packet(1, listen=50_000, clock=1))
        assert len(service.link.on(topics.control("p", "m1"))) == 1, "what are you?"
        await send(service, topics.announcement("p", "m1"), frames.announcement())
        await until(lambda: service.link.on(topics.mote_entry("p", "m1")))
        rejected = [each for each in service.stores.quarantine.frames() if each.reason == "two_proxies"]
        assert all("'a'" in each.detail for each in rejected)


@pytest.mark.parametrize(("since", "kept"), [(0, False), (2**62, True)])
async def test_of_two_that_took_it_at_once_the_younger_removes_its_entry(settings, frames, since, kept):
    async with running(settings) as service:
        await introduce(service, frames)
        entries = topics.mote_entry("p", "m1")
        await until(lambda: service.link.on(entries))
        await send(service, topics.mote_entry("a", "m1"), entry_of("a", "m1"), retain=True)
        await receive_status(service, "a", Presence.ONLINE, since)
        assert service.fleet.has("m1") is kept
        if not kept:
            await until(lambda: service.link.on(entries)[-1].payload == b"")
            assert service.link.on(entries)[-1].retain
        assert service.metrics.value("announcements_refused", "two_proxies") == (0 if kept else 1)


def test_the_rejection_names_the_proxy(frames):
    neighbours = Neighbours("b", 5)
    status(neighbours, "a")
    entry(neighbours, "a", "m1")
    fleet = Fleet("b", FleetLimits(), now_us=0, neighbours=neighbours)
    (rejected,) = fleet.receive_announcement(frames.announcement(), radio_us=0, received_us=0)
    assert isinstance(rejected, RejectAnnouncement)
    assert (rejected.reason, "'a'" in rejected.detail) == ("two_proxies", True)


def numbered(frames, mote):
    """As a mote with a key announces itself."""
    return NumberedAnnouncement(**asdict(frames.announcement(mote)), sequence=0)


def test_a_mote_with_a_key_is_ours_whatever_another_proxy_says(frames):
    """The entry of a proxy whose key was stolen silenced motes of all others as soon as they announced themselves."""
    neighbours = Neighbours("b", 5)
    fleet = Fleet("b", FleetLimits(), now_us=0, neighbours=neighbours, sealed=lambda mote: mote == "m1")
    status(neighbours, "thief", since=1)
    for mote in ("m1", "m2"):
        entry(neighbours, "thief", mote)
    for each in (numbered(frames, "m1"), frames.announcement("m2")):
        fleet.receive_announcement(each, radio_us=0, received_us=0)
    assert [fleet.has(each) for each in ("m1", "m2")] == [True, False]


def test_a_mote_with_a_key_is_not_given_up(frames):
    neighbours = Neighbours("b", 5)
    fleet = Fleet("b", FleetLimits(), now_us=0, neighbours=neighbours, sealed=lambda _: True)
    fleet.receive_announcement(numbered(frames, "m1"), radio_us=0, received_us=0)
    status(neighbours, "thief", since=1, ours=fleet.has)
    changes = entry(neighbours, "thief", "m1", ours=fleet.has)
    assert changes == NeighbourChanges(given_up=("m1",))
    assert fleet.neighbours_changed(changes, radio_us=0, received_us=0) == []
    assert fleet.has("m1")


def test_a_mote_of_another_stream_only_has_the_same_name():
    b = Neighbours("b", 5)
    status(b, "a", since=9)
    entry(b, "a", "m1")
    assert b.claimant("m1", ours=False, stream="traffic") == "a"
    assert b.claimant("m1", ours=False, stream="weather") is None

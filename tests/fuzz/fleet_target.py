"""What motes, clusters and other proxies send to a proxy: valid frames, plausible or extreme, in any order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from protocols.wire import topics
from protocols.wire.catalog import MoteEntry, Presence, Status
from protocols.wire.demands import (
    PIECES,
    CompletenessDemand,
    DemandHead,
    PaneDemand,
    QueryDemand,
    StreamDemand,
    digest_of,
    encode_piece,
)
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Announcement, Health, Packet, Partial, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import Band, DeadBand, Measure, program_number, reports_of
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.fuzz.drawing import REALS, TEXTS, drawn
from tests.fuzz.proxy_world import NAME, SECOND_US, ProxyWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from protocols.errors import FjordError
    from protocols.wire.packets import Record
    from protocols.wire.programs import SamplingProgram

SEGMENT = Field("segment", FieldType.INTEGER, fixed=True)
FIELDS = (
    Field("speed", FieldType.REAL, "mph"),
    Field("flow", FieldType.INTEGER),
    Field("note", FieldType.TEXT),
    Field("wet", FieldType.BOOLEAN),
)
SCHEMAS = (
    StreamSchema("traffic", (SEGMENT, *FIELDS)),
    StreamSchema("traffic", (SEGMENT, *FIELDS[:2])),
    StreamSchema("other", FIELDS[:1]),
)
STREAMS = ("traffic", "other")
MOTES = ("m1", "m2", "m3")
PERIODS_US = (1, 1_000, SECOND_US, 10 * SECOND_US, 86_400 * SECOND_US, 366 * 86_400 * SECOND_US)
PAUSES_US = (0, 1, 100_000, SECOND_US, 10 * SECOND_US, 61 * SECOND_US, 3_600 * SECOND_US, 40 * 86_400 * SECOND_US)
MOST_STEPS = 60


class Sender:
    """What a mote has sent so far, of which most of what it sends next follows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.boot = 1
        self.sequence = -1
        self.promise_us = 0


class FleetTarget:
    """Messages on a proxy's own topics."""

    name = "fleet"
    errors: tuple[type[FjordError], ...] = ()
    limit_seconds = 1.0

    def steps(self, dice: Random) -> Iterator[Callable[[], object]]:
        """Yield one message, one flush or some time after the other."""
        world = ProxyWorld(dice)
        senders = [Sender(name) for name in MOTES]
        for sender in senders[: dice.randrange(4)]:  # as most proxies are
            announcement = usual_announcement(sender, SCHEMAS[0], dice)
            yield partial(world.receive, topics.announcement(NAME, sender.name), encode(announcement))
        if dice.random() < 0.7:
            usual = StreamDemand(
                VERSION, "c", "traffic", 1, (QueryDemand("q", ("flow", "segment", "speed"), SECOND_US),)
            )
            yield partial(world.receive, topics.demand("traffic"), encode(usual), retain=True)
            yield world.merge
        for _ in range(dice.randrange(5, MOST_STEPS)):
            match dice.choices(range(7), (10, 3, 2, 1, 4, 3, 1))[0]:
                case 0:
                    packet = drawn_packet(world, dice.choice(senders), dice)
                    yield partial(world.receive, topics.packet(NAME, packet.mote), encode(packet))
                case 1:
                    announcement = drawn_announcement(dice.choice(senders), dice)
                    yield partial(world.receive, topics.announcement(NAME, announcement.mote), encode(announcement))
                case 2:
                    for topic, payload in drawn_demand(dice):
                        yield partial(world.receive, topic, payload, retain=True)
                    yield world.merge
                case 3:
                    yield partial(world.receive, *drawn_news(dice), retain=dice.random() < 0.5)
                case 4:
                    yield partial(world.pass_time, dice.choice(PAUSES_US))
                    yield world.replan
                case 5:
                    yield world.cut
                    yield world.spool
                case _:
                    yield world.show
        yield world.cut
        yield world.spool
        yield world.show


def drawn_announcement(sender: Sender, dice: Random) -> Announcement:
    """Return an announcement of a mote: mostly one that a proxy accepts."""
    if dice.random() < 0.1:
        return replace(drawn(Announcement, dice), mote=sender.name)
    if dice.random() < 0.3:
        sender.boot, sender.sequence = sender.boot + dice.choice((0, 1, 1, -1, 2**61)) if sender.boot > 1 else 2, -1
    return usual_announcement(sender, dice.choice(SCHEMAS), dice)


def usual_announcement(sender: Sender, schema: StreamSchema, dice: Random) -> Announcement:
    """Return an announcement of a stream."""
    properties: dict[str, Any] = {"segment": dice.choice((7, 7, 8, None))} if SEGMENT in schema.fields else {}
    period_us = dice.choice(PERIODS_US)
    return Announcement(
        VERSION, sender.name, _counter(sender.boot), "loop", schema, properties, period_us, min(period_us, 1_000),
        dice.choice(("", "telosb", "nothing like it")), dice.choice((None, 1e-9, 20e3, 1e12)),
        dice.choice((0, 0, 86_400 * SECOND_US, 2**62)), dice.random() < 0.1,
    )  # fmt: skip


def drawn_packet(world: ProxyWorld, sender: Sender, dice: Random) -> Packet:
    """Return a packet of a mote: mostly the next of what it was asked for."""
    if dice.random() < 0.1:
        return replace(drawn(Packet, dice), mote=sender.name)
    tracking = world.fleet.motes.get(sender.name)
    desired = None if tracking is None else tracking.desired
    if dice.random() < 0.05:
        sender.boot, sender.sequence = sender.boot + 1, -1
    sender.sequence += dice.choice((1,) * 12 + (0, 2, 3, -1, 500, 2**62))
    if dice.random() < 0.02:
        sender.sequence = dice.choice((0, 2**63 - 1))
    clock_us = world.now_us + dice.choice((0,) * 12 + (1, -SECOND_US, SECOND_US, 10**12, -(10**12), 2**61, -(2**61)))
    number = 0 if desired is None else dice.choice((program_number(desired),) * 4 + (0, 99, 2**32 - 1))
    records = tuple(_record(desired, dice) for _ in range(dice.choice((0, 1, 1, 1, 2, 5))))
    promise_us = clock_us + dice.choice((0, 0, 0, 1, SECOND_US, -SECOND_US, 10**14, -(10**14)))
    listen_us = dice.choice((0, 0, 1, 100_000, 60_000_000))
    return Packet(
        VERSION, sender.name, _counter(sender.boot), _counter(sender.sequence), _instant(clock_us),
        _instant(promise_us), listen_us, number, records,
    )  # fmt: skip


def _record(program: SamplingProgram | None, dice: Random) -> Record:
    if dice.random() < 0.1 or program is None or program.sleeping:
        return drawn(dice.choice((Sample, Health, Partial, VehicleEvent, VehicleTally)), dice)  # type: ignore[no-any-return]
    ages = (0, 0, 1, program.period_us, 7 * program.period_us, 2**62)
    report = dice.randrange(len(reports_of(program)) + 1)
    match dice.randrange(8):
        case 0:
            return Health(dice.choice((None, 0.0, 0.5, 1.0)), *(dice.choice((0, 1, 2**63 - 1)) for _ in range(4)))
        case 1:
            width = len(program.fields) + dice.choice((0, 0, 0, 1, -1))
            measures = tuple(tuple(_value(dice, numbers=True) for _ in range(dice.randrange(6))) for _ in range(width))
            return Partial(dice.choice(ages), dice.choice(PERIODS_US), measures, dice.choice((0, 1, 2**63 - 1)), report)  # type: ignore[arg-type]
        case 2:
            return VehicleEvent(dice.choice(ages), dice.choice((0, 1, SECOND_US, 2**62)), report)
        case 3:
            return VehicleTally(dice.choice(ages), dice.choice(PERIODS_US), dice.choice((0, 1, 2**63 - 1)), report)
        case _:
            width = max(0, len(program.fields) + dice.choice((0,) * 10 + (1, -1)))
            return Sample(dice.choice(ages), tuple(_value(dice) for _ in range(width)), dice.choice((1, 1, 1, 2, 3)))


def _value(dice: Random, *, numbers: bool = False) -> int | float | str | bool | None:
    kind = dice.randrange(3 if numbers else 5)
    return (
        dice.choice(REALS),
        dice.choice((0, 1, -1, 2**63 - 1, -(2**63), 2**64 - 1)),
        None,
        dice.choice(TEXTS),
        True,
    )[kind]


def _counter(number: int) -> int:
    return max(0, min(2**63 - 1, number))


def _instant(instant_us: int) -> int:
    return max(-(2**62), min(2**62, instant_us))


def drawn_demand(dice: Random) -> list[tuple[str, bytes]]:
    """Return the messages of a demand on a stream: whole, or as a head and its pieces, of which some may be missing."""
    stream = dice.choice(STREAMS)
    queries = [drawn_query_demand(f"q{number}", dice) for number in range(dice.choice((0, 1, 1, 2, 4, 12)))]
    declared = dice.choice((None, None, *SCHEMAS[:2]))
    if declared is not None:
        declared = replace(declared, name=stream)
    head = StreamDemand(VERSION, "c", stream, dice.choice((1, 2, 2**63 - 1)), tuple(queries), declared)
    if dice.random() < 0.6:
        return [(topics.demand(stream), encode(head))]
    pieces: dict[int, list[tuple[int, bytes]]] = {}
    for since, query in enumerate(queries):
        pieces.setdefault(dice.randrange(PIECES), []).append((since, msgspec.msgpack.encode(query)))
    messages = {number: encode_piece(VERSION, stream, number, entries) for number, entries in pieces.items()}
    digests = {number: digest_of(payload) for number, payload in messages.items()}
    sent = [(topics.demand_piece(stream, number), payload) for number, payload in messages.items()]
    sent.append((topics.demand(stream), encode(DemandHead(VERSION, "c", stream, head.epoch, digests, declared))))
    dice.shuffle(sent)
    return sent if dice.random() < 0.8 else sent[1:]


def drawn_query_demand(query: str, dice: Random) -> QueryDemand:
    """Return the demand of a query, mostly on fields that there are."""
    if dice.random() < 0.2:
        return replace(drawn(QueryDemand, dice), query=query)
    names = sorted(dice.sample([each.name for each in (SEGMENT, *FIELDS)], dice.randrange(1, 5)))
    low = dice.choice((None, 0.0, 10.0, -1e300))
    bands = tuple(Band(name, low, dice.choice((None, 20.0, 1e300))) for name in names if name in {"speed", "flow"})
    period_us = dice.choice((None, *PERIODS_US))
    pane_us = dice.choice(PERIODS_US)
    panes = PaneDemand("f1", pane_us, (Measure.SUM, Measure.MIN)) if dice.random() < 0.3 else None
    counted = CompletenessDemand("c1", pane_us) if dice.random() < 0.2 else None
    tolerances = (
        (DeadBand("speed", dice.choice((0.0, 0.5, 1e300))),) if "speed" in names and dice.random() < 0.3 else ()
    )
    return QueryDemand(
        query, tuple(names), period_us, bands if dice.random() < 0.5 else (), (), panes, None, tolerances,
        dice.choice((0, pane_us, 2**62)), dice.choice((0, 366 * 86_400 * SECOND_US)),
        dice.choice((0, 0, 86_400 * SECOND_US, 2**62)), counted,
    )  # fmt: skip


def drawn_news(dice: Random) -> tuple[str, bytes]:
    """Return a message about another proxy or one of its motes, or of a cluster."""
    other = dice.choice(("other", NAME))
    mote = dice.choice(MOTES)
    match dice.randrange(4):
        case 0:
            status = Status(VERSION, other, dice.choice(list(Presence)), "e", dice.choice((0, 2**62, -(2**62))))
            return topics.proxy_status(other), encode(status)
        case 1:
            return topics.mote_entry(other, mote), encode(replace(drawn(MoteEntry, dice), proxy=other, mote=mote))
        case 2:
            return topics.mote_entry(other, mote), b""
        case _:
            return topics.cluster_status("c"), encode(Status(VERSION, "c", Presence.ONLINE, "e", 0))

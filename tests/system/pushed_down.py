"""Simulated motes, a proxy's decisions and the operators, one after another: no broker, no Spark, no waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cluster.fjord.batch import ALWAYS
from cluster.ingest.arrow_batches import AdmittedRows, first_and_last, to_arrow
from cluster.ingest.batch_layouts import Layouts
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.plan.demand import demands_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.storage.stream_tables import StreamPosition
from firmware_sim.mote.mote import AFTER_THE_END_US
from firmware_sim.mote.mote_events import MoteDescription
from firmware_sim.phenomena.worlds import Phenomenon
from firmware_sim.radio.channel import RadioFaults
from firmware_sim.virtual_time.fleet import Received, VirtualFleet, VirtualSettings
from protocols.acquisition.program_reports import ProgramStyle
from protocols.errors import FrameError
from protocols.power.profiles import find_profile
from protocols.wire.batches import Batch, pack_batch
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.packets import Control, Packet, decode_packet
from protocols.wire.programs import ListenSchedule, SamplingProgram, reports_of
from protocols.wire.streams import StreamSchema
from proxy.fleet.batching import BatchLimits
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import FleetInstruction, ForMote
from proxy.fleet.fleet_members import FleetLimits
from proxy.motes.mote_events import Rejected, SendControl
from proxy.motes.mote_presence import TrackingLimits
from tests.cluster.spark.hosted_run import Run

SECOND = 1_000_000
MINUTE = 60 * SECOND

Loses = Callable[[int, Packet], bool]
"""Whether a packet that arrives at an instant is dropped."""


@dataclass
class ProxyOnTheAir:
    """A proxy's fleet instead of the simulator's gateway."""

    fleet: Fleet
    batches: list[Batch] = field(default_factory=list)
    cut_us: list[int] = field(default_factory=list)
    """When each batch was cut."""
    refused: list[Rejected] = field(default_factory=list)
    loses: Loses = field(default=lambda _at_us, _packet: False)
    sent: list[tuple[Packet, bool]] = field(default_factory=list)
    """Every packet that a mote sent and the radio carried, and whether the proxy got it."""
    received: dict[str, Received] = field(default_factory=dict)

    def announce(self, motes: Sequence[MoteDescription], device: str) -> None:
        """Announce the motes."""
        for mote in motes:
            self.take(self.fleet.receive_announcement(mote.announcement(1, device), radio_us=0, received_us=0))

    def receive(self, at_us: int, payload: bytes) -> Control | None:
        """Process an arrived frame; return the answer for the listen window."""
        try:
            packet = decode_packet(payload)
        except FrameError:
            return None
        lost = self.loses(at_us, packet)
        self.sent.append((packet, not lost))
        if lost:
            return None
        control = self.take(self.fleet.receive_packet(packet, radio_us=at_us, received_us=at_us))
        self.take(self.fleet.time_passed(at_us))
        cut = [cut.as_batch("p", "e") for cut in self.fleet.cut(at_us)]
        self.batches += cut
        self.cut_us += [at_us] * len(cut)
        return control

    def take(self, instructions: Sequence[FleetInstruction]) -> Control | None:
        """Record what was rejected; return the control frame to send, if there is one."""
        control = None
        for each in instructions:
            if isinstance(each, ForMote) and isinstance(each.instruction, SendControl):
                control = each.instruction.control
            elif isinstance(each, ForMote) and isinstance(each.instruction, Rejected):
                self.refused.append(each.instruction)
        return control


@dataclass
class Outcome:
    """Answers by query, the last programs of the motes, and what the proxy rejected."""

    rows: dict[str, list[tuple[int, int, dict[str, Any]]]]
    programs: dict[str, SamplingProgram]
    batches: list[Batch]
    refused: list[Rejected]
    joules: float
    errors: dict[str, list[str]]
    sent: list[tuple[Packet, bool]]
    cut_us: list[int]
    fleet: Fleet


def planned(queries: Mapping[str, str], schema: StreamSchema) -> tuple[PlannedQuery, ...]:
    """Return queries as the registry would plan them."""
    catalog = Catalog.of([schema])
    return tuple(
        PlannedQuery(name, number, rewrite(translate(sql, catalog).node).node)
        for number, (name, sql) in enumerate(queries.items(), 1)
    )


def as_samples(demand: QueryDemand, schema: StreamSchema) -> tuple[QueryDemand, ...]:
    """Return demands for every sample, without push-down: the proxy detects events."""
    everything = QueryDemand(demand.query, tuple(each.name for each in schema.fields), demand.period_us)
    return (everything,) if demand.events is None else (everything, demand)


def run(
    world: Phenomenon,
    queries: Mapping[str, str],
    folder: Path,
    *,
    raw: bool = False,
    device: str = "telosb",
    style: ProgramStyle | None = None,
    faults: RadioFaults | None = None,
    steps: int = 5,
    seed: int = 1,
    added_after_us: Mapping[str, int] | None = None,
    loses: Loses | None = None,
    tracking: TrackingLimits | None = None,
    batches: BatchLimits | None = None,
    wrong_by_us: Mapping[str, int] | None = None,
) -> Outcome:
    """Run queries over a world from its begin to its end.

    Parameters
    ----------
    world
        The motes' surroundings; all are of one stream.
    queries
        By name.
    folder
        For plans and tables.
    raw
        True to let sensors send every sample that any query reads.
    device, style, faults, seed
        Of motes, programs, radio and random numbers.
    steps
        Micro-batches.
    added_after_us
        Queries that are added later, and how much later.
    loses
        Chooses packets to drop, besides those that the radio loses.
    tracking, batches
        Limits of the proxy.
    wrong_by_us
        By mote: how far its clock is ahead.
    """
    schema = world.motes[0].stream
    plans = planned(queries, schema)
    later = added_after_us or {}
    limits = FleetLimits(
        style=style or ProgramStyle(7, ListenSchedule(5 * MINUTE, 20_000)),
        batches=batches or BatchLimits(rows=50_000),
        tracking=tracking or TrackingLimits(),
    )
    begins_us, ends_us = world.begins_us, world.ends_us
    assert begins_us is not None
    assert ends_us is not None
    proxy = ProxyOnTheAir(Fleet("p", limits, now_us=begins_us))
    if loses is not None:
        proxy.loses = loses
    proxy.announce(world.motes, device)
    settings = VirtualSettings(find_profile(device), faults=faults or RadioFaults(), seed=seed)
    motes = VirtualFleet(world, {}, settings)
    motes.gateway = proxy  # type: ignore[assignment]
    for mote in motes.motes:
        by_us = (wrong_by_us or {}).get(mote.description.name)
        if by_us is not None:
            mote.clock, mote.ends_us = mote.clock.adjusted(by_us, begins_us), None
    moments = sorted({0, *later.values()})
    cuts: list[int] = []
    for number, moment_us in enumerate(moments):
        running = [plan for plan in plans if later.get(plan.name, 0) <= moment_us]
        demands = tuple(
            demand for plan in running for each in demands_of(plan.name, plan.node).values() for demand in each
        )
        if raw:
            demands = tuple(each for demand in demands for each in as_samples(demand, schema))
        demand = StreamDemand(VERSION, "c", schema.name, number + 1, demands)
        proxy.take(proxy.fleet.receive_demand(schema.name, demand, radio_us=begins_us + moment_us))
        cuts.append(len(proxy.batches))
        until_us = begins_us + moments[number + 1] if number + 1 < len(moments) else ends_us + 20 * MINUTE
        motes.run(until_us)
    rows = Run(folder, Plan(1, tuple(plan for plan in plans if later.get(plan.name, 0) == 0)), schema)
    feed(rows, proxy.batches, steps, ends_us)
    return Outcome(
        rows.rows,
        {mote.description.name: mote.program for mote in motes.motes},
        proxy.batches,
        proxy.refused,
        sum(float(mote.meter.joules.sum()) for mote in motes.motes),
        rows.errors,
        proxy.sent,
        proxy.cut_us,
        proxy.fleet,
    )


def feed(rows: Run, batches: Sequence[Batch], steps: int, ends_us: int) -> None:
    """Process batches in a number of micro-batches, and answer all windows."""
    reached_us = take_in(rows, batches, steps)
    rows.table.append([], StreamPosition(max(reached_us, ends_us + AFTER_THE_END_US // 2), {}), {})
    rows.step()


def take_in(rows: Run, batches: Sequence[Batch], steps: int) -> int:
    """Process batches in a number of micro-batches; return the watermark after them."""
    size = max(1, -(-len(batches) // steps))
    watermark_us: int | None = None
    layouts = Layouts(rows.schema)
    for begin in range(0, len(batches), size):
        chunk = batches[begin : begin + size]
        admitted = []
        for batch in chunk:
            if batch.rows:
                packed = pack_batch(batch)
                layout = layouts.of(packed)
                first_us, _ = first_and_last(packed, layout)
                assert watermark_us is None or first_us >= watermark_us, "no row is behind the watermark"
                admitted.append(AdmittedRows(packed.data, batch.rows, layout))
            watermark_us = batch.watermark_us if watermark_us is None else max(watermark_us, batch.watermark_us)
        assert watermark_us is not None
        tables = [to_arrow(admitted, rows.schema)] if admitted else []
        rows.table.append(tables, StreamPosition(watermark_us, {}), {})
        rows.step()
    return ALWAYS if watermark_us is None else watermark_us


def kinds(program: SamplingProgram) -> list[str]:
    """Return the kind of each report of a program, in a word."""
    return [
        type(alone.report).__name__ if alone.report is not None else "bands" if alone.bands else "all"
        for alone in reports_of(program)
    ]


def answers(outcome: Outcome, name: str) -> list[tuple[int, int, str]]:
    """Return the answers of a query, sorted."""
    return sorted(
        (start, end, msgspec.json.encode(row, order="sorted").decode())
        for start, end, row in outcome.rows.get(name, [])
    )

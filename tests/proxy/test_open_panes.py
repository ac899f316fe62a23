"""When needs change within a pane, each of its samples still counts once: alone, or in the pane's aggregate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocols.acquisition.needs import DemandClass, Need, NeedKind
from protocols.wire.demands import PaneDemand, QueryDemand
from protocols.wire.packets import Partial, Sample
from protocols.wire.programs import Measure, Panes, ProgramReport, SamplingProgram, Several
from proxy.records.record_reader import RecordReader
from tests.proxy.conftest import announcement, packet

SECOND = 1_000_000
PANE = 10
COUNTED = "counted"
PROGRAM = SamplingProgram(
    ("flow",),
    SECOND,
    report=Several((
        ProgramReport(("flow",), SECOND),
        ProgramReport(("flow",), SECOND, kind=Panes(PANE * SECOND, ())),
    )),
)  # fmt: skip
SAMPLES = (
    Need(NeedKind.SAMPLES, ("flow",), SECOND),
    (DemandClass(QueryDemand("s", ("flow",), SECOND), ("s",)),),
)


def aggregated(*measures: Measure) -> tuple[Need, tuple[DemandClass, ...]]:
    """Return a need of aggregates; with a measure, the program's panes do not answer it, and its samples do."""
    need = Need(NeedKind.PANES, ("flow",), SECOND, pane_us=PANE * SECOND, measures=measures)
    demand = QueryDemand("q", ("flow",), SECOND, panes=PaneDemand(COUNTED, PANE * SECOND, measures))
    return need, (DemandClass(demand, ("q",)),)


COUNTS, MAXIMA = (SAMPLES, aggregated()), (SAMPLES, aggregated(Measure.MAX))


def sample(reader: RecordReader, at: int) -> bool:
    """Read a sample of a second; return whether it says that it is in an aggregate."""
    read = reader.read(replace(packet(at, clock=at * SECOND), records=(Sample(0, (7,), 1),)))
    assert read is not None
    assert len(read.starts_us) == 1
    return bool(read.aggregated and read.aggregated[0].covered_by == COUNTED)


def aggregate(reader: RecordReader, until: int, samples: int, clock: int | None = None) -> list[int]:
    """Read the aggregate of a pane that ends at a second; return how many samples are in what is passed on."""
    clock_us = (until if clock is None else clock) * SECOND
    partial = Partial(clock_us - until * SECOND + 1, PANE * SECOND, ((),), samples, 1)
    read = reader.read(replace(packet(until, clock=clock_us), records=(partial,)))
    return [] if read is None else [each.samples for each in read.aggregated if each.fingerprint == COUNTED]


def test_an_open_pane_goes_where_its_first_samples_say() -> None:
    reader = RecordReader(announcement(), PROGRAM, COUNTS)
    assert sample(reader, 11)
    reader.route(MAXIMA)
    assert sample(reader, 12)
    assert aggregate(reader, 20, 2) == [2]
    assert not sample(reader, 20)
    assert aggregate(reader, 30, 1) == []


def test_a_pane_whose_first_samples_count_alone_is_not_passed_on() -> None:
    reader = RecordReader(announcement(), PROGRAM, MAXIMA)
    assert not sample(reader, 11)
    reader.route(COUNTS)
    assert not sample(reader, 12)
    assert aggregate(reader, 20, 2) == []
    assert sample(reader, 20)
    assert aggregate(reader, 30, 1) == [1]


def test_what_nobody_demands_any_more_is_not_passed_on() -> None:
    reader = RecordReader(announcement(), PROGRAM, COUNTS)
    assert sample(reader, 11)
    reader.route((SAMPLES,))
    assert aggregate(reader, 20, 1) == []


@given(st.lists(st.sampled_from(["sample", "counts", "maxima", "late"]), max_size=60))
def test_each_sample_counts_once_whenever_needs_change(steps: list[str]) -> None:
    reader = RecordReader(announcement(), PROGRAM, COUNTS)
    closed = alone = together = now = in_pane = alone_in_pane = 0
    late: list[tuple[int, int]] = []
    for step in (*steps, *["sample"] * 2 * PANE, "late"):
        match step:
            case "counts" | "maxima":
                reader.route(COUNTS if step == "counts" else MAXIMA)
            case "late":  # the aggregate arrives, behind samples of the next pane
                together += sum(sum(aggregate(reader, *each, clock=now)) for each in late)
                late.clear()
            case _:
                now += 1
                if now % PANE == 0:
                    together += sum(sum(aggregate(reader, *each, clock=now)) for each in late)
                    late = [(now, in_pane)]
                    closed, alone = closed + in_pane, alone + alone_in_pane
                    in_pane = alone_in_pane = 0
                covered = sample(reader, now)
                in_pane, alone_in_pane = in_pane + 1, alone_in_pane + (not covered)
    assert alone + together == closed

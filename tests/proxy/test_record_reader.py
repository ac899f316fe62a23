"""What motes report is checked before it becomes a tuple: else a batch could not hold it, and all others would wait."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from protocols.acquisition.needs import DemandClass, Need, NeedKind
from protocols.errors import SchemaError
from protocols.wire.batches import aggregate_columns
from protocols.wire.demands import PaneDemand, QueryDemand
from protocols.wire.packets import Partial
from protocols.wire.programs import Measure, Panes, SamplingProgram
from proxy.records.record_reader import RecordReader

SECOND = 1_000_000
MEASURES = (Measure.COUNT, Measure.SUM)
PROGRAM = SamplingProgram(("flow",), SECOND, report=Panes(10 * SECOND, MEASURES))
NEED = Need(NeedKind.PANES, ("flow",), SECOND, pane_us=10 * SECOND, measures=MEASURES)
DEMAND = QueryDemand("q", ("flow",), SECOND, panes=PaneDemand("f", 10 * SECOND, MEASURES))


def read(frames, count, total=0):
    reader = RecordReader(frames.announcement(), PROGRAM, ((NEED, (DemandClass(DEMAND, ("q",)),)),))
    return reader.read(replace(frames.packet(1), records=(Partial(0, 10 * SECOND, ((count, total),), 1),)))


@pytest.mark.parametrize("count", [0, 7, 2**63 - 1, None])
def test_counts_are_accepted(frames, count):
    found = read(frames, count)
    (aggregated,) = found.aggregated
    values = {name: [value] for name, value in aggregated.measures}
    assert aggregate_columns(frames.TRAFFIC, values, 1)


@pytest.mark.parametrize("count", [2**63, 2**64 - 1, -1, 1.5, float("nan"), 1e300])
def test_counts_that_no_batch_can_hold_are_rejected(frames, count):
    with pytest.raises(SchemaError, match="count of values of 'flow'"):
        read(frames, count)


@pytest.mark.parametrize("total", [2**63, -(2**63) - 1, 1.5])
def test_sums_that_no_batch_can_hold_are_rejected(frames, total):
    with pytest.raises(SchemaError, match="'flow' holds integer"):
        read(frames, 1, total)

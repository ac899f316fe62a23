"""The programs of a device follow from its capabilities."""

from __future__ import annotations

import pytest

from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import fold_demands
from protocols.acquisition.program_reports import ProgramStyle, SensorTraits
from protocols.power.profiles import find_profile
from protocols.wire import streams
from protocols.wire.demands import EventDemand, PaneDemand, QueryDemand
from protocols.wire.programs import Band, DeadBand, Measure, Threshold
from protocols.wire.streams import FieldType, StreamSchema
from proxy.drivers.driver import PASSIVE
from proxy.drivers.driver_registry import abilities
from proxy.drivers.zigbee_reporting import REPORTING, push_down
from tests.proxy.drivers.test_drivers import EVERYTHING

S = 1_000_000


def test_capabilities_become_abilities():
    assert abilities(EVERYTHING) == abilities(EVERYTHING).__class__()
    passive, reporting = abilities(PASSIVE), abilities(REPORTING)
    assert not any((passive.filters, passive.sends_on_change, passive.aggregates, passive.several))
    assert (reporting.sends_on_change, reporting.filters, reporting.detects_events) == (True, False, False)


DEMANDS = [
    QueryDemand("raw", ("t", "x"), S),
    QueryDemand("band", ("t",), 2 * S, bands=(Band("t", 30.0),)),
    QueryDemand("tolerant", ("t",), S, tolerances=(DeadBand("t", 0.5),), output_us=60 * S),
    QueryDemand("late", ("t", "x"), 5 * S, output_us=600 * S),
    QueryDemand("panes", ("t",), S, panes=PaneDemand("f1", 60 * S, (Measure.SUM,)), output_us=60 * S),
    QueryDemand("events", ("x",), S, events=EventDemand("f2", Threshold("x", 1.0, 0.5))),
]


@pytest.mark.parametrize("capabilities", [PASSIVE, REPORTING], ids=["passive", "reporting"])
@pytest.mark.parametrize("names", [["raw"], ["panes"], ["events"], ["band", "panes"], ["tolerant"], ["late"], None])
def test_no_program_exceeds_a_device_with_its_driver(capabilities, names):
    schema = StreamSchema("s", (streams.Field("t", FieldType.REAL), streams.Field("x", FieldType.REAL)))
    wanted = [each for each in DEMANDS if names is None or each.query in names]
    merger = Merger(fold_demands(tuple(wanted), schema), ProgramStyle())
    traits = SensorTraits(S, S, find_profile("telosb"), abilities=abilities(capabilities))
    program = merger.merge(traits, {}).program
    parts = push_down(program, capabilities)
    assert parts.accepted == program
    assert not program.bands
    if capabilities is PASSIVE:
        assert program.report is None
    assert not program.sleeping

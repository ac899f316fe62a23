"""Rates in closed form, for programs that need no simulation."""

from __future__ import annotations

import pytest

from protocols.power.estimate import Shares, Workload, rates_of
from protocols.wire.programs import Band, ListenSchedule, Panes, ProgramReport, SamplingProgram, Several

SECOND = 1_000_000
RARE = ProgramReport(("a",), SECOND, (Band("a", 10.0),))
PANES = tuple(ProgramReport((name,), SECOND, (), Panes(10 * SECOND)) for name in "bcdef")


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_no_packet_holds_more_records_than_it_may(size):
    """Five panes are due together and would leave in one packet, because a rare sample may not wait for the next."""
    program = SamplingProgram(
        tuple("abcdef"), SECOND, size, ListenSchedule(60 * SECOND, 50_000), report=Several((RARE, *PANES)),
        patience_us=10 * SECOND,
    )  # fmt: skip
    found = rates_of(program, Workload(reports=(Shares(0.01, 1.0, 0.5), *(Shares() for _ in PANES))))
    assert found.records == pytest.approx(0.51)
    assert found.records_per_packet <= size
    assert found.packets * found.records_per_packet == pytest.approx(found.records)

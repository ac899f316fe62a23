"""What the demonstration says of its motes' batteries, beside motes that send every sample."""

from __future__ import annotations

import msgspec
import pytest

from cluster.demo.view import JOULES_A_DAY, DemoState, mission_of, summary_line
from protocols.power.estimate import Workload, draw_mw
from protocols.power.profiles import find_profile
from protocols.wire.catalog import MoteEntry, MoteState
from protocols.wire.frames import VERSION
from protocols.wire.programs import Panes, SamplingProgram

FIELDS = ("speed", "flow")
PANES = SamplingProgram(FIELDS, 250_000, report=Panes(5_000_000))


def entry(name: str, **changed: object) -> MoteEntry:
    made = MoteEntry(
        VERSION, name, "roadside", "loop", "traffic", {}, MoteState.SAMPLING, 250_000, 1_000_000, 10_000, 1,
        packets_received=7, packets_lost=0, packets_rejected=0, samples_received=0, samples_late=0, health=None,
        heard_us=0, device="telosb", battery_joules=20_000.0, wanted=PANES,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changed)


def test_motes_that_aggregate_are_compared_with_motes_that_send_every_sample() -> None:
    mission = mission_of([entry("a"), entry("b", milliwatts=2.0)], FIELDS)
    profile = find_profile("telosb")
    own = float(draw_mw(profile, PANES, Workload()).sum())
    every = float(draw_mw(profile, SamplingProgram(FIELDS, 250_000), Workload()).sum())
    assert (mission.samples_per_second, mission.packets) == (8.0, 14)
    assert mission.draw_mw == pytest.approx((own + 2.0) / 2)
    assert mission.all_mw == pytest.approx(every)
    assert mission.all_mw > own
    assert mission.days == pytest.approx((20_000 / own + 20_000 / 2.0) / 2 / JOULES_A_DAY)
    assert f"sending every sample {every:.3g} mW" in mission.words


def test_what_is_not_known_is_not_shown() -> None:
    assert mission_of([], FIELDS).words == "no query demands anything: motes sleep"
    assert mission_of([entry("a", device="?")], FIELDS).words == "what they draw is not known yet"
    assert "without a limit" in mission_of([entry("a", battery_joules=None)], FIELDS).words
    silent = entry("a", state=MoteState.SILENT)
    assert mission_of([silent, entry("b", period_us=0)], FIELDS).samples_per_second == 0


def test_the_line_has_samples_that_are_taken_and_packets_that_are_sent() -> None:
    state = DemoState({}, {"a": entry("a")}, packets_per_second=0.25)
    assert summary_line(state).startswith("4 samples/s taken, 0.2 packets/s sent, 0.0 rows/s | motes: 1 sampling every")

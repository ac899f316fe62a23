"""Lines that are to lie below the costs of packets do, for any radio; no mote that samples faster draws less."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.acquisition.least_cost import activity_costs, costs_of_faster
from protocols.power.costs import packet_cost, reporting_cost, resting_mw
from protocols.power.profiles import Lora, find_profile, preset_names

SECOND = 1_000_000
loras = st.builds(
    Lora,
    spreading_factor=st.sampled_from([6.0, 7.0, 10.0, 12.0]),
    bandwidth_hz=st.just(125e3),
    coding_rate=st.sampled_from([1.0, 4.0]),
    preamble_symbols=st.just(8.0),
)


@given(
    st.sampled_from(preset_names()),
    st.none() | loras,
    st.floats(0, 200),
    st.floats(0, 100),
    st.sampled_from([SECOND // 100, 60 * SECOND]),
    st.floats(0, 1),
)
@example("lora-sf7", Lora(spreading_factor=7.0, bandwidth_hz=125e3, coding_rate=1.0, preamble_symbols=8.0), 101.0, 64.0,
         SECOND, 103 / (222 * 8))  # fmt: skip
@example("micaz", Lora(spreading_factor=6.0, bandwidth_hz=125e3, coding_rate=1.0, preamble_symbols=8.0),
         0.8771225992511127, 0.8771225992511127, SECOND // 100, 0.876953125)  # fmt: skip
def test_linear_bounds_lie_below_the_cost_of_every_packet(name, lora, overhead_bits, health_bits, tick_us, share):
    profile = find_profile(name)
    radio = msgspec.structs.replace(profile.radio, lora=lora, overhead_bits=overhead_bits, health_bits=health_bits)
    profile = msgspec.structs.replace(profile, radio=radio)
    found = activity_costs(profile, 1.05, 50_000.0, tick_us, 2)
    rest_mw = float(resting_mw(profile, tick_us).sum())
    bits = share * radio.max_payload_bytes * 8

    def above(cost):
        return float(cost.joules.sum()) * 1e3 - rest_mw * cost.busy_us / 1e6

    drawn = above(reporting_cost(profile, bits, 1.05))
    bound = max(line.packet + line.bit * bits for line in found.packets)
    assert bound <= drawn * (1 + 1e-9) + 1e-300  # of a share of a bit so small that no digits are left
    assert lora or bound == pytest.approx(drawn)
    assert found.poll == pytest.approx(above(packet_cost(profile, health_bits, 1.05)))


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("tick_us", [1_000, SECOND // 2, SECOND, 3 * SECOND, 60 * SECOND])
def test_the_bound_for_faster_motes_holds_for_every_faster_period(name, tick_us):
    profile = find_profile(name)
    faster = costs_of_faster(profile, 1.0, 50_000.0, tick_us, 2)
    least = min(each.looking for each in (activity_costs(profile, 1.0, 50_000.0, tick_us, 2), faster) if each)
    for times in range(1, 200):
        found = activity_costs(profile, 1.0, 50_000.0, tick_us / times, 3)
        assert least <= found.looking * (1 + 1e-9)

"""No control message is sent to a closed receiver, whatever the demands, over radios that lose, double and delay.

Packets are delayed by less than a listen window. One that is delayed for longer is not answered if the proxy knows the
usual delay of its mote; it cannot always know (docs/architecture.md, push-down).
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firmware_sim.radio.channel import Bernoulli, RadioFaults
from firmware_sim.virtual_time.fleet import VirtualFleet, VirtualSettings
from protocols.acquisition.program_reports import ProgramStyle
from protocols.power.profiles import find_profile
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.programs import Band, ListenSchedule, program_number
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits
from tests.system.pushed_down import MINUTE, SECOND, ProxyOnTheAir
from tests.system.test_push_down import SCHEMA, Road

SETTLED_US = 3 * MINUTE
"""By then the proxy knows the usual delay of packets."""

demands = st.lists(
    st.builds(
        lambda fields, period, low: QueryDemand(
            "q", tuple(fields), period * SECOND, (Band("speed", high=10.0),) if low else ()
        ),
        st.lists(st.sampled_from(["speed", "flow"]), min_size=1, unique=True),
        st.sampled_from([1, 2, 5, 20]),
        st.booleans(),
    ),
    max_size=3,
)
faults = st.builds(
    # The radio's checksum finds wrong bits: the fields of a frame are trusted.
    lambda loss, duplicated, reordered, jitter_ms: RadioFaults(
        loss=Bernoulli(share=loss),
        duplicated=duplicated,
        reordered=reordered,
        reordered_by_us=50_000,
        jitter_us=jitter_ms * 1000,
    ),
    st.sampled_from([0.0, 0.1, 0.4]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0, 40]),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(1, 90), demands), min_size=1, max_size=6), faults, st.sampled_from([2, 7]))
def test_control_finds_the_receiver_open(changes, faults, listens_every_s):
    world = Road(motes=3, minutes=60)
    begins_us = world.begins_us
    style = ProgramStyle(3, ListenSchedule(listens_every_s * SECOND, 100_000))
    proxy = ProxyOnTheAir(Fleet("p", FleetLimits(style=style), now_us=begins_us))
    proxy.announce(world.motes, "telosb")
    motes = VirtualFleet(world, {}, VirtualSettings(find_profile("telosb"), faults=faults))
    motes.gateway = proxy
    now_us = begins_us + SETTLED_US
    motes.run(now_us)
    missed = sum(mote.counters.control_missed for mote in motes.motes)
    for epoch, (seconds, demands) in enumerate(changes, 1):
        proxy.take(
            proxy.fleet.receive_demand(
                "traffic", StreamDemand(VERSION, "c", SCHEMA.name, epoch, tuple(demands)), radio_us=now_us
            )
        )
        now_us += seconds * SECOND
        motes.run(now_us)
    # The proxy may just have priced programs again with newly observed values.
    for _ in range(3):
        now_us += 4 * MINUTE
        motes.run(now_us)
        wanted = {name: program_number(mote.desired) for name, mote in proxy.fleet.motes.items()}
        running = {mote.description.name: program_number(mote.program) for mote in motes.motes}
        if running == wanted:
            break
    assert running == wanted, "they converge"
    assert sum(mote.counters.control_missed for mote in motes.motes) == missed

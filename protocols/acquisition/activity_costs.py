"""Lower bounds of the draw of packets, listen windows and samples: straight lines below costs that rise in steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from protocols.power.costs import (
    Cost,
    always_mw,
    listen_cost,
    packet_cost,
    reporting_cost,
    resting_mw,
    sample_cost,
    synchronisation_cost,
)
from protocols.power.profile import DeviceProfile

_ROUNDING_BITS = 1e-9
"""Ends of steps are taken this much shorter: rounded up, they would belong to the next step, which costs more."""
_LEAST_BEND = 1e-12
"""Points that are closer to a line than this share of the largest cost count as points on it."""


@dataclass(frozen=True, slots=True)
class PacketLine:
    """Milliwatts for one packet with records a second, and for each of its bits; no packet draws less."""

    packet: float
    bit: float


@dataclass(frozen=True, slots=True)
class ActivityCosts:
    """Milliwatts above those at rest.

    Parameters
    ----------
    looking
        Draw of a mote that samples and neither sends nor listens, rest included.
    packets
        At least one line, each below the cost of a packet with records whatever its length.
    poll, listen
        Draw of one polling packet (without records) a second, and of one listen window a second.
    """

    looking: float
    packets: tuple[PacketLine, ...]
    poll: float
    listen: float


def activity_costs(
    profile: DeviceProfile, attempts: float, listen_us: float, tick_us: int, fields: int
) -> ActivityCosts:
    """Return the costs of a mote that samples this many fields every `tick_us`."""
    return _with_samples(profile, attempts, listen_us, tick_us, fields, asleep=profile.rests_asleep(tick_us))


def costs_of_faster(
    profile: DeviceProfile, attempts: float, listen_us: float, tick_us: int, fields: int
) -> ActivityCosts | None:
    """Return the least costs of a mote that samples so much faster that it no longer sleeps between samples.

    None if it never sleeps or always does. A mote may sleep between samples although staying awake costs less, since
    waking takes time; so a mote that samples twice as often may draw less.
    """
    sleeps_from_us = profile.processor.sleeps_from_us
    if not profile.rests_asleep(tick_us) or sleeps_from_us <= 1:
        return None
    # The slowest period that divides this one, apart from rounding to whole microseconds.
    times = max(2, int(tick_us // sleeps_from_us) + 1)
    if tick_us / times >= sleeps_from_us:
        times += 1
    return _with_samples(profile, attempts, listen_us, tick_us / times, fields, asleep=False)


def _with_samples(
    profile: DeviceProfile, attempts: float, listen_us: float, tick_us: float, fields: int, *, asleep: bool
) -> ActivityCosts:
    packets, poll, listen, always = _without_samples(profile, attempts, listen_us, asleep=asleep)
    sample = _above(sample_cost(profile, fields, tick_us), _rest_mw(profile, asleep=asleep))
    return ActivityCosts(always + sample * 1e6 / tick_us, packets, poll, listen)


@lru_cache(maxsize=256)
def _without_samples(
    profile: DeviceProfile, attempts: float, listen_us: float, *, asleep: bool
) -> tuple[tuple[PacketLine, ...], float, float, float]:
    rest = _rest_mw(profile, asleep=asleep)
    always = float(always_mw(profile).sum()) + rest
    if profile.clock.synchronise_every_seconds:
        always += _above(synchronisation_cost(profile), rest) / profile.clock.synchronise_every_seconds
    poll = _above(packet_cost(profile, profile.radio.health_bits, attempts), rest)
    listen = _above(listen_cost(profile, listen_us), rest)
    points = [(bits, _above(reporting_cost(profile, bits, attempts), rest)) for bits in _lengths(profile)]
    return _lines_below(points), poll, listen, always


def _lengths(profile: DeviceProfile) -> list[float]:
    """Return payload lengths, ascending: zero, the longest, and the last one of each step of the time on the air.

    Between two of them the cost is a straight line, or the same as for the longer one.
    """
    radio = profile.radio
    longest = radio.max_payload_bytes * 8
    found = {0.0, longest}
    if radio.lora is not None:
        # Steps end with whole bytes of payload and overhead; with those of the mote's health, too, in some packets.
        for beside in (radio.overhead_bits, radio.overhead_bits + radio.health_bits):
            ends = (8 * number - beside - _ROUNDING_BITS for number in range(1, int((longest + beside) // 8) + 1))
            found.update(end for end in ends if 0 < end < longest)
    return sorted(found)


def _lines_below(points: list[tuple[float, float]]) -> tuple[PacketLine, ...]:
    """Return the lines that bound points from below (the lower half of their convex hull)."""
    bend = _LEAST_BEND * max(cost for _, cost in points) * points[-1][0]
    hull: list[tuple[float, float]] = []
    for bits, cost in points:
        while len(hull) > 1:
            (first_bits, first), (last_bits, last) = hull[-2:]
            if (last - first) * (bits - first_bits) < (cost - first) * (last_bits - first_bits) - bend:
                break
            hull.pop()
        hull.append((bits, cost))
    lines: list[PacketLine] = []
    for (bits, cost), (more_bits, more) in pairwise(hull):
        slope = max(0.0, (more - cost) / (more_bits - bits))
        lines.append(PacketLine(cost - slope * bits, slope))
    # The first line begins at the empty packet.
    return tuple(line for line in lines if line.packet >= 0 or line is lines[0])


def _rest_mw(profile: DeviceProfile, *, asleep: bool) -> float:
    pause_us = max(1.0, profile.processor.sleeps_from_us) if asleep else 0.0
    return float(resting_mw(profile, pause_us).sum())


def _above(cost: Cost, rest_mw: float) -> float:
    """Return how much an activity once a second adds to the draw of a resting mote."""
    return float(cost.joules.sum()) * 1e3 - rest_mw * cost.busy_us / 1e6

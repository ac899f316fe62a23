"""What a program costs at least, however its packets fall: soon said, and most programs need not be priced for it.

A program never draws less. Left out is how long exactly it waits before it listens or asks, what parts add to samples
of which another one sends something, and whether packets are quite full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from protocols.acquisition.parts import assembled, sends_samples
from protocols.acquisition.pricing import Pricing
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
from protocols.power.estimate import Workload, is_regular, mean_attempts, records_of, sends_all
from protocols.power.limits import most_records
from protocols.power.profile import DeviceProfile
from protocols.programs import Part, VehicleEvents

_STEP_BITS = 8


@dataclass(frozen=True, slots=True)
class PartCost:
    """What decides about the least cost of programs with a part.

    Parameters
    ----------
    fields
        Which it looks at, as bits of a number.
    every_us
        How often.
    sends_samples
        Those that do may send one sample together.
    regular
        Whether it is known when its records come.
    even
        Whether nobody knows, but they come as regularly: every sample has changed.
    records
        How many it sends per second.
    runs
        How many packets it takes at least per second if nobody knows when records come.
    bits
        Of its records, per second.
    """

    fields: int
    every_us: int
    sends_samples: bool
    regular: bool
    even: bool
    records: float
    runs: float
    bits: float


@dataclass(frozen=True, slots=True)
class _Rates:
    """Milliwatts above rest: of one packet a second, a bit a second, an ask and a listen window a second."""

    always: float
    packet: float
    bit: float
    ask: float
    listen: float


class LeastCost:
    """Lower bounds of the costs of one sensor's programs."""

    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        sensor, style = pricing.sensor, pricing.style
        self._profile = sensor.profile
        self._order = {name: 1 << place for place, name in enumerate(sensor.order)}
        self._every_s = style.listen.every_us / 1e6
        self._attempts = mean_attempts(sensor.profile, pricing.observed.loss)
        self._looks: dict[tuple[int, int], tuple[float, _Rates]] = {}
        self._parts: dict[Part, PartCost] = {}

    def part(self, part: Part) -> PartCost:
        """Return what has to be known of a part."""
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = self._of_part(part)
        return found

    def milliwatts(self, parts: Sequence[PartCost], patience_us: int = 0) -> float:
        """Return what a program of these parts draws at least.

        Parameters
        ----------
        parts
            At least one.
        patience_us
            How long records may wait; 0 if there may be more parts and nobody knows.
        """
        tick_us, fields = parts[0].every_us, 0
        apart = sent = runs = bits = sent_bits = regular = 0.0
        unknown = even = False
        for part in parts:
            tick_us = math.gcd(tick_us, part.every_us)
            fields |= part.fields
            unknown = unknown or not (part.regular or part.even)
            even = even or part.even
            if part.regular:
                regular = max(regular, part.records)
            else:
                runs += part.runs
            if part.sends_samples:
                sent, sent_bits = max(sent, part.records), max(sent_bits, part.bits)
            else:
                apart, bits = apart + part.records, bits + part.bits
        records, most = apart + sent, self._pricing.style.samples_per_packet
        if patience_us and not unknown and not even:
            most = max(1, min(most, math.floor(sum(part.records for part in parts) * patience_us / 1e6 + 1e-6)))
        packets = records / most
        # From one window to the next it is no longer than until a packet is full after the pause between them.
        waits_s = most / max(each.records for each in parts)
        if patience_us and unknown:
            packets = max(packets, min(records, max(runs, regular)))
            waits_s = 1 / packets
        listens = 1 / (self._every_s + min(self._every_s, waits_s))
        asks = max(0.0, listens - records)
        looking, rates = self._looking(tick_us, fields)
        sending = packets * rates.packet + (bits + sent_bits) * rates.bit
        return looking + sending + asks * rates.ask + listens * rates.listen

    def _looking(self, tick_us: int, fields: int) -> tuple[float, _Rates]:
        """Return the draw of a mote that samples and sends nothing, and what sending adds."""
        key = (tick_us, fields)
        found = self._looks.get(key)
        if found is None:
            profile = self._profile
            asleep = profile.rests_asleep(tick_us)
            rates = _rates(profile, self._attempts, self._pricing.style.listen.for_us, asleep=asleep)
            rest = float(resting_mw(profile, tick_us).sum())
            sample = _above(sample_cost(profile, fields.bit_count(), tick_us), rest)
            found = self._looks[key] = rates.always + sample * 1e6 / tick_us, rates
        return found

    def _of_part(self, part: Part) -> PartCost:
        pricing = self._pricing
        program = assembled((part,), pricing.sensor.order, pricing.style, 1)
        shares, observed = pricing.shares(part), pricing.observed
        workload = Workload(observed.vehicles_per_second, shares.kept, shares.changed, observed.loss, shares.following)
        records, bits = records_of(program, workload)
        most = max(1, min(pricing.style.samples_per_packet, most_records(pricing.sensor.profile, program)))
        runs = records / most
        if part.report is None and part.bands:
            runs = records * (1 - shares.following) / (1 - shares.following**most)
        looked_at = sum(self._order[name] for name in part.fields)
        if isinstance(part.report, VehicleEvents):
            records = min(records, observed.vehicles_per_second)
        regular = is_regular(program)
        even = sends_all(program, shares)
        return PartCost(looked_at, part.every_us, sends_samples(part), regular, even, records, runs, records * bits)


@lru_cache(maxsize=256)
def _rates(profile: DeviceProfile, attempts: float, listen_us: float, *, asleep: bool) -> _Rates:
    pause_us = max(1.0, profile.processor.sleeps_from_us) if asleep else 0.0
    rest = float(resting_mw(profile, pause_us).sum())
    empty = _above(reporting_cost(profile, 0.0, attempts), rest)
    longest = int(profile.radio.max_payload_bytes) * 8
    # Airtime may go in steps: of all lengths that with the least for a bit.
    lengths = range(_STEP_BITS, max(longest, _STEP_BITS) + 1, _STEP_BITS)
    bit = min((_above(reporting_cost(profile, float(each), attempts), rest) - empty) / each for each in lengths)
    always = float(always_mw(profile).sum()) + rest
    if profile.clock.synchronise_every_seconds:
        always += _above(synchronisation_cost(profile), rest) / profile.clock.synchronise_every_seconds
    asking = _above(packet_cost(profile, profile.radio.health_bits, attempts), rest)
    return _Rates(always, empty, max(0.0, bit), asking, _above(listen_cost(profile, listen_us), rest))


def _above(cost: Cost, rest_mw: float) -> float:
    """Return what doing something once a second adds to the draw of a mote that rests."""
    return float(cost.joules.sum()) * 1e3 - rest_mw * cost.busy_us / 1e6

"""What has to be known of a part to say what programs with it cost at least."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.acquisition.parts import assembled, sends_samples
from protocols.acquisition.pricing import Pricing
from protocols.power.estimate import Workload, is_regular, records_of, sends_all
from protocols.power.payload import VALUE_BITS, part_record_bits
from protocols.wire.programs import Part


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
    regular_us
        How far apart its records are, if it is known when they come; else 0.
    even
        Whether nobody knows, but they come as regularly: every sample has changed.
    records
        How many it sends per second.
    following
        Of records that come in runs: how likely one is followed by the next; else 0.
    in_runs
        Whether its records come in runs.
    most, most_covered
        How many of its records fit into a packet, if the deployer allows; and where another part may send its samples.
    bits, bits_beside, bits_covered
        Of its records, per second: alone, beside another part, and where another part may send its samples.
    late
        By what part of the time between them its records may be late: intervals end between two samples.
    """

    fields: int
    every_us: int
    sends_samples: bool
    regular_us: int
    even: bool
    records: float
    following: float
    in_runs: bool
    most: int
    most_covered: int
    bits: float
    bits_beside: float
    bits_covered: float
    late: float


def part_cost(part: Part, pricing: Pricing) -> PartCost:
    """Return what has to be known of a part of programs that are priced so."""
    sensor, observed, shares = pricing.sensor, pricing.observed, pricing.shares(part)
    program = assembled((part,), sensor.order, pricing.style, 1)
    workload = Workload(observed.vehicles_per_second, shares.kept, shares.changed, observed.loss, shares.following)
    records, bits = records_of(program, workload)
    interval_us = program.interval_us or program.period_us
    in_runs = part.report is None and bool(part.bands)
    # A part that sends all samples, these among them, need not say when each was taken.
    covered_bits = len(part.fields) * VALUE_BITS if in_runs else bits
    payload_bits = sensor.profile.radio.max_payload_bytes * 8
    return PartCost(
        fields=sum(1 << sensor.order.index(name) for name in part.fields),
        every_us=part.every_us,
        sends_samples=sends_samples(part),
        regular_us=interval_us if is_regular(program) else 0,
        even=sends_all(program, shares),
        records=records,
        following=shares.following if in_runs else 0.0,
        in_runs=in_runs,
        most=max(1, min(pricing.style.samples_per_packet, int(payload_bits // bits))),
        most_covered=max(1, min(pricing.style.samples_per_packet, int(payload_bits // covered_bits))),
        bits=records * bits,
        bits_beside=records * part_record_bits(program),
        bits_covered=records * covered_bits,
        late=part.every_us / interval_us if interval_us % part.every_us else 0.0,
    )

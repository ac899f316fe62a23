"""Figures of a report for lower bounds of the cost of programs with it."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.acquisition.pricing import Pricing
from protocols.acquisition.program_reports import assembled, sends_samples
from protocols.power.estimate import Workload, is_regular, records_of, sends_all
from protocols.power.payload import VALUE_BITS, report_record_bits
from protocols.wire.programs import ProgramReport


@dataclass(frozen=True, slots=True)
class ReportCost:
    """Figures that determine lower bounds of the cost of programs with a report.

    Parameters
    ----------
    fields
        The fields that it reads, as bits of a number.
    every_us
        Its period.
    sends_samples
        Whether it sends samples; reports that do may share one.
    regular_us
        The time between its records, if their times are known; else 0.
    even
        Whether their times are not known but as regular: every sample has changed.
    records
        Records per second.
    following
        Of records in runs: the probability that one is followed by the next; else 0.
    in_runs
        Whether its records come in runs.
    most, most_covered
        How many of its records fit into a packet, if the deployer allows; and if another report may send its samples.
    bits, bits_beside, bits_covered
        Of its records, per second: alone, beside another report, and where another report may send its samples.
    late
        The share of their period by which its records may be late: intervals end between two samples.
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


def report_cost(report: ProgramReport, pricing: Pricing) -> ReportCost:
    """Return the figures of a report, priced as programs are."""
    sensor, observed, shares = pricing.sensor, pricing.observed, pricing.shares(report)
    program = assembled((report,), sensor.order, pricing.style, 1)
    workload = Workload(observed.vehicles_per_second, shares.kept, shares.changed, observed.loss, shares.following)
    records, bits = records_of(program, workload)
    interval_us = program.interval_us or program.period_us
    in_runs = report.kind is None and bool(report.bands)
    # A report that sends all samples, these among them, need not state when each was taken.
    covered_bits = len(report.fields) * VALUE_BITS if in_runs else bits
    payload_bits = sensor.profile.radio.max_payload_bytes * 8
    return ReportCost(
        fields=sum(1 << sensor.order.index(name) for name in report.fields),
        every_us=report.every_us,
        sends_samples=sends_samples(report),
        regular_us=interval_us if is_regular(program) else 0,
        even=sends_all(program, shares),
        records=records,
        following=shares.following if in_runs else 0.0,
        in_runs=in_runs,
        most=max(1, min(pricing.style.samples_per_packet, int(payload_bits // bits))),
        most_covered=max(1, min(pricing.style.samples_per_packet, int(payload_bits // covered_bits))),
        bits=records * bits,
        bits_beside=records * report_record_bits(program),
        bits_covered=records * covered_bits,
        late=report.every_us / interval_us if interval_us % report.every_us else 0.0,
    )

"""Lower bounds of the cost of programs: cheap to compute, so that most programs need not be priced.

Every figure here is a lower bound of one of the energy model (:mod:`protocols.power.estimate`), term by term, for any
number k of records per packet that may be tried. With R records, P packets with records, A polling packets and L listen
windows a second, and at least T seconds between two windows:

* P >= R / k: no packet holds more than k records.
* L >= 1 / (T + min(T, w)): the next window follows the first packet after T seconds, which is full after w seconds at
  the latest, when the fastest report has sent k records; or else a polling packet after T more.
* P + A >= L and P + A >= R / k: every window follows a packet of its own.
* Records wait for a full packet only if the time when it is full is known, or within their patience; so polling packets
  carry no records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from protocols.acquisition.pricing import Pricing
from protocols.acquisition.program_reports import assembled, sends_samples
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
from protocols.power.listening import MOST_INSTANTS, impatient_packets, instants_per_second
from protocols.power.payload import VALUE_BITS, report_record_bits
from protocols.power.profiles import DeviceProfile
from protocols.wire.programs import MOST_PER_PACKET, MOST_REPORTS, ProgramReport

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


_FEWEST_INSTANTS = MOST_INSTANTS - MOST_PER_PACKET - MOST_REPORTS
"""Records in the period that the energy model simulates, without those at its edges."""
_EDGES = 1 + MOST_REPORTS / _FEWEST_INSTANTS
"""The factor by which it may find more packets there than in the long run, because all reports begin at once."""


class LeastCost:
    """Lower bounds of the costs of one sensor's programs."""

    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        self._every_s = pricing.style.listen.every_us / 1e6
        self._attempts = mean_attempts(pricing.sensor.profile, pricing.observed.loss)
        self._activities: dict[tuple[int, int], tuple[ActivityCosts, ...]] = {}
        self._reports: dict[ProgramReport, ReportCost] = {}

    def report(self, report: ProgramReport) -> ReportCost:
        """Return the cost figures of a report."""
        found = self._reports.get(report)
        if found is None:
            found = self._reports[report] = report_cost(report, self._pricing)
        return found

    def with_more(self, reports: Sequence[ReportCost]) -> float:
        """Return a lower bound of the draw of all programs with these reports and perhaps others.

        More reports make more records, bits, packets and windows, and sample no less often; but packets with records of
        others may replace polling packets. How long records may wait is not known.

        Parameters
        ----------
        reports
            At least one. The samples of some may be sent by others, given or to be added.
        """
        sums = _summed(reports, covered=True)
        listens = 1 / (self._every_s + min(self._every_s, sums.wait_s(sums.most)))
        packets = max(sums.packets(sums.most), listens)
        return min(
            activity.looking
            + max(packets * min(line.packet, activity.poll) + sums.bits * line.bit for line in activity.packets)
            + listens * activity.listen
            for activity in self._of_activities(sums)
        )

    def milliwatts(self, reports: Sequence[ReportCost], patience_us: int) -> float:
        """Return a lower bound of the draw of the program of these reports.

        Parameters
        ----------
        reports
            At least one: all of the program, except those whose samples another report sends.
        patience_us
            How long records may wait.
        """
        sums = _summed(reports, covered=False)
        activity = self._of_activities(sums)[0]
        if all(report.regular_us for report in reports):
            return activity.looking + self._regular(sums, activity, patience_us / 1e6)
        impatient = self._impatient(reports, sums.most, patience_us / 1e6)
        if all(report.regular_us or report.even for report in reports):
            return activity.looking + self._even(sums, activity, patience_us / 1e6, impatient)
        # One record per packet, or packets that are sent before they are full; in both cases windows are irregular.
        packets = max(sums.records / sums.most, min(sums.records, impatient))
        return activity.looking + self._irregular(packets, activity, sums.bits)

    def _irregular(self, packets: float, activity: ActivityCosts, bits: float) -> float:
        """Return a lower bound of the draw of packets that are independent of each other, at this rate or a higher one.

        As in :func:`protocols.power.listening.when_irregular` for packets of one record. More packets make more
        windows, and reduce polls by at most half their number: A = exp(-x) / (1 + (1 - exp(-x)) / x) / T with x = P T,
        whose slope lies between -1/2 and 0. So that more packets never seem to draw less, a poll counts as at most two
        packets.
        """
        silent = math.exp(-packets * self._every_s)
        window_s = self._every_s + ((1 - silent) / packets if packets > 0 else self._every_s)
        sending = max(
            packets * line.packet + silent / window_s * min(activity.poll, 2 * line.packet) + bits * line.bit
            for line in activity.packets
        )
        return sending + activity.listen / window_s

    def _regular(self, sums: _Sums, activity: ActivityCosts, patience_s: float) -> float:
        """Return a lower bound of the draw of packets at known times.

        If they are rare, the mote polls every T seconds, except the last time before a packet: A >= 1 / T - 2 P and
        L >= 1 / T - P.
        """
        most = max(1, min(sums.most, math.floor(sums.most_records * patience_s + 1e-6)))
        least, often = 1 / (self._every_s + min(self._every_s, sums.wait_s(most))), 1 / self._every_s
        from_, to = sums.packets(most), sums.most_records * _EDGES
        # The period that the energy model simulates may end just after a packet.
        edge = 1 + 1 / (MOST_INSTANTS // most - 1)
        # The bound is convex and piecewise linear in P: its minimum is at an end or where two pieces meet.
        bends = ((often - least) / edge, (often - least) / (2 * edge - 1), least, often / (2 * edge))
        places = [from_, to, *(bend for bend in bends if from_ < bend < to)]
        return max(
            min(
                packets * line.packet
                + max(0.0, least - packets, often - 2 * edge * packets) * activity.poll
                + max(least, often - edge * packets) * activity.listen
                for packets in places
            )
            + sums.bits * line.bit
            for line in activity.packets
        )

    def _even(self, sums: _Sums, activity: ActivityCosts, patience_s: float, impatient: float) -> float:
        """Return a lower bound of the draw of packets at even times, or of ones sent early, or of one record."""
        listens = 1 / (self._every_s + min(self._every_s, sums.wait_s(sums.most)))
        evenly = min(sums.most, math.floor(sums.most_records * patience_s + 1e-6) + 1)
        from_, to = sums.packets(evenly), sums.most_records * _EDGES
        if evenly < sums.most:
            from_ = min(from_, max(sums.records / sums.most, impatient))
        places = (from_, max(from_, min(listens, to)))
        return listens * activity.listen + max(
            min(packets * line.packet + max(0.0, listens - packets) * activity.poll for packets in places)
            + sums.bits * line.bit
            for line in activity.packets
        )

    def _impatient(self, reports: Sequence[ReportCost], most: int, patience_s: float) -> float:
        """Return the least number of packets, full ones and those whose records have waited long enough, as priced."""
        packets = 0.0
        for report in reports:
            if report.in_runs:
                packets += report.records * (1 - report.following) / (1 - report.following**most)
            elif not report.regular_us:
                packets += impatient_packets(report.records, most, patience_s)
        return packets + instants_per_second(tuple(sorted({report.regular_us for report in reports} - {0})))

    def _of_activities(self, sums: _Sums) -> tuple[ActivityCosts, ...]:
        """Return the costs of a mote that samples as these reports need, and of one that samples faster."""
        key = (sums.tick_us, sums.fields)
        found = self._activities.get(key)
        if found is None:
            sensor, listen = self._pricing.sensor, self._pricing.style.listen
            of = (sensor.profile, self._attempts, listen.for_us, sums.tick_us, sums.fields.bit_count())
            faster = costs_of_faster(*of)
            found = (activity_costs(*of), *(() if faster is None else (faster,)))
            self._activities[key] = found
        return found


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over several reports.

    Parameters
    ----------
    tick_us, fields
        The period at which a mote has to sample for them, and how many fields.
    most
        Records per packet.
    records, bits
        Per second at least, if samples of several reports are sent together.
    most_records
        Per second at most.
    fastest, fastest_late
        The rate of the report with the most records, and the share of their period by which they may be late.
    late
        How many records may be late at a time.
    """

    tick_us: int
    fields: int
    most: int
    records: float
    most_records: float
    bits: float
    fastest: float
    fastest_late: float
    late: float

    def wait_s(self, most: int) -> float:
        """Return how long this many records take at most."""
        return (most + self.fastest_late) / self.fastest if self.fastest > 0 else math.inf

    def packets(self, most: int) -> float:
        """Return the least number of packets a second with this many records, without late ones."""
        return self.records / most * (1 - max(0.0, self.late - 1) / _FEWEST_INSTANTS)


def _summed(reports: Sequence[ReportCost], *, covered: bool) -> _Sums:
    """Return the sums over reports, some of which others may cover."""
    tick_us, fields, most = 0, 0, MOST_PER_PACKET
    records = sent = bits = sent_bits = all_records = fastest = fastest_late = late = 0.0
    for report in reports:
        tick_us = math.gcd(tick_us, report.every_us)
        fields |= report.fields
        most = min(most, report.most_covered if covered else report.most)
        all_records += report.records
        late += report.late
        if report.records > fastest:
            fastest, fastest_late = report.records, report.late
        own_bits = report.bits if len(reports) == 1 else report.bits_beside
        report_bits = report.bits_covered if covered else own_bits
        if report.sends_samples:
            sent, sent_bits = max(sent, report.records), max(sent_bits, report_bits)
        else:
            records, bits = records + report.records, bits + report_bits
    return _Sums(
        tick_us, fields, most, records + sent, all_records, bits + sent_bits, fastest, fastest_late, late
    )  # fmt: skip

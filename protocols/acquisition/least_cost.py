"""What a program costs at least, however its packets fall: soon said, and most programs need not be priced for it.

Every figure here is a lower bound of one of the energy model (:mod:`protocols.power.estimate`), term by term, for any
number k of records to a packet that may be tried. With R records, P packets with records, A asking packets and L listen
windows a second, and T seconds between two windows at least:

* P >= R / k: no packet holds more than k records.
* L >= 1 / (T + min(T, w)): the next window follows the first packet after T seconds, which is full after w seconds at
  the latest, when the fastest part has sent k records; or else an asking packet after T more.
* P + A >= L and P + A >= R / k: every window follows a packet of its own.
* Records wait for a full packet only if it is known when it will be full, or not beyond their patience; so asking
  packets find none to take along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from protocols.acquisition.activity_costs import ActivityCosts, activity_costs, costs_of_faster
from protocols.acquisition.part_costs import PartCost, part_cost
from protocols.acquisition.pricing import Pricing
from protocols.power.estimate import mean_attempts
from protocols.power.listening import impatient_packets
from protocols.power.record_instants import MOST_INSTANTS, instants_per_second
from protocols.wire.programs import MOST_PARTS, MOST_PER_PACKET, Part

_FEWEST_INSTANTS = MOST_INSTANTS - MOST_PER_PACKET - MOST_PARTS
"""Records in the while that the energy model goes through, but for what falls off its edges."""
_EDGES = 1 + MOST_PARTS / _FEWEST_INSTANTS
"""So many times more packets may it find there than in the long run, because all parts begin at once."""


class LeastCost:
    """Lower bounds of the costs of one sensor's programs."""

    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        self._every_s = pricing.style.listen.every_us / 1e6
        self._attempts = mean_attempts(pricing.sensor.profile, pricing.observed.loss)
        self._activities: dict[tuple[int, int], tuple[ActivityCosts, ...]] = {}
        self._parts: dict[Part, PartCost] = {}

    def part(self, part: Part) -> PartCost:
        """Return what has to be known of a part."""
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = part_cost(part, self._pricing)
        return found

    def with_more(self, parts: Sequence[PartCost]) -> float:
        """Return what any program draws at least that does what these parts do, and perhaps more.

        More parts make more records, bits, packets and windows, and take samples no more rarely; but packets with the
        records of others may take the place of asking packets. How long records may wait is not known.

        Parameters
        ----------
        parts
            At least one. The samples of some may be sent by others, here or to come.
        """
        sums = _summed(parts, covered=True)
        listens = 1 / (self._every_s + min(self._every_s, sums.wait_s(sums.most)))
        packets = max(sums.packets(sums.most), listens)
        return min(
            activity.looking
            + max(packets * min(line.packet, activity.ask) + sums.bits * line.bit for line in activity.packets)
            + listens * activity.listen
            for activity in self._of_activities(sums)
        )

    def milliwatts(self, parts: Sequence[PartCost], patience_us: int) -> float:
        """Return what the program of these parts draws at least.

        Parameters
        ----------
        parts
            At least one; all there are, but for those whose samples another one sends.
        patience_us
            How long records may wait.
        """
        sums = _summed(parts, covered=False)
        activity = self._of_activities(sums)[0]
        if all(part.regular_us for part in parts):
            return activity.looking + self._regular(sums, activity, patience_us / 1e6)
        impatient = self._impatient(parts, sums.most, patience_us / 1e6)
        if all(part.regular_us or part.even for part in parts):
            return activity.looking + self._even(sums, activity, patience_us / 1e6, impatient)
        # One record to a packet, or packets that leave before they are full; in both cases windows fall irregularly.
        packets = max(sums.records / sums.most, min(sums.records, impatient))
        return activity.looking + self._irregular(packets, activity, sums.bits)

    def _irregular(self, packets: float, activity: ActivityCosts, bits: float) -> float:
        """Return what packets draw at least that come independently of each other, so often or more often.

        As :func:`protocols.power.listening.when_irregular` has it for packets of one record. More packets make more
        windows, and fewer asks by at most half as many as they are: A = exp(-x) / (1 + (1 - exp(-x)) / x) / T with
        x = P T, whose slope lies between -1/2 and 0. So that more packets never seem to draw less, an ask is taken to
        draw no more than two packets.
        """
        silent = math.exp(-packets * self._every_s)
        window_s = self._every_s + ((1 - silent) / packets if packets > 0 else self._every_s)
        sending = max(
            packets * line.packet + silent / window_s * min(activity.ask, 2 * line.packet) + bits * line.bit
            for line in activity.packets
        )
        return sending + activity.listen / window_s

    def _regular(self, sums: _Sums, activity: ActivityCosts, patience_s: float) -> float:
        """Return what packets draw at least of which it is known when they come.

        Where they are rare the mote asks every T seconds, but for the last time before a packet: A >= 1 / T - 2 P and
        L >= 1 / T - P.
        """
        most = max(1, min(sums.most, math.floor(sums.most_records * patience_s + 1e-6)))
        least, often = 1 / (self._every_s + min(self._every_s, sums.wait_s(most))), 1 / self._every_s
        from_, to = sums.packets(most), sums.most_records * _EDGES
        # The while that the energy model goes through may end just after a packet.
        edge = 1 + 1 / (MOST_INSTANTS // most - 1)
        # What follows is convex in P, made of straight pieces: it is least at an end or where two of them meet.
        bends = ((often - least) / edge, (often - least) / (2 * edge - 1), least, often / (2 * edge))
        places = [from_, to, *(bend for bend in bends if from_ < bend < to)]
        return max(
            min(
                packets * line.packet
                + max(0.0, least - packets, often - 2 * edge * packets) * activity.ask
                + max(least, often - edge * packets) * activity.listen
                for packets in places
            )
            + sums.bits * line.bit
            for line in activity.packets
        )

    def _even(self, sums: _Sums, activity: ActivityCosts, patience_s: float, impatient: float) -> float:
        """Return what packets draw at least that come evenly, or leave before they are full, or hold one record."""
        listens = 1 / (self._every_s + min(self._every_s, sums.wait_s(sums.most)))
        evenly = min(sums.most, math.floor(sums.most_records * patience_s + 1e-6) + 1)
        from_, to = sums.packets(evenly), sums.most_records * _EDGES
        if evenly < sums.most:
            from_ = min(from_, max(sums.records / sums.most, impatient))
        places = (from_, max(from_, min(listens, to)))
        return listens * activity.listen + max(
            min(packets * line.packet + max(0.0, listens - packets) * activity.ask for packets in places)
            + sums.bits * line.bit
            for line in activity.packets
        )

    def _impatient(self, parts: Sequence[PartCost], most: int, patience_s: float) -> float:
        """Return how many packets leave at least, full or because a record has waited long enough, as it is priced."""
        packets = 0.0
        for part in parts:
            if part.in_runs:
                packets += part.records * (1 - part.following) / (1 - part.following**most)
            elif not part.regular_us:
                packets += impatient_packets(part.records, most, patience_s)
        return packets + instants_per_second(tuple(sorted({part.regular_us for part in parts} - {0})))

    def _of_activities(self, sums: _Sums) -> tuple[ActivityCosts, ...]:
        """Return the costs of a mote that samples as these parts need it, and of one that does so all the faster."""
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
    """What several parts have in common, and what they come to at least.

    Parameters
    ----------
    tick_us, fields
        How often a mote has to sample for them, and what.
    most
        Records to a packet.
    records, bits
        Per second at least, where samples of several parts go out together.
    most_records
        Per second at most.
    fastest, fastest_late
        The rate of the part with the most records, and by what part of the time between them they may be late.
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
        """Return how long it takes at most until so many records have come."""
        return (most + self.fastest_late) / self.fastest if self.fastest > 0 else math.inf

    def packets(self, most: int) -> float:
        """Return how many packets a second there are at least of so many records, those that are late left out."""
        return self.records / most * (1 - max(0.0, self.late - 1) / _FEWEST_INSTANTS)


def _summed(parts: Sequence[PartCost], *, covered: bool) -> _Sums:
    """Return the sums of parts, some of which may be covered by others or not."""
    tick_us, fields, most = 0, 0, MOST_PER_PACKET
    records = sent = bits = sent_bits = all_records = fastest = fastest_late = late = 0.0
    for part in parts:
        tick_us = math.gcd(tick_us, part.every_us)
        fields |= part.fields
        most = min(most, part.most_covered if covered else part.most)
        all_records += part.records
        late += part.late
        if part.records > fastest:
            fastest, fastest_late = part.records, part.late
        own_bits = part.bits if len(parts) == 1 else part.bits_beside
        part_bits = part.bits_covered if covered else own_bits
        if part.sends_samples:
            sent, sent_bits = max(sent, part.records), max(sent_bits, part_bits)
        else:
            records, bits = records + part.records, bits + part_bits
    return _Sums(
        tick_us, fields, most, records + sent, all_records, bits + sent_bits, fastest, fastest_late, late
    )  # fmt: skip

"""What operators take of a processor, by the price of each step (papers/pipes_costs.md section 4). Pure arithmetic.

**What operators spend per unit of time, by the price of each step (papers/pipes_costs.md section 4).**

Pure arithmetic over the algorithms of the thesis, which handle row by row: prices may be in any unit. What our own
operators spend, which handle batches, is at the end of this module; it is made of the same terms where the
algorithms agree.

Plans use only :func:`compared_by_join` of these; the others are kept as the reference that prices are held against
(decision 0063).

    us/s  =  batches/s (batch + kept rows x kept)  +  rows in/s x row_in  +  rows out/s x row_out  +  pairs/s x compared

Rows are per second of application time, which passes as real time does while processing keeps up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.costs.prices import Price
from cluster.operators.characteristics import (
    Characteristics,
    aggregated,
    coarsened,
    filtered,
    grouped,
    joined,
    kept_by_aggregate,
    united,
)


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """The prices of single steps (the symbol of the thesis in brackets).

    Parameters
    ----------
    predicate, function, create, output
        To evaluate a condition (C_P) or a function (C_F), to create a row (C_C), to append one to the output (C_O).
    hash, bucket, link, relink, expired
        Of a table of rows: to hash (C_H), to use a bucket (C_B), to use (C_L) or change (C_U) the order in which rows
        expire, to ask whether one has expired (C_R).
    queue, peek, empty
        Of the queue that puts output in order: to insert or extract (C_Q), to look at its first row (C_M), to ask
        whether it is empty (C_E).
    initialise, merge, evaluate
        Of an aggregate: to begin one (C_I), to add a value to one (C_M), to compute its result (C_E).
    group, find
        To compute the group of a row (C_G), to find it (C_A).
    insert, delete
        To insert a row in a list (C_I), to delete one (C_D).
    stamp, test
        To compute a stamp (C_S), to test whether an interval is empty (C_T).
    """

    predicate: float = 0.0
    function: float = 0.0
    create: float = 0.0
    output: float = 0.0
    hash: float = 0.0
    bucket: float = 0.0
    link: float = 0.0
    relink: float = 0.0
    expired: float = 0.0
    queue: float = 0.0
    peek: float = 0.0
    empty: float = 0.0
    initialise: float = 0.0
    merge: float = 0.0
    evaluate: float = 0.0
    group: float = 0.0
    find: float = 0.0
    insert: float = 0.0
    delete: float = 0.0
    stamp: float = 0.0
    test: float = 0.0


def cost_of_filter(flow: Characteristics, selectivity: float, price: UnitPrices) -> float:
    """Return what a filter spends."""
    return price.predicate * flow.rate + price.output * filtered(flow, selectivity).rate


def cost_of_map(flow: Characteristics, price: UnitPrices) -> float:
    """Return what a projection spends."""
    return (price.function + price.create + price.output) * flow.rate


def cost_of_union(flows: Sequence[Characteristics], price: UnitPrices) -> float:
    """Return what a union spends; the queue that keeps its output in order is left out."""
    return price.output * united(flows).rate


@dataclass(frozen=True, slots=True)
class JoinCost:
    """What a join spends to keep rows, to find partners, to make pairs, and to forget rows."""

    insert: float
    probe: float
    result: float
    purge: float

    @property
    def total(self) -> float:
        """All together."""
        return self.insert + self.probe + self.result + self.purge


def compared_by_join(left: Characteristics, right: Characteristics, buckets: tuple[float, float]) -> float:
    """Return how many pairs a join compares per unit of time: each new row with those in a bucket of the other side."""
    return left.rate * right.rate * (right.validity / buckets[1] + left.validity / buckets[0])


def cost_of_join(
    left: Characteristics,
    right: Characteristics,
    selectivity: float,
    price: UnitPrices,
    buckets: tuple[float, float] = (1, 1),
) -> JoinCost:
    """Return what a symmetric join spends; with one bucket each it compares all rows that are valid.

    Parameters
    ----------
    left, right
        The inputs.
    selectivity
        The share of pairs that are answers.
    price
        The prices.
    buckets
        In how many buckets the rows of each side are.
    """
    rate = left.rate + right.rate
    links = price.link * rate
    return JoinCost(
        insert=rate * (price.hash + price.bucket) + links,
        probe=compared_by_join(left, right, buckets) * price.predicate + rate * price.hash,
        result=joined(left, right, selectivity).rate * (price.function + price.output),
        purge=rate * (2 * price.expired + price.bucket) + links,
    )


def cost_of_distinct(flow: Characteristics, values: float, price: UnitPrices, buckets: float = 1) -> float:
    """Return what the elimination of duplicates spends, of so many different rows.

    Where a row comes again while it is valid, only its later end is kept, and results wait in a queue.
    """
    repeated = values * flow.distance <= flow.validity
    kept = values if repeated else flow.valid_rows
    probe = price.hash + price.predicate * kept / buckets
    if repeated:
        rest = (
            price.expired
            + (price.hash + price.bucket + price.relink + price.create + price.queue)
            + (2 * (price.empty + price.peek) + price.queue + price.output)
        )
    else:
        rest = (
            (2 * price.expired + price.bucket + price.link)
            + (price.hash + price.bucket + price.link + price.output)
            + price.empty
        )
    return (probe + rest) * flow.rate


@dataclass(frozen=True, slots=True)
class AggregateCost:
    """What an aggregate spends to begin partial aggregates, to bring them up to date, and to answer them."""

    begin: float
    update: float
    extract: float

    @property
    def total(self) -> float:
        """All together."""
        return self.begin + self.update + self.extract


def cost_of_aggregate(flow: Characteristics, price: UnitPrices) -> AggregateCost:
    """Return what an aggregate of all rows spends: each new row changes all partial aggregates that are kept."""
    overlapping = flow.distance < flow.validity
    answers = aggregated(flow).rate
    answered = price.expired + price.evaluate + price.link + price.output
    extract = answered * answers + price.expired * flow.rate
    if not overlapping:
        begin = (price.create + price.initialise + price.link) * flow.rate
        return AggregateCost(begin, price.predicate * flow.rate, extract)
    begin = (2 * price.create + price.initialise + 2 * price.link) * answers / 2
    changed = kept_by_aggregate(flow) * (price.predicate + price.create + price.merge + price.link)
    return AggregateCost(begin, changed * flow.rate, extract)


@dataclass(frozen=True, slots=True)
class GroupsCost:
    """What an aggregate of groups spends to update them, to gather answers, and to put these in order."""

    update: float
    gather: float
    transfer: float

    @property
    def total(self) -> float:
        """All together."""
        return self.update + self.gather + self.transfer


def cost_of_groups(flow: Characteristics, groups: float, price: UnitPrices) -> GroupsCost:
    """Return what an aggregate of each of so many groups spends."""
    one = replace(flow, distance=flow.distance * groups)
    of_one = cost_of_aggregate(one, price)
    answers = grouped(flow, groups).rate
    waiting = price.empty + price.peek if one.distance < one.validity else price.empty
    return GroupsCost(
        update=(price.group + price.find) * flow.rate + groups * (of_one.begin + of_one.update),
        gather=(price.empty + price.peek + price.find + 3 * price.queue + price.create) * answers
        + groups * of_one.extract,
        transfer=(price.empty + price.peek + price.queue) * answers + waiting * flow.rate,
    )


def cost_of_split(flow: Characteristics, longest: float, price: UnitPrices) -> float:
    """Return what it costs to cut rows into pieces of a length."""
    cut = price.stamp + price.create
    if longest >= flow.validity:
        return (price.stamp + price.output + price.expired) * flow.rate
    piece = cut + 2 * price.queue + price.empty + price.output
    pieces = flow.validity / longest
    return (price.insert + cut + pieces * piece + 2 * price.expired + price.delete) * flow.rate


def cost_of_granularity(flow: Characteristics, granule: float, price: UnitPrices) -> float:
    """Return what it costs to round stamps to a granularity that differs."""
    rounded = coarsened(flow, granule)
    return (2 * price.stamp + price.test) * flow.rate + (price.create + price.output) * rounded.rate


def cost_of_time_window(flow: Characteristics, price: UnitPrices) -> float:
    """Return what a window of time spends."""
    return (price.stamp + price.create + price.output) * flow.rate


def cost_of_count_window(flow: Characteristics, price: UnitPrices) -> float:
    """Return what a window of the last rows spends."""
    return (price.expired + price.delete + price.create + price.output + price.insert) * flow.rate


def cost_of_partitioned_window(flow: Characteristics, price: UnitPrices) -> float:
    """Return what a window of the last rows of each key spends."""
    found = price.group + price.find
    moved = price.predicate + price.create + price.queue + price.delete + price.insert + price.queue
    answered = 2 * (price.empty + price.peek) + price.queue + price.output
    return (found + moved + answered) * flow.rate


SECOND_US = 1_000_000
BATCHES_PER_SECOND = 1.0
"""How often a running plan is given rows, unless that is known."""


def work_us(
    price: Price,
    below: Sequence[Characteristics],
    flow: Characteristics,
    kept: float,
    *,
    compared: float = 0.0,
    batches: float = BATCHES_PER_SECOND,
) -> float:
    """Return the microseconds of a processor that an operator takes in a second.

    Parameters
    ----------
    price
        What its steps cost.
    below, flow
        Its inputs, and what it makes of them, in microseconds.
    kept
        Rows that it keeps; if these become ever more, its work does.
    compared
        Pairs of rows that it compares in a second.
    batches
        How many it is given in a second.
    """
    rows_in = sum(each.rate for each in below) * SECOND_US
    gone_through = kept * price.kept if price.kept else 0.0
    own = batches * (price.batch + gone_through) + rows_in * price.row_in + flow.rate * SECOND_US * price.row_out
    return own + (compared * price.compared if price.compared else 0.0)


def compared_per_second(left: Characteristics, right: Characteristics, keys: float) -> float:
    """Return how many pairs a join compares in a second, with so many different keys; each row is valid for a while."""
    if math.isinf(left.validity) or math.isinf(right.validity):
        return math.inf
    return compared_by_join(left, right, (keys, keys)) * SECOND_US

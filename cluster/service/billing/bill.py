"""The bill for the energy of motes: each running query's fair share of what motes draw and have spent.

What a set of queries costs a mote is the draw of the program merged from their demands, less what it draws asleep; each
query pays its Shapley value in this game (:mod:`cluster.service.billing.shapley`). What a mote draws asleep is
shared by all.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cluster.service.billing.energy import Demands, Kind, asleep_mw, kind_of, milliwatts_of, styles_of
from cluster.service.billing.energy_report import Figure, figure
from cluster.service.billing.shapley import Method, shapley
from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import DemandClass, FoldedDemands, fold_demands
from protocols.acquisition.program_reports import has_energy_model
from protocols.wire.catalog import MoteEntry
from protocols.wire.demands import QueryDemand
from protocols.wire.streams import StreamSchema


class QueryBill(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one query.

    Parameters
    ----------
    query, motes
        Its name, and how many motes it demands something of.
    milliwatts, milliwatts_share
        Of what all motes draw by the model, now.
    joules, joules_share
        Of what motes have spent.
    """

    query: str
    motes: int
    milliwatts: Figure
    milliwatts_share: float
    joules: float
    joules_share: float


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """The bill. All parts of a sum add up to it.

    Parameters
    ----------
    since_us
        When the first mote reported what it has spent; None if none has.
    motes, measured_motes
        How many there are with an energy model, and how many have reported what they have spent.
    queries
        Those that run, the most expensive first.
    everybody_milliwatts, everybody_joules
        What motes draw and have drawn in sleep, whatever queries demand.
    ended_joules
        What was spent for queries that have ended.
    unbilled_joules
        What was spent and cannot be divided.
    milliwatts, joules
        In all.
    expected_joules
        What should have been spent by the estimates of proxies.
    methods
        In how many motes shares were found in which way.
    impossible_motes
        How many motes cannot run what queries demand, by the model; they are in no sum of milliwatts.
    implausible_reports
        How often a mote reported to have spent more than it can; that counts as the most it can.
    without_model
        How many devices of other makers there are besides: on mains, or no model says what they draw. They are in no
        sum.
    """

    since_us: int | None
    motes: int
    measured_motes: int
    queries: tuple[QueryBill, ...]
    everybody_milliwatts: Figure
    everybody_joules: float
    ended_joules: float
    unbilled_joules: float
    milliwatts: Figure
    joules: float
    expected_joules: float
    methods: dict[str, int]
    impossible_motes: int
    implausible_reports: int = 0
    without_model: int = 0


MOST_CACHED = 4_096
"""Kinds of mote, each with its demanding queries, whose shares are cached."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a mote's draw is divided among queries, in milliwatts.

    Parameters
    ----------
    asleep
        What it would draw without any query.
    queries
        The fair share of each query in the rest.
    method
        How shares were found.
    """

    asleep: float
    queries: Mapping[str, float]
    method: Method

    @property
    def total(self) -> float:
        """The mote's total draw."""
        return self.asleep + math.fsum(self.queries.values())


class Splitter:
    """Divides the draw of motes; caches the shares for motes that are alike."""

    def __init__(self, *, most: int = MOST_CACHED) -> None:
        self._most = most
        self._known: OrderedDict[object, Split | None] = OrderedDict()

    def split(self, kind: Kind, schema: StreamSchema | None, classes: Sequence[DemandClass]) -> Split | None:
        """Return how the draw of a mote is divided; None if it cannot run what some query needs.

        Parameters
        ----------
        kind
            Its kind.
        schema
            Of its stream; None if it is unknown, and then no query demands it.
        classes
            The demands that concern it.
        """
        key = kind, schema, tuple(classes)
        if key not in self._known:
            self._known[key] = _split(kind, schema, classes)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]


def _split(kind: Kind, schema: StreamSchema | None, classes: Sequence[DemandClass]) -> Split | None:
    by_query: dict[str, list[QueryDemand]] = {}
    for each in classes:
        for query in each.queries:
            # The mote has been found to be one of the sensors it concerns.
            by_query.setdefault(query, []).append(msgspec.structs.replace(each.demand, sensors=()))
    alike: dict[frozenset[QueryDemand], list[str]] = {}
    for query, demands in sorted(by_query.items()):
        alike.setdefault(frozenset(demands), []).append(query)
    players = sorted(alike, key=lambda demands: sorted(map(repr, demands)))
    asleep = asleep_mw(kind.traits.profile)
    costs: dict[frozenset[int], float] = {}

    def cost(chosen: frozenset[int]) -> float:
        if chosen not in costs:
            demands = [demand for number in sorted(chosen) for demand in players[number]]
            folded = FoldedDemands() if schema is None else fold_demands(demands, schema)
            merged = Merger(folded, kind.style).merge(kind.traits, {})
            costs[chosen] = milliwatts_of(merged, kind.traits.profile) - asleep
        return costs[chosen]

    shares, method = shapley(cost, [len(alike[player]) for player in players])
    if not all(map(math.isfinite, shares)):
        return None
    shares_by_query = {query: share for player, share in zip(players, shares, strict=True) for query in alike[player]}
    return Split(asleep, shares_by_query, method)


@dataclass(frozen=True, slots=True)
class Spent:
    """Energy that motes spent since `since_us`, divided; how many motes reported it, and the amount expected.

    By `implausible_reports` a mote has spent more than it can.
    """

    divided: Divided
    since_us: int | None = None
    measured_motes: int = 0
    expected_joules: float = 0.0
    implausible_reports: int = 0


@dataclass(slots=True)
class Divided:
    """Energy drawn by motes: the part of each query, the part shared by all, and the part that cannot be divided."""

    queries: dict[str, float] = field(default_factory=dict)
    shared: float = 0.0
    unknown: float = 0.0

    def add(self, other: Divided) -> None:
        """Add another amount to this one."""
        for query, amount in other.queries.items():
            self.queries[query] = self.queries.get(query, 0.0) + amount
        self.shared += other.shared
        self.unknown += other.unknown

    @property
    def total(self) -> float:
        """The total amount."""
        return math.fsum((*self.queries.values(), self.shared, self.unknown))


def splits_of(
    entries: Sequence[MoteEntry], demands: Demands, schemas: Mapping[str, StreamSchema], splitter: Splitter
) -> list[Split | None]:
    """Return how the draw of each mote is divided."""
    styles = styles_of(entries)
    folded = {name: fold_demands(demands.get(name, ()), schema) for name, schema in schemas.items()}
    nothing = FoldedDemands()
    known: dict[tuple[Kind, tuple[int, ...]], Split | None] = {}
    found = []
    for entry in entries:
        demanded = folded.get(entry.stream, nothing)
        key = kind_of(entry, styles), demanded.concerning(entry.properties)
        if key not in known:
            kind, places = key
            known[key] = splitter.split(kind, demanded.schema, [demanded.classes[place] for place in places])
        found.append(known[key])
    return found


def divide(
    spent: Sequence[tuple[MoteEntry, float]],
    demands: Demands,
    schemas: Mapping[str, StreamSchema],
    splitter: Splitter,
) -> Divided:
    """Divide the energy that motes have spent in the proportions in which the model divides their draw.

    Parameters
    ----------
    spent
        Motes, each with its joules.
    demands, schemas
        Of the queries that ran then.
    splitter
        Divides one mote's draw.
    """
    divided = Divided()
    splits = splits_of([entry for entry, _ in spent], demands, schemas, splitter)
    for (_, joules), split in zip(spent, splits, strict=True):
        if split is None or split.total <= 0:
            divided.unknown += joules
            continue
        factor = joules / split.total
        shares = {query: share * factor for query, share in split.queries.items()}
        divided.add(Divided(shares, split.asleep * factor))
    return divided


def make_bill(
    entries: Sequence[MoteEntry],
    demands: Demands,
    schemas: Mapping[str, StreamSchema],
    splitter: Splitter,
    spent: Spent,
) -> Bill:
    """Return the bill.

    Parameters
    ----------
    entries
        All motes. Those without an energy model are counted only.
    demands, schemas
        Of the queries that run; a query without a demand is not on the bill.
    splitter
        Divides a mote's draw.
    spent
        What motes have spent so far, divided.
    """
    drawn, errors = Divided(), Divided()
    known = [entry for entry in entries if has_energy_model(entry)]
    without_model, entries = len(entries) - len(known), known
    motes: Counter[str] = Counter()
    methods: Counter[str] = Counter()
    splits = splits_of(entries, demands, schemas, splitter)
    for entry, split in zip(entries, splits, strict=True):
        if split is None:
            continue
        one = Divided(dict(split.queries), split.asleep)
        drawn.add(one)
        margin = kind_of(entry, {}).traits.profile.uncertainty
        errors.add(Divided({query: share * margin for query, share in one.queries.items()}, one.shared * margin))
        motes.update(split.queries.keys())
        if split.queries:
            methods[split.method.value] += 1
    joules = spent.divided
    running = sorted({demand.query for each in demands.values() for demand in each})
    return Bill(
        since_us=spent.since_us,
        motes=len(entries),
        measured_motes=spent.measured_motes,
        queries=tuple(
            sorted(
                (
                    QueryBill(
                        query=query,
                        motes=motes[query],
                        milliwatts=_figure(drawn.queries.get(query, 0.0), errors.queries.get(query, 0.0)),
                        milliwatts_share=_share(drawn.queries.get(query, 0.0), drawn.total),
                        joules=joules.queries.get(query, 0.0),
                        joules_share=_share(joules.queries.get(query, 0.0), joules.total),
                    )
                    for query in running
                ),
                key=lambda each: (-each.milliwatts.value, each.query),
            )
        ),
        everybody_milliwatts=_figure(drawn.shared, errors.shared),
        everybody_joules=joules.shared,
        ended_joules=math.fsum(amount for query, amount in joules.queries.items() if query not in set(running)),
        unbilled_joules=joules.unknown,
        milliwatts=_figure(drawn.total, errors.total),
        joules=joules.total,
        expected_joules=spent.expected_joules,
        methods=dict(methods),
        impossible_motes=sum(split is None for split in splits),
        implausible_reports=spent.implausible_reports,
        without_model=without_model,
    )


def _figure(value: float, margin: float) -> Figure:
    """Return a sum with its error band; `margin` is the total error of its terms."""
    return figure(value, abs(margin / value) if value else 0.0)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

"""Whether queries fit beside those that run: rows and texts they make, columns of aggregates, state, their demands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

from cluster.costs.selectivity import Sizes
from cluster.errors import blamed
from cluster.fjord.acceptance import (
    ColumnLimitError,
    RowLimitError,
    RowLimits,
    TextLimitError,
    aggregate_columns,
    check_columns,
    check_rows,
    check_texts,
    made_by,
    made_per_second,
)
from cluster.fjord.long_texts import characters_per_second
from cluster.fjord.upper_estimates import StateLimitError, bytes_kept_by, check_state, state_bytes
from cluster.ingest.service import Ingest
from cluster.physical.lowering import lower, with_handover, with_query
from cluster.physical.nodes import Fragment, PhysicalPlan, SensorDemands
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.service.catalog.planning import AT_ONCE, Planning
from cluster.service.publishing.published_demands import PublishedDemands
from cluster.service.registry.registry import Registry
from protocols.text.quantities import format_byte_size
from protocols.wire.catalog import DeviceEntry, MoteEntry
from protocols.wire.demands import QueryDemand
from protocols.wire.packets import SampleValue

STEADY = 0.1
"""Estimates are made anew when the rate of a stream has changed by more than this share; until then, sums hold."""


Measure = Callable[[PhysicalPlan, Mapping[str, float]], float]
"""What is limited: of a plan, at these tuples per second of its streams."""


class QueryLimits:
    """The limits on all queries together.

    Parameters
    ----------
    registry
        The queries that run.
    ingest
        The streams, and how many tuples they bring.
    demands
        What is demanded of sensors; it follows the queries that run.
    planning
        Where this is computed.
    rows
        Limits on rows, on columns of aggregates, and on characters of long texts.
    max_state_bytes
        Queries with which the plan would keep more state than this are refused.
    sizes
        Returns the sizes of relations, by identity.
    entries
        Returns the entries of all sensors.
    """

    def __init__(
        self,
        registry: Registry,
        ingest: Ingest,
        demands: PublishedDemands,
        planning: Planning,
        *,
        rows: RowLimits,
        max_state_bytes: int,
        sizes: Callable[[], Sizes],
        entries: Callable[[], Iterable[MoteEntry]] = tuple,
    ) -> None:
        self._registry = registry
        self._ingest = ingest
        self._demands = demands
        self._planning = planning
        self._rows = rows
        self._max_state_bytes = max_state_bytes
        self._sizes = sizes
        self._entries = entries
        self._steady_rates: dict[str, float] = {}

    async def check(self, query: PlannedQuery) -> None:
        """Raise unless rows, columns, texts, state and demands stay within their limits with a query.

        Raises
        ------
        RowLimitError, ColumnLimitError, TextLimitError, StateLimitError, DemandError, TooManyDemandsError
            If they do not.
        """
        running, rates = self._registry.physical, self.rates(query.node.streams)
        self._demands.follow(running.oldest_first)
        await self._planning.run(lambda: self._check(query, running, with_query(running, query), rates), internal=True)

    async def check_migration(self, old: PlannedQuery, new: PlannedQuery) -> None:
        """Raise unless rows, state and demands stay within their limits with both plans of a query; as for `check`.

        If all queries together make or keep too much already, as after a start with a smaller budget or when a stream
        has become faster, a plan that will make or keep less is no reason to raise, although both need more then.
        """
        running, rates = self._registry.physical, self.rates(new.node.streams)
        self._demands.follow(running.oldest_first)

        def check() -> None:
            both = with_handover(running, old, new, running.positions)
            self._check(new, running, both, rates, or_if=self._brings_down(running, old, new, rates))

        await self._planning.run(check, internal=True)

    def _brings_down(
        self, running: PhysicalPlan, old: PlannedQuery, new: PlannedQuery, rates: Mapping[str, float]
    ) -> Callable[[Measure, float], bool]:
        """Return whether too much of something is needed already, and less when a query goes on with another plan."""

        def brings_down(measure: Measure, limit: float) -> bool:
            needed = measure(running, rates)
            if needed <= limit:
                return False
            others = tuple(each for each in self._registry.plan.queries if each.name != old.name)
            return measure(lower(Plan(running.epoch + 1, (*others, new)), running), rates) < needed

        return brings_down

    async def check_together(self, queries: Sequence[PlannedQuery]) -> None:
        """Raise unless rows, state and demands stay within their limits with several queries.

        Raises
        ------
        OneOfManyError
            With the query, and the error as for :meth:`check`.
        """
        running = self._registry.physical
        streams = await self._planning.each(attrgetter("streams"), [each.node for each in queries])
        rates = self.rates(frozenset().union(*streams))
        self._demands.follow(running.oldest_first)
        plan = Plan(running.epoch + 1, (*self._registry.plan.queries, *queries))
        after = await self._planning.run(lambda: lower(plan, running), internal=True)

        def check(places: Sequence[int]) -> None:
            for place in places:
                with blamed(place):
                    self._check(queries[place], running, after, rates)

        for first in range(0, len(queries), AT_ONCE):
            places = range(first, min(first + AT_ONCE, len(queries)))
            await self._planning.run(partial(check, places), internal=True)

    def _check(
        self,
        query: PlannedQuery,
        running: PhysicalPlan,
        after: PhysicalPlan,
        rates: Mapping[str, float],
        *,
        or_if: Callable[[Measure, float], bool] = lambda _measure, _limit: False,
    ) -> None:
        """Raise unless a plan with a query stays within its limits; it does not have to where something holds."""
        subscriber = after.subscribers[query.identity]
        demanded = demanded_rates(subscriber.demands.streams, self._entries, rates)
        try:
            check_rows(running, after, query.identity, rates, self._rows, sizes=self._sizes(), demanded=demanded)
        except RowLimitError as error:
            if error.of_a_tuple or not or_if(made_per_second, self._rows.per_second):
                raise
        try:
            check_columns(running, after, self._rows.columns)
        except ColumnLimitError:
            if not or_if(_columns, self._rows.columns):
                raise
        most = self._rows.characters_per_second
        try:
            check_texts(running, after, query.identity, rates, most, demanded=demanded)
        except TextLimitError:
            if not or_if(characters_per_second, most):
                raise
        try:
            check_state(running, after, query.identity, rates, limit_bytes=self._max_state_bytes, demanded=demanded)
        except StateLimitError:
            if not or_if(state_bytes, self._max_state_bytes):
                raise
        self._demands.check(subscriber)

    def bounds_text(self, fragment: Fragment, rates: Mapping[str, float]) -> str:
        """Return in words what the queries of a fragment may need at most, beside what all together may.

        Parameters
        ----------
        fragment
            The fragment.
        rates
            Tuples per second of its streams, where they are known.
        """
        made, kept = made_by(fragment, rates, self._sizes()), bytes_kept_by(fragment, rates)
        return (
            f"  at most: {made:,.0f} rows made in a second, beside those that come, and {format_byte_size(kept)} of "
            f"state; all queries may make {self._rows.per_second:,} and keep {format_byte_size(self._max_state_bytes)}"
        )

    def rates(self, streams: frozenset[str]) -> Mapping[str, float]:
        """Return the tuples per second of streams, where they are known; the same while they hardly change."""
        known = self._registry.physical.streams | streams
        rates = {
            stream: table.tuples_per_second() for stream, table in self._ingest.tables().items() if stream in known
        }
        for stream, rate in rates.items():
            if rate is not None and not _about(self._steady_rates.get(stream), rate):
                self._steady_rates[stream] = rate
        return {stream: self._steady_rates[stream] for stream, rate in rates.items() if rate is not None}

    def rates_for(self, streams: frozenset[str], demands: SensorDemands) -> Mapping[str, float]:
        """Return the same, with what more the streams of a query will bring for its demands."""
        rates = self.rates(streams)
        return {**rates, **demanded_rates(demands.streams, self._entries, rates)}


def demanded_rates(
    demands: Iterable[tuple[str, Sequence[QueryDemand]]],
    entries: Callable[[], Iterable[MoteEntry]],
    tuples_per_second: Mapping[str, float],
) -> dict[str, float]:
    """Return what streams will bring for a query that lets sensors sample, or sample faster, in tuples per second.

    Without a period of the query, a sensor samples in its own; where no query asks, it may bring nothing now.

    Parameters
    ----------
    demands
        Those of the query, by stream.
    entries
        Returns the entries of all sensors. Devices that publish by their own rules do not become faster.
    tuples_per_second
        What the streams bring, where that is known; only those that will bring more are returned.
    """
    samples = {stream: sampled for stream, own in demands if (sampled := [each for each in own if each.panes is None])}
    if not samples:
        return {}
    found = dict.fromkeys(samples, 0.0)
    for entry in entries():
        own = samples.get(entry.stream, ())
        periods = [each.period_us or entry.default_period_us for each in own if _is_of(each, entry.properties)]
        if periods and not (isinstance(entry, DeviceEntry) and entry.publishes):
            found[entry.stream] += 1e6 / max(min(periods), entry.minimum_period_us, 1)
    return {stream: rate for stream, rate in found.items() if rate > tuples_per_second.get(stream, 0.0)}


def _is_of(demand: QueryDemand, properties: Mapping[str, SampleValue]) -> bool:
    """Return whether a query needs a sensor with these properties."""
    if not demand.sensors:  # as of most queries: this is asked of each sensor, for each query that is added
        return True
    fields = {each.field for each in demand.sensors}
    return all(
        any(band.holds(properties.get(field)) for band in demand.sensors if band.field == field) for field in fields
    )


def _columns(plan: PhysicalPlan, _: Mapping[str, float]) -> float:
    return aggregate_columns(plan)


def _about(known: float | None, now: float) -> bool:
    return known is not None and abs(now - known) <= STEADY * known

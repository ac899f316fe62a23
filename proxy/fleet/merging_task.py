"""Merging the demands on one stream for all its motes: data in, programs out, so that any thread may do it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event

from msgspec.structs import replace

from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import FoldedDemands, fold_demands
from protocols.acquisition.program_reports import SensorTraits
from protocols.acquisition.search import Searches
from protocols.wire.demands import QueryDemand, RefusedDemand, StreamDemand
from protocols.wire.frames import Value
from protocols.wire.streams import FieldName, StreamSchema, match_columns


@dataclass(frozen=True, slots=True)
class OfferedDemand:
    """The demands on a stream, by the column names of its motes.

    Parameters
    ----------
    demands
        One per query.
    schema
        The columns that may be demanded.
    """

    demands: tuple[QueryDemand, ...]
    schema: StreamSchema


def as_offered(demand: StreamDemand, offered: StreamSchema, proxy: str) -> OfferedDemand | RefusedDemand:
    """Return a demand by the column names that a proxy's motes offer; a rejection if the cluster stores others.

    For a rejected demand nothing is sampled: the cluster could not store the samples.

    Parameters
    ----------
    demand
        Of the cluster's queries.
    offered
        The schema that the motes announced.
    proxy
        Name of the proxy.
    """
    if demand.only is not None and demand.only != proxy:
        return RefusedDemand("*", f"stream {demand.stream!r} was created to be fed by proxy {demand.only!r}")
    if demand.declared is None:
        return OfferedDemand(demand.demands, offered)
    found = match_columns(demand.declared, offered)
    if not found.fits:
        return RefusedDemand("*", f"the cluster stores other columns: {'; '.join(found.reasons())}")
    names = {name: other for name, other in found.names.items() if name != other}
    demands = tuple(_renamed(each, names) for each in demand.demands) if names else demand.demands
    return OfferedDemand(demands, _without(offered, frozenset(found.ignored)))


def _without(offered: StreamSchema, ignored: frozenset[FieldName]) -> StreamSchema:
    """Return the columns left to sample; all if none is left, as a query may only count samples."""
    left = tuple(field for field in offered.fields if field.name not in ignored)
    if all(field.fixed for field in left) or len(left) == len(offered.fields):
        return offered
    return StreamSchema(offered.name, left)


def _renamed(demand: QueryDemand, names: Mapping[FieldName, FieldName]) -> QueryDemand:
    def other(name: FieldName) -> FieldName:
        return names.get(name, name)

    events = demand.events
    if events is not None:
        events = replace(events, threshold=replace(events.threshold, field=other(events.threshold.field)))
    return replace(
        demand,
        fields=tuple(sorted(map(other, demand.fields))),
        bands=tuple(replace(each, field=other(each.field)) for each in demand.bands),
        sensors=tuple(replace(each, field=other(each.field)) for each in demand.sensors),
        tolerances=tuple(replace(each, field=other(each.field)) for each in demand.tolerances),
        events=events,
    )


SensorKind = tuple[SensorTraits, Mapping[str, Value]]
"""What is known of a mote: its traits and fixed fields."""


@dataclass(frozen=True)
class MergingTask:
    """The demand on one stream, to be merged for its motes.

    Parameters
    ----------
    proxy
        Name of the proxy.
    schema
        Of the stream; None if it is not known.
    demand
        On the stream; None for none.
    searches
        What they remember is used, and added to.
    before
        What was merged until now.
    kinds
        Of all motes that feed the stream.
    """

    proxy: str
    schema: StreamSchema | None
    demand: StreamDemand | None
    searches: Searches
    before: Merger
    kinds: tuple[SensorKind, ...] = ()
    _unwanted: Event = field(default_factory=Event, init=False)

    def run(self) -> None:
        """Merge: afterwards the merger knows the program of each kind of mote."""
        for traits, properties in self.kinds:
            if self._unwanted.is_set():
                return
            self.merger.merge(traits, properties)

    def stop(self) -> None:
        """Let the thread that runs it return soon, from another thread; its result is not wanted any more."""
        self._unwanted.set()
        self.merger.hurry()

    @cached_property
    def merger(self) -> Merger:
        """The merger of the demand."""
        return Merger(self._folded(), self.before.style, searches=self.searches, before=self.before)

    def _folded(self) -> FoldedDemands:
        if self.schema is None or self.demand is None or not self.demand.demands:
            return FoldedDemands()
        offered = as_offered(self.demand, self.schema, self.proxy)
        if isinstance(offered, RefusedDemand):
            return FoldedDemands(refused=(offered,))
        return fold_demands(offered.demands, offered.schema)

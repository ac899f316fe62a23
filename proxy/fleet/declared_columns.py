"""A demand by the column names of the motes, or a rejection if the cluster stores other columns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from protocols.wire.column_matching import match_columns
from protocols.wire.demands import QueryDemand, RefusedDemand, StreamDemand
from protocols.wire.streams import FieldName, StreamSchema


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

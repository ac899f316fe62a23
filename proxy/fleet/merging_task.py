"""Merging the demands on one stream for all its motes: data in, programs out, so that any thread may do it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event

from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import FoldedDemands, fold_demands
from protocols.acquisition.searches import Searches
from protocols.acquisition.sensor_traits import SensorTraits
from protocols.wire.demands import RefusedDemand, StreamDemand
from protocols.wire.frames import Value
from protocols.wire.streams import StreamSchema
from proxy.fleet.declared_columns import as_offered

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

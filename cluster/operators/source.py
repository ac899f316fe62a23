"""Streams: what a query reads of one, and what it allows, sees or needs of its samples."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Self, final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from cluster.operators.characteristics import NOT_KNOWN, Characteristics, Expected, Measured, filtered
from cluster.operators.columns import Schema
from cluster.operators.families import Instantaneous
from cluster.operators.lookup import TableLookup, lookup_words
from cluster.operators.node import Leaf, Node
from protocols.text.quantities import format_duration

MOST_READINGS = 1_000
"""Most streams and relations that a query may read, each counted as often as it is read."""


class Tolerance(msgspec.Struct, frozen=True):
    """The error a query's author allows on a field (``WITHIN``)."""

    field: str
    error: float


class Detector(msgspec.Struct, frozen=True):
    """Sees events in the samples of each sensor: from `field` rising to `above` until it falls to `below`."""

    field: str
    above: float
    below: float


class History(msgspec.Struct, frozen=True):
    """What a query reads of a stream's past before it goes on live (``SINCE``).

    Parameters
    ----------
    back_us
        How far before the stream's newest tuples it begins; None for all that is stored.
    begins_us
        The instant that this is: fixed when the query begins, None before.
    epoch
        The epoch with which the query begins. What it has read of the past no other query has, so nothing is folded
        with it.
    """

    back_us: Annotated[int, Meta(ge=1)] | None
    begins_us: int | None = None
    epoch: int = 0


class Unchanged(msgspec.Struct, frozen=True):
    """Whether samples that equal the one before may stay away, as a query only asks what held for how long.

    Parameters
    ----------
    silence_us
        For how long; 0 if each is needed.
    why_not
        Why it is; empty if it is not.
    """

    silence_us: Annotated[int, Meta(ge=0)]
    why_not: str = ""


@final
class Source(Instantaneous, Leaf, frozen=True, tag="Source"):
    """A base stream: each tuple is valid at its own instant only, ``[t, t + 1)``.

    ``sample_period_us`` (``SAMPLE``) keeps the tuples stamped at whole multiples of the period; None keeps all. With a
    `detector` (``EVENTS``), tuples are events, stamped where they begin. `slowest_us` (``AT LEAST EVERY``) is the
    longest period that will do, `lifetime_us` (``LIFETIME``) how long batteries should last; 0 is no such hint.
    """

    stream: str
    columns: Schema
    sample_period_us: Annotated[int, Meta(ge=1)] | None = None
    tolerances: tuple[Tolerance, ...] = ()
    occurrence: int = 0
    """Tells sources of a template with different conditions apart (cluster/physical/rules); 0 in a query."""
    slowest_us: Annotated[int, Meta(ge=0)] = 0
    lifetime_us: Annotated[int, Meta(ge=0)] = 0
    detector: Detector | None = None
    fixed: tuple[str, ...] = ()
    """Which of the stream's columns are properties of its sensors."""
    lookups: tuple[TableLookup, ...] = ()
    """Relations that each tuple is looked up in as it comes, one after the other; their columns are among `columns`."""
    history: History | None = None
    """Its past, if the query reads that first."""
    unchanged: Unchanged | msgspec.UnsetType = msgspec.UNSET
    """Set where it is read for what held until when: COALESCE, VALID UNTIL NEXT."""

    @property
    def found(self) -> frozenset[str]:
        """Names of the columns that are looked up."""
        return frozenset[str]().union(*(each.table.names for each in self.lookups if each.pairs))

    @property
    def sampled(self) -> Schema:
        """The columns of the stream itself."""
        found = self.found
        return tuple(column for column in self.columns if column.name not in found)

    @property
    def schema(self) -> Schema:
        """Its columns."""
        return self.columns

    @property
    def tables(self) -> tuple[Node, ...]:
        """Those its tuples are looked up in."""
        return tuple(each.table for each in self.lookups)

    @property
    def streams(self) -> frozenset[str]:
        """Itself."""
        return frozenset((self.stream,))

    def describe(self) -> str:
        """Return one line about it, with its lookups."""
        sample = "" if self.sample_period_us is None else f", sampled every {format_duration(self.sample_period_us)}"
        slowest = "" if not self.slowest_us else f", at least every {format_duration(self.slowest_us)}"
        lifetime = "" if not self.lifetime_us else f", to last {format_duration(self.lifetime_us)}"
        past = "" if self.history is None else f", since {since_words(self.history)}"
        errors = "".join(f", {each.field} within {each.error:g}" for each in self.tolerances)
        what = f"stream {self.stream}"
        if self.detector is not None:
            field, above, below = msgspec.structs.astuple(self.detector)
            what = f"events of {self.stream} where {field} rises to {above:g} and falls to {below:g}"
        lookups = "".join(f"; {lookup_words(each)}" for each in self.lookups)
        return f"{what}{past}{sample}{slowest}{errors}{lifetime}{lookups}"

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Self:
        """Return it with the marks as columns."""
        del inputs
        return replace(self, columns=(*self.columns, *marks))

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return its tuples, looked up; those that are sampled more rarely, or are events, are not known."""
        del below
        looked_up = self.looked_up(measured)
        return Expected(looked_up[-1], 0.0) if looked_up else NOT_KNOWN

    def looked_up(self, measured: Measured) -> list[Characteristics]:
        """Return the tuples before lookups and after each one; nothing if they are not known."""
        flow = measured.tuples(self.stream)
        if flow is None or self.detector is not None or self.sample_period_us is not None:
            return []
        found = [flow]
        for lookup in self.lookups:
            found.append(filtered(found[-1], measured.partners(self.stream, lookup)))
        return found

    @property
    def stream_as_it_comes(self) -> str:
        """Its own."""
        return self.stream

    @property
    def keeps_tuples(self) -> bool:
        """No."""
        return False

    @property
    def is_off(self) -> bool:
        """Whether an error is allowed in a field."""
        return bool(self.tolerances)

    @property
    def rows_are_certain(self) -> bool:
        """Yes."""
        return True

    def error_of(self, column: str) -> float:
        """Return what is allowed."""
        return {each.field: each.error for each in self.tolerances}.get(column, 0.0)

    def operation(self, lag_us: int | None = None) -> None:
        """Return nothing: it is more than one node."""
        del lag_us

    def reach_us(self) -> int:
        """Return the instant itself."""
        return 1

    def published_us(self) -> int:
        """Return the instant itself."""
        return 1

    def delay_us(self) -> int:
        """Return zero."""
        return 0

    @property
    def full_after_us(self) -> int:
        """The instant itself."""
        return 1

    def interval_shape(self, windows: tuple[Hashable, ...] = ()) -> Hashable:
        """Return the windows through which its tuples go."""
        return "source", self.stream, self.sample_period_us, self.detector, windows


def since_words(history: History) -> str:
    """Return from which instant on a query reads stored tuples."""
    return "the beginning" if history.back_us is None else f"{format_duration(history.back_us)} ago"

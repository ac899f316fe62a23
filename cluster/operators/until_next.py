"""Tuples that hold until the next one (``VALID UNTIL NEXT``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, final

from msgspec import Meta

from cluster.operators.characteristics import Characteristics, Expected, Measured, combinations, counted, lasting
from cluster.operators.columns import Column, Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import CountsCopies, CutAtWatermarks, Keyed, PassesErrors, Window
from cluster.operators.node import Conditions, Need
from cluster.operators.operation import Operation, listed, own
from cluster.shared_nodes import remembered
from protocols.text.quantities import format_duration
from protocols.wire.streams import FieldType


@final
class UntilNext(Keyed, CutAtWatermarks, PassesErrors, CountsCopies, Window, frozen=True, tag="UntilNext"):
    """Each tuple from its stamp until the next later stamp of its `keys`, or for `longest_us` if that is shorter.

    Tuples are those of a stream, valid at their own instant only. Which tuples come next is decided over all of them.

    Parameters
    ----------
    input, keys
        The tuples, and whose next one ends them; without keys it is that of the whole stream.
    longest_us
        None: until the next one, however late that comes.
    bounds
        Names of two more columns, begin and end of this interval in microseconds: rows then come whole. There is a
        `longest_us` then.
    lasts
        False if the interval is in these columns only: the tuple itself is valid at its own instant.
    """

    written_as: ClassVar[str] = "VALID UNTIL NEXT"
    keys: tuple[str, ...]
    longest_us: Annotated[int, Meta(ge=1)] | None = None
    bounds: tuple[str, str] | None = None
    lasts: bool = True

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of the tuples, and the bounds."""
        return (*self.input.schema, *(Column(name, FieldType.INTEGER) for name in self.bounds or ()))

    def describe(self) -> str:
        """Return one line about it."""
        return until_next_words(self.keys, self.longest_us, whole=self.bounds is not None, lasts=self.lasts)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows, valid until the next of their key, at most for a time."""
        del measured
        longest_us = math.inf if self.longest_us is None else self.longest_us
        held = counted(below[0], 1, combinations(self.keys))
        held = lasting(held, min(held.validity, longest_us))
        return Expected(held if self.lasts else below[0], held.valid_rows)

    def operation(self, lag_us: int | None = None) -> UntilNextOperation:
        """Return what runs of it."""
        return UntilNextOperation(self.input.schema, self.keys, self.longest_us, self.bounds, self.lasts, lag_us)

    @property
    def is_instantaneous(self) -> bool:
        """Unless tuples last."""
        return not self.lasts

    @property
    def rows_last_us(self) -> int | None:
        """Until the next one, or the bound."""
        return self.longest_us

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all tuples, as each ends another, with the columns that are wanted and the keys."""
        del conditions
        yield self.input, (wanted & self.input.names) | frozenset(self.keys), ()

    @remembered
    def reach_us(self) -> int:
        """Return that of the input, and how long a tuple lasts."""
        return self.input.reach_us() + self._longest("VALID UNTIL NEXT without MAX keeps tuples until others come")

    @remembered
    def published_us(self) -> int:
        """Return that of the input, and how long a tuple lasts."""
        return self.input.published_us() + self._longest("rows are valid until a tuple comes, or for ever")

    @remembered
    def delay_us(self) -> int:
        """Return that of the input, and how long a tuple lasts."""
        return self.input.delay_us() + self._longest("VALID UNTIL NEXT without MAX keeps tuples until others come")

    def _longest(self, why_not: str) -> int:
        if self.longest_us is None:
            raise UnboundedPlanError(why_not)
        return self.longest_us

    @property
    @remembered
    def full_after_us(self) -> int:
        """After the input by its bound, if it has one."""
        return self.input.full_after_us + (self.longest_us or 0)


@final
class UntilNextOperation(Operation, frozen=True, tag="UntilNext"):
    """Rows from their stamp until the next later one of their `keys`, at most for a time.

    Parameters
    ----------
    columns
        Of the input.
    keys, longest_us, bounds, lasts
        As in :class:`UntilNext`.
    lag_us
        How far it may lag behind its input, where rows need not be whole; None for any distance.
    """

    columns: Schema
    keys: tuple[str, ...]
    longest_us: int | None
    bounds: tuple[str, str] | None
    lasts: bool
    lag_us: int | None

    def describe(self) -> str:
        """Return one line about it."""
        return until_next_words(own(self.keys), self.longest_us, whole=self.bounds is not None, lasts=self.lasts)

    @property
    def holds_rows_back(self) -> bool:
        """Unless rows come whole."""
        return self.bounds is None


def until_next_words(keys: tuple[str, ...], longest_us: int | None, *, whole: bool, lasts: bool) -> str:
    """Return one line about tuples that hold until the next one."""
    next_one = f"the next one of each {listed(keys)}" if keys else "the next one"
    most = "" if longest_us is None else f", at most {format_duration(longest_us)}"
    shown = (", its interval in columns" if whole else "") + ("" if lasts else ", valid at its own instant")
    return f"each tuple until {next_one}{most}{shown}"

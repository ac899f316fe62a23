"""The first rows of an order, or each row with its place (``ORDER BY ... LIMIT``, ``ROW_NUMBER``, ``RANK``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, final

from msgspec import Meta

from cluster.operators.characteristics import Characteristics, Expected, Measured, combinations
from cluster.operators.columns import Column, Ordering, RankFunction, Schema
from cluster.operators.families import CountsCopies, CutAtWatermarks, Keyed, Snapshotwise
from cluster.operators.greatest_values import Greatest
from cluster.operators.node import Conditions, Need, lasts_us
from cluster.operators.operation import Late, listed, own_keys
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType


@final
class Ranked(Keyed, CutAtWatermarks, CountsCopies, Snapshotwise, frozen=True, tag="Ranked"):
    """Tuples whose place in the order of their `keys` is above `above` and at most `most` (None: any), per instant.

    With `name`, a column of that name is their place, counted by `function`.
    """

    written_as: ClassVar[str] = "ORDER BY"
    keys: tuple[str, ...]
    order: tuple[Ordering, ...]
    function: RankFunction = "row_number"
    above: Annotated[int, Meta(ge=0)] = 0
    most: Annotated[int, Meta(ge=0)] | None = None
    name: str | None = None

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of the tuples, and the place."""
        place = () if self.name is None else (Column(self.name, FieldType.INTEGER),)
        return (*self.input.schema, *place)

    def describe(self) -> str:
        """Return one line about them."""
        return ranked_words(self.function, self.keys, self.order, (self.above, self.most), self.name)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return all rows, of which so many of each key are kept."""
        del measured
        most = math.inf if self.most is None else self.most * combinations(self.keys)
        return Expected(below[0], min(below[0].valid_rows, most))

    @property
    def keeps_tuples(self) -> bool:
        """No, if it keeps the first rows of an order: those that stay behind them for ever are forgotten."""
        return self.most is None or self.function != "row_number"

    def operation(self, lag_us: int | None = None) -> RankedOperation:
        """Return what runs of it."""
        limits = self.above, self.most, self.name, lag_us
        return RankedOperation(self.input.schema, self.keys, self.order, self.function, *limits)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all tuples with what is wanted, the keys and what they are ordered by."""
        del conditions
        read = frozenset((*self.keys, *(each.column for each in self.order)))
        yield self.input, (wanted & self.input.names) | read, ()

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return those of the keys."""
        return ({name: most for name, most in greatest.items() if name in self.keys},)

    @remembered
    def delay_us(self) -> int:
        """Return that of the input, and how long a row lasts: it is not answered before it has ended."""
        return self.input.delay_us() + lasts_us(self)

    @property
    @remembered
    def single_row(self) -> bool:
        """Whether one place is asked for, or the input is a single row at most."""
        one = not self.keys and self.function == "row_number" and self.most is not None and self.most - self.above <= 1
        return one or self.input.single_row

    @property
    @remembered
    def unique_columns(self) -> frozenset[str] | None:
        """Those of the input; none if it is a single row at most."""
        return frozenset() if self.single_row else self.input.unique_columns

    @property
    @remembered
    def is_empty(self) -> bool:
        """Whether no place is asked for, or the input is empty."""
        return (self.most is not None and self.most <= self.above) or self.input.is_empty


@final
class RankedOperation(Late, frozen=True, tag="Ranked"):
    """Rows by their places in an order; fields as of the node.

    Parameters
    ----------
    columns
        Of the input.
    lag_us
        How far it may lag behind its input; None for any distance.
    """

    columns: Schema
    keys: tuple[str, ...]
    order: tuple[Ordering, ...]
    function: RankFunction
    above: int
    most: int | None
    name: str | None
    lag_us: int | None = None

    def describe(self) -> str:
        """Return one line about it."""
        return ranked_words(self.function, own_keys(self.keys), self.order, (self.above, self.most), self.name)


def ranked_words(
    function: RankFunction,
    keys: tuple[str, ...],
    order: tuple[Ordering, ...],
    places: tuple[int, int | None],
    name: str | None,
) -> str:
    """Return one line about rows by their places in an order."""
    above, most = places
    which = "all rows" if most is None else "no row" if most <= above else f"the first {most - above:,}"
    if above:
        which += f" behind {above:,}"
    by = listed(tuple(_key_words(each) for each in order))
    shown = "" if name is None else f", {name} = {function.upper()}()"
    return f"{which}{f' for each {listed(keys)}' if keys else ''} by {by}{shown}"


def _key_words(key: Ordering) -> str:
    return f"{key.column}{' DESC' if key.descending else ''}{' NULLS FIRST' if key.nulls_first else ''}"

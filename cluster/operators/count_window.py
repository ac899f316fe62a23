"""Windows by count: the last tuples, of all or of each key."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, NoReturn, final

from msgspec import Meta

from cluster.operators.characteristics import Characteristics, Expected, Measured, combinations, counted
from cluster.operators.columns import QUERY_GROUP, Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import CountsCopies, CutAtWatermarks, Keyed, PassesErrors, Window
from cluster.operators.greatest_values import Greatest
from cluster.operators.node import Conditions, Need, Node
from cluster.operators.operation import Late, listed, own, tuples_counted
from cluster.shared_nodes import remembered


class _LastTuples(CutAtWatermarks, PassesErrors, CountsCopies, Window, frozen=True):
    """Base of windows that tuples leave when others come."""

    @property
    def is_instantaneous(self) -> bool:
        """No."""
        return False

    @property
    def rows_last_us(self) -> None:
        """Until others come."""
        return

    def reach_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("a window by count keeps its tuples until others come, and their ends have no stamp")

    delay_us = reach_us

    def published_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("rows are valid until a tuple comes, or for ever")

    @property
    @remembered
    def full_after_us(self) -> int:
        """As the input: time does not fill it."""
        return self.input.full_after_us


@final
class CountWindow(_LastTuples, frozen=True, tag="CountWindow"):
    """The last `rows` tuples (None: all), moving every `slide_rows`-th tuple."""

    rows: Annotated[int, Meta(ge=1)] | None
    slide_rows: Annotated[int, Meta(ge=1)] = 1

    def describe(self) -> str:
        """Return one line about it."""
        return count_window_words(self.rows, self.slide_rows, ())

    def kept_apart(self, inputs: tuple[Node, ...], marks: Schema) -> Node:
        """Return a window for each query group; one over all tuples is for none."""
        del marks
        if self.rows is None:
            return self.with_inputs(inputs)
        return PartitionedWindow(inputs[0], (QUERY_GROUP.name,), self.rows, self.slide_rows)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows, valid until as many others have come."""
        del measured
        rows = math.inf if self.rows is None else self.rows
        return Expected(counted(below[0], rows, 1), rows if math.isfinite(rows) else 0.0)

    @property
    def stays_for_ever(self) -> bool:
        """Whether it has no size."""
        return self.rows is None

    def operation(self, lag_us: int | None = None) -> CountWindowOperation:
        """Return what runs of it."""
        return CountWindowOperation(self.schema, self.rows, self.slide_rows, (), lag_us)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all tuples, as each takes a place, with the columns that are wanted."""
        del conditions
        yield self.input, wanted, ()


@final
class PartitionedWindow(Keyed, _LastTuples, frozen=True, tag="PartitionedWindow"):
    """A count window for each combination of `keys`."""

    keys: tuple[str, ...]
    rows: Annotated[int, Meta(ge=1)]
    slide_rows: Annotated[int, Meta(ge=1)] = 1

    def describe(self) -> str:
        """Return one line about it."""
        return count_window_words(self.rows, self.slide_rows, self.keys)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows, valid until as many others of their key have come."""
        del measured
        keys = combinations(self.keys)
        return Expected(counted(below[0], self.rows, keys), self.rows * keys)

    def operation(self, lag_us: int | None = None) -> CountWindowOperation:
        """Return what runs of it."""
        return CountWindowOperation(self.schema, self.rows, self.slide_rows, self.keys, lag_us)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all tuples, as each takes a place, with the columns that are wanted and the keys."""
        del conditions
        yield self.input, (wanted & self.input.names) | frozenset(self.keys), ()

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return those of the keys."""
        return ({name: most for name, most in greatest.items() if name in self.keys},)


@final
class CountWindowOperation(Late, frozen=True, tag="CountWindow"):
    """The last `rows` rows (None: all) of each combination of `keys`.

    Parameters
    ----------
    columns
        Of the input.
    rows, slide_rows, keys
        The window.
    lag_us
        How far it may lag behind its input; None for any distance.
    """

    columns: Schema
    rows: int | None
    slide_rows: int
    keys: tuple[str, ...]
    lag_us: int | None

    def describe(self) -> str:
        """Return one line about it."""
        return count_window_words(self.rows, self.slide_rows, own(self.keys))


def count_window_words(rows: int | None, slide_rows: int, keys: tuple[str, ...]) -> str:
    """Return one line about a window by count."""
    size = "unbounded" if rows is None else f"of the last {tuples_counted(rows)}"
    slide = "" if slide_rows == 1 else f", moving every {slide_rows} tuples"
    return f"window {size}{f' for each {listed(keys)}' if keys else ''}{slide}"

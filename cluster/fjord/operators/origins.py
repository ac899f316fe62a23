"""Origins: where the row began of which a row is a piece, as a column of it (docs/decisions/0001).

    row       |-----------------------)      cut at two watermarks
    pieces    |-------)-------)-------)
    origin    o       o       o              the same for all; a piece that begins there is the first

Pieces of one row have equal values, and each begins where another ends. Rows without this column begin where they
start. It is the last column of a row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import polars as pl

from cluster.fjord.batch import START, Batch
from cluster.fjord.operator import Evictions, Operator, State
from cluster.operators.columns import ORIGIN, RIGHT, Column

RIGHT_ORIGIN = RIGHT + ORIGIN.name
"""The origin of the right row of a pair, while a join looks for pairs."""
MADE_OF = "fjord_made_of"
"""The origin of the row that a row is made of, while that has none of its own yet."""
RIGHT_ORIGIN_COLUMN, MADE_OF_COLUMN = Column(RIGHT_ORIGIN, ORIGIN.type), Column(MADE_OF, ORIGIN.type)


def with_origins(rows: pl.DataFrame, name: str = ORIGIN.name) -> pl.DataFrame:
    """Return rows with their origins, as the last column of such a name; those of rows that have none are starts."""
    origin = ORIGIN.name if ORIGIN.name in rows.columns else START
    return rows.with_columns(pl.col(origin).alias(name)).select(pl.exclude(ORIGIN.name, name), name)


def without_origins(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows without their origins."""
    return rows.drop(ORIGIN.name, strict=False)


def with_origins_in(state: State, empty: State) -> State:
    """Return a state, perhaps of a version that kept no origins: what was cut then begins where it starts.

    Parameters
    ----------
    state
        The state.
    empty
        That of the operator as it begins.
    """
    return {name: _completed(value, empty.get(name)) for name, value in state.items()}


def _completed(value: pl.DataFrame | int | str, empty: pl.DataFrame | int | str | None) -> pl.DataFrame | int | str:
    if not isinstance(value, pl.DataFrame) or not isinstance(empty, pl.DataFrame):
        return value
    lacking = [
        name for name in (ORIGIN.name, RIGHT_ORIGIN, MADE_OF) if name in empty.columns and name not in value.columns
    ]
    if not lacking:
        return value
    found = value.with_columns(pl.col(START).alias(name) for name in lacking)
    return found.select(empty.columns) if set(empty.columns) <= set(found.columns) else found


class AroundOperator(Operator):
    """Base of operators that let another one do the work, and see to the origins of its rows.

    Parameters
    ----------
    inner
        The other one.
    """

    def __init__(self, inner: Operator) -> None:
        self._inner = inner
        self._empty = inner.save()
        self.input_count = inner.input_count

    @property
    def evictions(self) -> Evictions:
        """What the other one has dropped for lack of room."""
        return self._inner.evictions

    def _counted(self) -> None:
        """Take over what the other one has counted, and could not do."""
        inner = self._inner
        self.companions, self.neighbours, self.linked = inner.companions, inner.neighbours, inner.linked
        self.warning = inner.warning

    def transition(self, port: int, batch: Batch) -> Batch:
        """Let the other one process rows."""
        answer = self._inner.transition(port, Batch(self._given(port, batch.rows), batch.watermark_us))
        self._counted()
        return Batch(self._answered(answer.rows, answer.watermark_us), answer.watermark_us)

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Let the other one look ahead."""
        answer = self._inner.ahead(frontier_us, [self._given(port, rows) for port, rows in enumerate(inputs)])
        self._counted()
        return Batch(self._answered(answer.rows, answer.watermark_us), answer.watermark_us)

    @abstractmethod
    def _given(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Return what the other one is given."""

    def _answered(self, rows: pl.DataFrame, watermark_us: int) -> pl.DataFrame:
        """Return what is made of its answer."""
        del watermark_us
        return rows

    def save(self) -> State:
        """Return the state of the other one."""
        return self._inner.save()

    _own: tuple[str, ...] = ()
    """Names of what is kept besides."""

    def restore(self, state: State) -> None:
        """Restore it."""
        others = {name: value for name, value in state.items() if name not in self._own}
        self._inner.restore(with_origins_in(others, self._empty))


class WithoutOrigins(AroundOperator):
    """Lets an operator take pieces as rows of their own: nothing above asks where they began."""

    def _given(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        del port
        return without_origins(rows)


class OriginUnion(AroundOperator):
    """The union of rows with origins, of which one side may have none.

    `inner` is a union of rows that have origins as their last column.
    """

    def _given(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        del port
        return with_origins(rows)


class OriginJoin(AroundOperator):
    """Pairs, which begin where the later one of their two rows does.

    However the two are cut: all pieces of a pair have the same origin, because those of its rows have.

    `inner` is a join of rows with origins, the right ones with :data:`RIGHT_ORIGIN`.
    """

    def _given(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        return with_origins(rows, ORIGIN.name if port == 0 else RIGHT_ORIGIN)

    def _answered(self, rows: pl.DataFrame, watermark_us: int) -> pl.DataFrame:
        del watermark_us
        later = pl.max_horizontal(ORIGIN.name, RIGHT_ORIGIN).alias(ORIGIN.name)
        return rows.select(pl.exclude(ORIGIN.name, RIGHT_ORIGIN), later)

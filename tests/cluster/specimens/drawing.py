"""What specimens draw plans with: columns, values and conditions of any type, and plans below.

Plans are drawn by Hypothesis, which shrinks them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st

from cluster.operators import Distinct, Dstream, Istream, Node, Project
from cluster.operators.columns import Column, Output, Scalar, Schema
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT

LAST = 20
"""No stamp is above this."""

COLUMNS: dict[str, Schema] = {
    "alpha": (Column("k", INTEGER), Column("count", INTEGER), Column("s", TEXT)),
    "beta": (Column("before", INTEGER), Column("w", REAL)),
}
VALUES: dict[FieldType, tuple[Any, ...]] = {
    INTEGER: (0, 1, 2, 3, None),
    REAL: (0.0, 0.5, 1.5, -2.0, None),
    TEXT: ("", "x", "y", "xy", None),
    BOOLEAN: (True, False, None),
}
LITERALS = {INTEGER: "0123", REAL: ("0.5", "1.5", "0.0"), TEXT: ("'x'", "''", "'xy'"), BOOLEAN: ("TRUE", "FALSE")}
MOST_COLUMNS = 5

T = TypeVar("T")


class Names:
    """Fresh column names; the first are words that operators themselves might use."""

    LIKELY = ("known", "enters", "value", "leaves_at", "start", "end", "row", "stamp", "left", "from")

    def __init__(self) -> None:
        self._given = 0

    def fresh(self) -> str:
        """Return a name that has not been given."""
        self._given += 1
        return self.LIKELY[self._given - 1] if self._given <= len(self.LIKELY) else f"c{self._given}"


@dataclass(frozen=True)
class Drawing:
    """Draws one plan.

    Parameters
    ----------
    draw
        Hypothesis' function.
    nodes
        A strategy for plans of a depth.
    names
        Of the plan.
    """

    draw: Any
    nodes: Callable[[int, Names], st.SearchStrategy[Node]]
    names: Names

    def one_of(self, choices: Sequence[T]) -> T:
        """Draw one of several, the more likely the more often it is among them."""
        found: T = self.draw(st.sampled_from(choices))
        return found

    def whole(self, low: int, high: int) -> int:
        """Draw a whole number."""
        found: int = self.draw(st.integers(low, high))
        return found

    def subset(self, choices: Sequence[T], most: int, least: int = 0) -> list[T]:
        """Draw different ones of several."""
        found: list[T] = self.draw(st.lists(st.sampled_from(choices), min_size=least, max_size=most, unique=True))
        return found

    def one_in(self, many: int) -> bool:
        """Draw whether something rare happens: once in so many times."""
        return self.whole(0, many - 1) == 0

    def coin(self) -> bool:
        """Draw true or false."""
        return bool(self.draw(st.booleans()))

    def below(self, depth: int) -> Node:
        """Draw a plan that is at most so deep."""
        found: Node = self.draw(self.nodes(depth, self.names))
        return found

    def instantaneous(self, node: Node) -> Node:
        """Return a plan whose rows are valid at one instant: the same if they are, else its changes."""
        return node if node.is_instantaneous else self.one_of((Istream, Dstream))(node)

    def to_window(self, node: Node) -> Node:
        """Return what a window is drawn over: it counts what lasts once per instant, which not every plan is to do."""
        return node if self.one_in(3) else self.instantaneous(node)

    def value(self, schema: Schema, kind: FieldType, depth: int = 2) -> Scalar:
        """Draw a scalar of a type."""
        return read_scalar(self.draw(values(schema, kind, depth)), kind)

    def condition(self, schema: Schema, depth: int = 1) -> Scalar:
        """Draw a condition."""
        return read_scalar(self.draw(conditions(schema, depth)), BOOLEAN)

    def join_condition(self, left: Schema, right: Schema) -> Scalar | None:
        """Draw equalities, inequalities, both, or none."""
        parts = []
        for _ in range(self.whole(0, 2)):
            kinds = sorted({column.type for column in left} & {column.type for column in right} - {BOOLEAN})
            if not kinds:
                break
            kind = self.one_of(kinds)
            one, other = self.one_of(_of_type(left, kind)), self.one_of(_of_type(right, kind))
            parts.append(f"{one} {self.one_of(('=', '=', '=', '<', '>=', '<>'))} {other}")
        if self.one_in(4):
            parts.append(f"({self.draw(conditions(left + right, 1))})")
        return read_scalar(" AND ".join(parts), BOOLEAN) if parts else None

    def to_join(self, depth: int) -> tuple[Node, Node]:
        """Draw two plans to join; the columns of the right one have names of their own."""
        left, node = self.below(depth - 1), self.below(self.whole(0, depth - 1))
        return left, Project(node, tuple(_passed(column, self.names.fresh()) for column in node.schema))

    def aligned(self, depth: int, *, once: bool = False) -> list[Node]:
        """Draw two plans with the same columns; `once` without copies."""
        sides = [self.below(self.whole(0, depth - 1)) for _ in range(2)]
        kinds = self.draw(st.lists(st.sampled_from((INTEGER, INTEGER, TEXT)), min_size=1, max_size=2))
        shared = [(self.names.fresh(), kind) for kind in kinds]
        found: list[Node] = []
        for side in sides:
            outputs = tuple(Output(name, self.value(side.schema, kind, 1)) for name, kind in shared)
            found.append(Distinct(Project(side, outputs)) if once else Project(side, outputs))
        return found


def narrowed(node: Node) -> Node:
    """Return a plan with two of its columns."""
    return Project(node, tuple(_passed(column, column.name) for column in node.schema[:2]))


def _passed(column: Column, name: str) -> Output:
    return Output(name, read_scalar(f'"{column.name}"', column.type))


def _of_type(schema: Schema, kind: FieldType) -> list[str]:
    return [f'"{column.name}"' for column in schema if column.type is kind]


@st.composite
def values(draw: Any, schema: Schema, kind: FieldType, depth: int = 2) -> str:
    """SQL text of a type."""
    columns = _of_type(schema, kind)
    leaf = st.sampled_from([*columns, *columns, *LITERALS[kind]])
    if depth == 0 or draw(st.integers(0, 2)) > 0:
        return draw(leaf)

    def inner(other: FieldType = kind) -> str:
        return draw(values(schema, other, depth - 1))

    if kind is INTEGER:
        form = draw(st.sampled_from(("({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} % {1})", "ABS({0} - {1})",
                                     "COALESCE({0}, {1})", "NULLIF({0}, {1})", "LEAST({0}, {1})",
                                     "GREATEST({0}, {1})", "CASE", "LENGTH")))  # fmt: skip
        if form == "LENGTH":
            return f"LENGTH({inner(TEXT)})"
    elif kind is REAL:
        form = draw(st.sampled_from(("({0} + {1})", "({0} - {1})", "({0} * 2)", "/", "COALESCE({0}, {1})", "CASE")))
        if form == "/":
            return f"({inner(INTEGER)} / {inner(INTEGER)})"
    elif kind is TEXT:
        form = draw(
            st.sampled_from(("({0} || {1})", "UPPER({0})", "COALESCE({0}, {1})", "SUBSTRING({0}, 1, 1)", "CASE"))
        )
    else:
        return draw(conditions(schema, depth - 1))
    if form == "CASE":
        return f"CASE WHEN {draw(conditions(schema, 0))} THEN {inner()} ELSE {inner()} END"
    return form.format(inner(), inner())


@st.composite
def conditions(draw: Any, schema: Schema, depth: int = 1) -> str:
    """SQL text of a condition."""
    if depth and draw(st.integers(0, 2)) == 0:
        one, other = draw(conditions(schema, depth - 1)), draw(conditions(schema, depth - 1))
        return draw(st.sampled_from((f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})")))
    kind = draw(st.sampled_from(sorted({column.type for column in schema})))
    column = draw(st.sampled_from(_of_type(schema, kind)))
    other = draw(values(schema, kind, 1))
    forms = [f"{column} {sign} {other}" for sign in ("=", "<>", "<", "<=", ">", ">=")] if kind is not BOOLEAN else []
    forms += [f"{column} IS NULL", f"NOT {column} IS NULL"]
    if kind is BOOLEAN:
        forms += [column, f"NOT {column}"]
    if kind is INTEGER:
        forms += [f"{column} IN (1, 2)", f"{column} BETWEEN 1 AND 2"]
    if kind is TEXT:
        forms += [f"{column} LIKE 'x%'"]
    return draw(st.sampled_from(forms))

"""Random conditions of WHERE and HAVING: with subqueries, correlated or not, under AND, OR and NOT."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Binding, Exactness, Known, Scalar, words
from tests.cluster.oracle.text_forms import Item, Output, Select
from tests.cluster.oracle.text_intervals import RELATIONS, IntervalDrawing, Span
from tests.cluster.oracle.text_leaves import Leaf, alone_means, column, has_column, reachable
from tests.cluster.oracle.text_operations import BOOLEAN, COMPARABLE, REAL, SIGNS
from tests.cluster.oracle.text_readings import only_read
from tests.cluster.oracle.text_scalars import KINDS, Scalars

if TYPE_CHECKING:
    from tests.cluster.oracle.text_items import Offered, Place
    from tests.cluster.oracle.text_queries import Queries

OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
SUBQUERY_SHARE = 0.14
VALUE_SHARE = 0.15
"""How often what may be a subquery that is a value is one."""


@dataclass(frozen=True)
class Scope:
    """What a subquery sees of the query around it.

    Parameters
    ----------
    all, outer
        All columns, and those that a subquery may name if these are others.
    starring
        The columns of a star, unless it is all of them.
    further
        Columns of queries around this one.
    flows
        False if FROM has relations only.
    spans
        The intervals of its tuples.
    """

    all: tuple[Known, ...]
    outer: tuple[Known, ...] | None = None
    starring: tuple[Known, ...] | None = None
    further: tuple[Known, ...] = ()
    flows: bool = True
    spans: tuple[Span, ...] = ()

    @property
    def columns(self) -> tuple[Known, ...]:
        """Those that a subquery may name."""
        return self.all if self.outer is None else self.outer

    @property
    def around(self) -> tuple[Known, ...]:
        """Those that a subquery may name, further out, too: no alias of this query hides them."""
        hidden = {each.alias.casefold() for each in self.all}
        seen = [each for each in self.further if each.alias and each.alias.casefold() not in hidden]
        return (*self.columns, *seen)


class Conditions:
    """Draws conditions over one scope.

    Parameters
    ----------
    plain
        True where no subquery can stand.
    """

    def __init__(self, queries: Queries, scalars: Scalars, scope: Scope, place: Place, *, plain: bool) -> None:
        self._queries = queries
        self._dice = scalars.dice
        self._scalars = scalars
        self._scope = scope
        self._place = place
        self._plain = plain or place.depth <= 0

    def where(self, offered: Sequence[Offered], correlated: Sequence[Scalar] = ()) -> Scalar | None:
        """Return the condition of WHERE, if there is one; relations are mostly looked up by a column."""
        parts: list[Scalar] = []
        for each in offered:
            joined = isinstance(each.item, Item) and each.item.on is not None
            if each.static and not joined and self._dice.random() < 0.85:
                parts += self._looked_up(each)
        if len(offered) > 1 and self._dice.random() < 0.5:
            parts += self._equality()
        if self._dice.random() < 0.45:
            parts.append(self.condition())
        parts += correlated
        if not parts:
            return None
        self._dice.shuffle(parts)
        found = parts[0]
        for part in parts[1:]:
            found = both("AND", found, part)
        return found

    def with_values(self, leaves: Mapping[FieldType, list[Leaf]]) -> dict[FieldType, list[Leaf]]:
        """Return what draws leaves, with subqueries that are values among them."""
        if self._plain:
            return dict(leaves)
        return {
            kind: [*each, lambda need, kind=kind, each=each: self._value(kind, need, each)]  # type: ignore[misc] # bound now
            for kind, each in leaves.items()
            if each
        }

    def _value(self, kind: FieldType, need: Exactness, others: Sequence[Leaf]) -> Scalar:
        if self._queries.exhausted or self._dice.random() > VALUE_SHARE:
            return self._dice.choice(others)(need)
        query = self._select(kind, single=True)
        (shown,) = query.outputs
        assert isinstance(shown, Output)
        return Scalar(
            kind, words("{-1}"), words("({-1})"), label="QUERY VALUE", query=query, exactness=shown.scalar.exactness,
            wild=shown.scalar.wild,
        )  # fmt: skip

    def condition(self, depth: int = 2) -> Scalar:
        """Return a condition, with a subquery in it or not."""
        dice = self._dice
        clause = "where" if self._scope.outer is None else "having"
        if self._scalars.turns.choose(dice, range(60), ("null", clause)) == 0:
            return self._scalars.null(BOOLEAN)
        if self._plain or self._queries.exhausted or dice.random() > SUBQUERY_SHARE * (2 if depth < 2 else 1.6):
            return self._scalars.condition(2)
        if depth > 0 and dice.random() < 0.45:
            word = dice.choice(("AND", "OR", "OR", "NOT"))
            if word == "NOT":
                inner = self._subquery()
                return Scalar(BOOLEAN, words("NOT {0:2}"), words("NOT {0}"), (inner,), Binding.NOT, "NOT(query)")
            sides = [self._subquery(), self.condition(depth - 1)]
            dice.shuffle(sides)
            return both(word, *sides)
        return self._subquery()

    def on(self, other: Offered) -> Scalar:
        """Return the condition of JOIN ... ON another item: mostly that columns are equal."""
        equal = self._looked_up(other, qualified=True)
        if self._dice.random() < 0.04:
            return self._scalars.null(BOOLEAN)
        if not equal or self._dice.random() < 0.2:
            return self._scalars.condition(1) if self._dice.random() < 0.7 else self._scalars.leaf(BOOLEAN)
        return both("AND", equal[0], self._scalars.condition(1)) if self._dice.random() < 0.2 else equal[0]

    def _looked_up(self, relation: Offered, *, qualified: bool = False) -> list[Scalar]:
        columns = [each for each in self._scope.all if reachable(each, self._scope.all)]
        other = [each for each in columns if each.alias != relation.alias]
        pairs = [
            (one, each)
            for one in columns
            if one.alias == relation.alias
            for each in other
            if one.type is each.type and one.type is not REAL
        ]
        if not pairs:
            return []
        one, each = self._dice.choice(pairs)
        return [self._equal(one, each, qualified=qualified)]

    def _equality(self) -> list[Scalar]:
        columns = [each for each in self._scope.all if reachable(each, self._scope.all)]
        pairs = [
            (one, other) for one in columns for other in columns
            if one.alias < other.alias and one.type is other.type and one.exactness > Exactness.NEARLY < other.exactness
        ]  # fmt: skip
        return [self._equal(*self._dice.choice(pairs))] if pairs else []

    def _equal(self, one: Known, other: Known, *, qualified: bool = False) -> Scalar:
        sides = [column(self._dice, each, self._scope.all, qualified=qualified) for each in (one, other)]
        self._dice.shuffle(sides)
        return Scalar(
            BOOLEAN, words("{0:5} = {1:5}"), words("{0} = {1}"), tuple(sides), Binding.COMPARISON,
            f"=({one.type.value}, {other.type.value})",
        )  # fmt: skip

    def _subquery(self) -> Scalar:
        match self._dice.choice(("IN", "IN", "EXISTS", "EXISTS", "ANY", "ALL", "single", "single")):
            case "EXISTS":
                return self._exists()
            case "IN":
                return self._in()
            case "single":
                return self._single()
            case quantifier:
                return self._quantified(quantifier)

    def _select(self, kind: FieldType | None, *, single: bool = False) -> Select:
        place = replace(self._place, depth=self._place.depth - 1, lasting=False, instants=False, relation="seldom")
        outer = self._scope.around if self._dice.random() < 0.5 else None
        kinds = None if kind is None else [kind]
        if outer is None and not single and kind is not None and self._dice.random() < 0.3:
            return self._queries.query(place, kinds)  # type: ignore[return-value] # a set operation has the same use
        spans = () if outer is None else self._scope.spans
        return self._queries.select(place, kinds, single=single, outer=outer, flows=self._scope.flows, spans=spans)

    def _exists(self) -> Scalar:
        query = self._select(None)
        if self._dice.random() < 0.3 and not query.grouped:
            one = Scalar(FieldType.INTEGER, ("1",), ("1::BIGINT",))
            query = only_read(replace(query, outputs=(Output(one, "column_1"),)))
        way = self._dice.random()
        if way < 0.5:
            return self._asked("EXISTS", "EXISTS {-1}", "EXISTS ({-1})", query, (), Binding.ATOM)
        return self._asked("NOT EXISTS", "NOT EXISTS {-1}", "NOT EXISTS ({-1})", query, (), Binding.NOT)

    def _in(self) -> Scalar:
        one, other = self._kinds()
        left = self._scalars.value(one, 1, Exactness.SAME)
        sql = _any("=", one, other)
        query = self._select(other)
        way = self._dice.randint(0, 3)
        if way < 2:
            return self._asked("IN QUERY", "{0:5} IN {-1}", sql, query, (left,))
        if way == 2:
            return self._asked("NOT IN QUERY", "{0:5} NOT IN {-1}", f"NOT {sql}", query, (left,))
        return self._asked("NOT IN QUERY", "NOT {0:5} IN {-1}", f"NOT {sql}", query, (left,), Binding.NOT)

    def _quantified(self, quantifier: str) -> Scalar:
        one, other = self._kinds()
        sign = self._dice.choice(sorted(SIGNS))
        left = self._scalars.value(one, 1, Exactness.SAME)
        word = quantifier if quantifier == "ALL" else self._dice.choice(("ANY", "SOME"))
        text = f"{{0:5}} {self._dice.choice(SIGNS[sign])} {word} {{-1}}"
        sql = _any(sign, one, other) if quantifier == "ANY" else f"NOT {_any(OPPOSITE[sign], one, other)}"
        query = self._select(other)
        query = replace(query, parentheses=0)
        return self._asked(f"{sign} {quantifier}", text, sql, query, (left,))

    def _single(self) -> Scalar:
        one, other = self._kinds()
        sign = self._dice.choice(sorted(SIGNS))
        left = self._scalars.value(one, 1, Exactness.SAME)
        wide = "::DOUBLE" if one is not other else ""
        query = self._select(other, single=True)
        written = self._dice.choice(SIGNS[sign])
        if self._dice.random() < 0.4:
            return self._asked(
                f"QUERY {sign}", f"{{-1}} {written} {{0:5}}", f"({{-1}}){wide} {sign} {{0}}{wide}", query, (left,)
            )
        return self._asked(
            f"{sign} QUERY", f"{{0:5}} {written} {{-1}}", f"{{0}}{wide} {sign} ({{-1}}){wide}", query, (left,)
        )

    def _kinds(self) -> tuple[FieldType, FieldType]:
        usable = [pair for pair in COMPARABLE if pair[0] in self._scalars.kinds]
        return self._dice.choice(usable or [(BOOLEAN, BOOLEAN)])

    def _asked(
        self, label: str, text: str, sql: str, query: Select, parts: tuple[Scalar, ...],
        binding: Binding = Binding.COMPARISON,
    ) -> Scalar:  # fmt: skip
        return Scalar(BOOLEAN, words(text), words(sql), parts, binding, label, query=query)


def both(word: str, left: Scalar, right: Scalar) -> Scalar:
    """Return AND or OR."""
    level = Binding[word]
    # A key of GROUP BY is known again as an operand: b AND c is none of a AND b AND c.
    text = words(f"{{0:{level}}} {word} {{1:{level + 1}}}")
    return Scalar(BOOLEAN, text, words(f"{{0}} {word} {{1}}"), (left, right), level, f"{word}(boolean, boolean)")


def correlation(
    inner: Scalars, columns: Sequence[Known], outer: Sequence[Known], *, only_equal: bool
) -> list[Scalar]:  # fmt: skip
    """Return conditions that compare what a subquery reads with columns of the query around it."""
    dice = inner.dice
    names, aliases = {each.name.casefold() for each in columns}, {each.alias.casefold() for each in columns}
    found = []
    for _ in range(dice.choice((1, 1, 2))):
        seen = []
        for known in outer:
            if known.exactness is Exactness.NEARLY or known.type not in KINDS:
                continue
            alone = alone_means(known, outer)
            if known.alias and known.alias.casefold() not in aliases:
                seen.append((known, f"{spelling.name(dice, known.alias)}.{spelling.name(dice, known.name)}"))
            elif alone and known.name.casefold() not in names:
                seen.append((known, spelling.name(dice, known.name)))
        if not seen:
            return found
        known, text = dice.choice(seen)
        there = Scalar(known.type, (text,), (known.sql,), exactness=known.exactness, wild=known.wild)
        here = own_value(inner, known.type)
        if here is None:
            continue
        sign = "=" if only_equal else dice.choice(("=", "=", "<", "<>", ">="))
        sides = (here, there) if dice.random() < 0.5 else (there, here)
        parts = f"{{0:5}} {dice.choice(SIGNS[sign])} {{1:5}}"
        found.append(
            Scalar(BOOLEAN, words(parts), words(f"{{0}} {sign} {{1}}"), sides, Binding.COMPARISON, "correlated")
        )
    return found


def across_intervals(
    dice: random.Random, own: IntervalDrawing, aliases: Sequence[str], outer: Sequence[Span]
) -> list[Scalar]:
    """Return a condition that compares intervals of a subquery with those of the query around it, or asks for these."""
    hidden = {each.casefold() for each in aliases}
    seen = [each for each in outer if each.alias and each.alias.casefold() not in hidden]
    if not seen or dice.random() < 0.5:
        return []
    there = own.of(replace(dice.choice(seen), alone=False))
    sides = [own.interval() if own else there, there]
    dice.shuffle(sides)
    found = own.related(dice.choice(tuple(RELATIONS)), sides[0], sides[1])
    return [replace(found, label="correlated intervals")]


def own_value(inner: Scalars, kind: FieldType) -> Scalar | None:
    """Return an expression of a type that reads a column of the subquery's own."""
    for _ in range(5):
        found = inner.value(kind, 1 if inner.dice.random() < 0.3 else 0, Exactness.SAME)
        if has_column(found):
            return found
    return None


def _any(sign: str, one: FieldType, other: FieldType) -> str:
    """Return whether a comparison is true of some row of the query; unknown if it is of none, but unknown of some."""
    wide = "::DOUBLE" if one is not other else ""
    test = f"({{0}}{wide} {sign} z.c0{wide})"
    return (
        f"(SELECT CASE WHEN count(*) FILTER ({test}) > 0 THEN true WHEN count(*) FILTER ({test} IS NULL) > 0 THEN NULL "
        f"ELSE false END FROM ({{-1}}) z)"
    )

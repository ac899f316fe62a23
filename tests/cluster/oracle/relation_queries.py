"""Random queries over streams and relations."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle.relation_forms import (
    Computed,
    Item,
    Named,
    Probe,
    Query,
    Rows,
    Select,
    Stream,
    Table,
    aliases_in,
)
from tests.cluster.oracle.relation_world import BOOLEAN, INTEGER, REAL, RELATIONS, STREAMS, TEXT

Scope = list[Named]
"""Columns that an expression may read: `text` is the column with its alias."""

WINDOWS = ((None, 1), (1, 1), (6, 1), (15, 1), (20, 10), (10, 10), (8, 4), (5, 15))
HOLDS = (5, 15, 30)
"""How long a tuple waits for the next one of its sensor."""
LITERALS = {INTEGER: ("0", "1", "1", "2", "2", "3"), REAL: ("0.5", "1.5", "1.0"), TEXT: ("'a'", "'ab'", "'c'")}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def random_query(dice: random.Random, steps: int) -> Query:
    """Return a query that is asked at some time of a history."""
    first = dice.choice((0, 0, 0, dice.randrange(steps)))
    last = dice.choice((steps, steps, steps, dice.randrange(first, steps)))
    draw = _Draw(dice)
    if dice.random() < 0.12:
        kinds = tuple(dice.choice((INTEGER, TEXT)) for _ in range(dice.randint(1, 2)))
        return Query((draw.select(kinds), draw.select(kinds)), first, last)
    return Query((draw.select(),), first, last)


def variant(dice: random.Random, query: Query) -> Query:
    """Return a query with other conditions: one that may share what it does with the first."""
    first, *others = query.selects
    draw = _Draw(dice, taken=100)
    scope = [each for item in first.items for each in draw.scope_of(item)]
    where = tuple(dict.fromkeys((*first.where, draw.condition(scope))))
    return replace(query, selects=(replace(first, where=where), *others))


@dataclass
class _Draw:
    """Draws the parts of one query; no alias comes twice."""

    dice: random.Random
    taken: int = 0

    def select(self, wanted: tuple[FieldType, ...] = ()) -> Select:
        """A query whose outputs have the types wanted."""
        dice = self.dice
        shape = dice.choice(("one", "one", "one", "aggregate", "aggregate", "two", "above", "above two"))
        sources: list[Stream | Computed] = []
        if shape in ("above", "above two"):
            sources.append(self._computed())
        if shape != "above":
            sources += [self._stream(windowed=shape in ("aggregate", "two")) for _ in range(1 + (shape == "two"))]
        aggregated = shape == "aggregate" or dice.random() < 0.25
        items, where = self._from(sources)
        scope = [each for item in items for each in self.scope_of(item)]
        where += [self.condition(scope) for _ in range(dice.choice((0, 0, 0, 1)))]
        tests = tuple(self._test(scope) for _ in range(dice.choice((0, 0, 0, 1, 1, 2))))
        if not any(isinstance(each, Table) for each in items) and not tests:
            tests = (self._test(scope),)
        found = Select(items, tuple(where), tests, ())
        if aggregated:
            return self._grouped(found, scope, wanted)
        kinds = wanted or tuple(dice.choice(scope).type for _ in range(dice.randint(1, 3)))
        outputs = tuple(Named(self._value(scope, kind), f"c{n}", kind) for n, kind in enumerate(kinds))
        return replace(found, outputs=outputs, distinct=dice.random() < 0.15)

    def scope_of(self, item: Item) -> Scope:
        """The columns of an item of FROM."""
        if isinstance(item, Stream):
            return [Named(f"{item.alias}.{name}", name, kind) for name, kind in STREAMS[item.name].items()]
        if isinstance(item, Computed):
            return [Named(f"{item.alias}.{each.name}", each.name, each.type) for each in item.select.outputs]
        if item.rows is not None:
            return [Named(f"{item.alias}.{each.name}", each.name, each.type) for each in item.rows.outputs]
        return [Named(f"{item.alias}.{name}", name, kind) for name, kind in RELATIONS[item.relation].items()]

    def condition(self, scope: Scope, depth: int = 1) -> str:
        """A condition on any columns."""
        dice = self.dice
        if depth and dice.random() < 0.25:
            # One table more or less in a condition decides which stream meets it: keep to the columns of one item.
            alias = dice.choice(scope).text.partition(".")[0]
            own = [each for each in scope if each.text.startswith(f"{alias}.")]
            return f"({self.condition(own, 0)} OR {self.condition(own, 0)})"
        column = dice.choice(scope)
        if column.type is BOOLEAN:
            return dice.choice((column.text, f"NOT {column.text}", f"{column.text} IS NULL"))
        other = dice.choice(LITERALS[column.type])
        forms = [f"{column.text} {dice.choice(COMPARISONS)} {other}" for _ in range(3)]
        forms += [f"{column.text} IS NOT NULL", f"COALESCE({column.text}, {other}) = {other}"]
        if column.type is INTEGER:
            forms += [f"{column.text} BETWEEN 1 AND 2", f"{column.text} % 2 = 1"]
        if column.type is TEXT:
            forms += [f"{column.text} LIKE 'a%'"]
        return dice.choice(forms)

    def _alias(self, letter: str) -> str:
        self.taken += 1
        return f"{letter}{self.taken}"

    def _stream(self, *, windowed: bool) -> Stream:
        size, slide = self.dice.choice(WINDOWS[2:] if windowed else WINDOWS)
        alias, name = self._alias("t"), self.dice.choice(("traffic", "traffic", "weather"))
        if windowed and self.dice.random() < 0.3:
            return Stream(alias, name, None, holds=self.dice.choice(HOLDS))
        return Stream(alias, name, size, slide)

    def _computed(self) -> Computed:
        dice = self.dice
        stream = self._stream(windowed=True)
        scope = self.scope_of(stream)
        items: tuple[Item, ...] = (stream,)
        where: list[str] = []
        if dice.random() < 0.3:
            items, where = self._from([stream], most=1)
            scope = [each for item in items for each in self.scope_of(item)]
        found = self._grouped(Select(items, tuple(where), (), ()), scope, (), keyed=True)
        return Computed(self._alias("s"), replace(found, having_tests=()))

    def _grouped(self, select: Select, scope: Scope, wanted: tuple[FieldType, ...], *, keyed: bool = False) -> Select:
        dice = self.dice
        keys = dice.sample(scope, dice.choice((1, 1, 2) if keyed else (0, 1, 1, 2)))
        outputs = [replace(key, name=f"g{number}") for number, key in enumerate(keys)]
        outputs += [replace(self._call(scope), name=f"a{number}") for number in range(dice.randint(1, 2))]
        if wanted:
            calls = (self._call(scope, kind) for kind in wanted)
            outputs = [replace(call, name=f"c{number}") for number, call in enumerate(calls)]
        having = (f"COUNT(*) > {dice.choice((0, 1, 2))}",) if dice.random() < 0.2 else ()
        tests: tuple[Probe, ...] = ()
        if dice.random() < 0.25:
            call = self._call(scope, INTEGER)
            tests = (self._test([replace(call, name="h")], correlated=False),)
        return replace(
            select, outputs=tuple(outputs), keys=tuple(key.text for key in keys), having=having, having_tests=tests
        )

    def _call(self, scope: Scope, kind: FieldType | None = None) -> Named:
        dice = self.dice
        number = [each for each in scope if each.type is INTEGER] or [Named("1", "one", INTEGER)]
        one = dice.choice(number).text
        if kind is INTEGER or (kind is None and dice.random() < 0.6):
            text = dice.choice(("COUNT(*)", f"COUNT({one})", f"SUM({one})", f"MAX({one})", f"COUNT(DISTINCT {one})"))
            return Named(text, "a", INTEGER)
        if kind is TEXT:
            return Named(f"MIN({self._value(scope, TEXT)})", "a", TEXT)
        return Named(f"AVG({one})", "a", REAL)

    def _value(self, scope: Scope, kind: FieldType) -> str:
        dice = self.dice
        columns = [each.text for each in scope if each.type is kind]
        if not columns:
            return dice.choice(LITERALS[kind])
        one = dice.choice(columns)
        if kind is INTEGER and dice.random() < 0.2:
            return f"{one} + {dice.choice((*columns, '1'))}"
        return f"COALESCE({one}, {dice.choice(LITERALS[kind])})" if kind is TEXT and dice.random() < 0.1 else one

    def _from(self, sources: Sequence[Stream | Computed], most: int = 3) -> tuple[tuple[Item, ...], list[str]]:
        """FROM and WHERE: each table has conditions with what flows, or with the tables before it, or none."""
        dice = self.dice
        places = [*sources, *([None] * dice.choice([n for n in (1, 1, 1, 2, 2, 3, 0) if n <= most]))]
        dice.shuffle(places)
        flowing = [each for source in sources for each in self.scope_of(source)]
        items: list[Item] = []
        met: Scope = []
        where: list[str] = []
        if len(sources) == 2:
            one, other = (self.scope_of(each) for each in sources)
            where += [self._link(one, other)] if dice.random() < 0.7 else []
        for place in places:
            if place is not None:
                items.append(place)
                continue
            table = self._table()
            columns = self.scope_of(table)
            before = [each for item in items for each in self.scope_of(item)]
            count = dice.choice((1, 1, 1, 1, 2, 2, 0))
            join = dice.choice((",", ",", ",", "JOIN", "LEFT JOIN"))
            if join != "," and before and count:
                known = [each for each in before if each in flowing or each in met]
                if known:
                    on = tuple(self._link(columns, known) for _ in range(count))
                    on += (self.condition(columns),) if dice.random() < 0.2 else ()
                    items.append(replace(table, join=join, on=on))
                    met += columns
                    continue
            where += [self._link(columns, [*flowing, *met]) for _ in range(count)]
            items.append(table)
            # What nothing chooses is met by the first stream; what would choose it later would change that.
            if count or len(sources) == 1:
                met += columns
        return tuple(items), where

    def _link(self, columns: Scope, others: Scope) -> str:
        """A condition on columns of both: mostly an equality."""
        dice = self.dice
        pairs = [(one, other) for one in columns for other in others if _comparable(one.type, other.type)]
        if not pairs:
            return f"{columns[0].text} IS NOT NULL"
        same = [pair for pair in pairs if pair[0].type is pair[1].type is TEXT]
        one, other = dice.choice(same if same and dice.random() < 0.3 else pairs)
        if dice.random() < 0.7:
            sides = [one.text, other.text]
            dice.shuffle(sides)
            return " = ".join(sides)
        if one.type is INTEGER and dice.random() < 0.4:
            return f"{one.text} + 1 = {other.text}"
        if dice.random() < 0.3:
            return f"({one.text} = {other.text} OR {one.text} IS NULL)"
        return f"{one.text} {dice.choice(COMPARISONS)} {other.text}"

    def _table(self) -> Table:
        dice, alias = self.dice, self._alias("p")
        kind = dice.choice(("plain", "plain", "plain", "plain", "chosen", "grouped", "joined"))
        relation = dice.choice(sorted(RELATIONS))
        if kind == "plain":
            return Table(alias, relation)
        inside = self._alias("x")
        relations = [(relation, inside)]
        scope = self.scope_of(Table(inside, relation))
        where = [self.condition(scope)] if kind == "chosen" or dice.random() < 0.2 else []
        if kind == "joined":
            other = self._alias("y")
            second = dice.choice(sorted(RELATIONS))
            relations.append((second, other))
            added = self.scope_of(Table(other, second))
            where.append(self._link(added, scope))
            scope = [*scope, *added]
        if kind == "grouped":
            key = dice.choice(scope)
            number = dice.choice([each for each in scope if each.type in (INTEGER, REAL)] or [None])
            call = "COUNT(*)" if number is None else f"{dice.choice(('MAX', 'MIN'))}({number.text})"
            outputs = (Named(key.text, "v0", key.type), Named(call, "v1", number.type if number else INTEGER))
            return Table(alias, relation, rows=Rows(tuple(relations), tuple(where), outputs, (key.text,)))
        chosen = dice.sample(scope, 2)
        outputs = tuple(Named(each.text, f"v{number}", each.type) for number, each in enumerate(chosen))
        return Table(alias, relation, rows=Rows(tuple(relations), tuple(where), outputs))

    def _test(self, scope: Scope, *, correlated: bool = True) -> Probe:
        """A condition with relations in it, on columns of `scope`."""
        found = self._asked(scope, correlated=correlated)
        return replace(found, instead=self.condition(scope)) if correlated and self.dice.random() < 0.1 else found

    def _asked(self, scope: Scope, *, correlated: bool) -> Probe:
        dice, inside = self.dice, self._alias("q")
        scope = [each for each in scope if each.type is not BOOLEAN] or scope
        left = dice.choice(scope)
        relation = dice.choice(sorted(RELATIONS))
        relations = [(relation, inside)]
        columns = self.scope_of(Table(inside, relation))
        where = [self.condition(columns)] if dice.random() < 0.3 else []
        if dice.random() < 0.15:
            second, other = dice.choice(sorted(RELATIONS)), self._alias("q")
            relations.append((second, other))
            added = self.scope_of(Table(other, second))
            where.append(self._link(added, columns))
            columns = [*columns, *added]
        across = [self._link(columns, scope)] if correlated and dice.random() < 0.4 else []
        kind = dice.choice(("IN", "IN", "NOT IN", "NOT IN", "EXISTS", "NOT EXISTS", "ALL", "ANY", "one"))
        comparable = [each for each in columns if _comparable(each.type, left.type)]
        if kind in ("EXISTS", "NOT EXISTS") or not comparable or left.type is BOOLEAN:
            if correlated:
                across = across or [self._link(columns, scope)]
            kind = kind if kind in ("EXISTS", "NOT EXISTS") else "EXISTS"
            return Probe("", kind, Rows(tuple(relations), tuple(where + across), ()))
        value = dice.choice(comparable)
        if kind == "one":
            # A correlated aggregate can be asked for by equality only.
            across = [each for each in across if _is_plain_equality(each)]
            text = f"{dice.choice(('MAX', 'MIN'))}({value.text})"
            rows = Rows(tuple(relations), tuple(where + across), (Named(text, "v", value.type),))
            return Probe(left.text, dice.choice(COMPARISONS), rows)
        rows = Rows(tuple(relations), tuple(where + across), (Named(value.text, "v", value.type),))
        if kind in ("ALL", "ANY"):
            return Probe(left.text, f"{dice.choice(('<', '<=', '>', '>=', '='))} {kind}", rows)
        return Probe(left.text, kind, rows)


def _comparable(one: FieldType, other: FieldType) -> bool:
    numbers = (INTEGER, REAL)
    return (one is other and one is not BOOLEAN) or (one in numbers and other in numbers)


def _is_plain_equality(condition: str) -> bool:
    return " = " in condition and " OR " not in condition and len(aliases_in([condition])) == 2

"""Random expressions about intervals: VALID, INTERSECT, DURATION, ALLEN and relations, and what they are in DuckDB.

In the definition, an item of FROM whose tuples have intervals has them in a column of its table, as structs of begin
and end; no interval is NULL.
"""

from __future__ import annotations

import operator
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Aggregate, Binding, Exactness, Known, Scalar, words
from tests.cluster.oracle.text_forms import Output, Star
from tests.cluster.oracle.text_leaves import Leaf, Turns
from tests.cluster.oracle.text_operations import BOOLEAN, INTEGER, REAL, TEXT
from tests.cluster.oracle.text_outputs import unique
from tests.cluster.oracle.text_writing import scalar_text

INTERVAL, TIMESTAMP = FieldType.INTERVAL, FieldType.TIMESTAMP
COLUMN = "iv"
"""The column of a table with the intervals of tuples."""
COMPARED = {"<": operator.lt, "=": operator.eq}
RELATIONS = {
    "OVERLAPS": "a1 < b2 AND b1 < a2",
    "CONTAINS": "a1 <= b1 AND b2 <= a2",
    "DURING": "b1 <= a1 AND a2 <= b2",
    "EQUALS": "a1 = b1 AND a2 = b2",
    "BEFORE": "a2 < b1",
    "AFTER": "b2 < a1",
    "MEETS": "a2 = b1",
    "STARTS": "a1 = b1 AND a2 < b2",
    "FINISHES": "a2 = b2 AND b1 < a1",
}
"""What words between two intervals mean (docs/reference/sql/intervals.md, Intervals)."""
OF_ALLEN = {
    "before": "a2 < b1",
    "meets": "a2 = b1",
    "met by": "b2 = a1",
    "after": "b2 < a1",
    "equals": "a1 = b1 AND a2 = b2",
    "starts": "a1 = b1 AND a2 < b2",
    "started by": "a1 = b1 AND b2 < a2",
    "finishes": "a2 = b2 AND b1 < a1",
    "finished by": "a2 = b2 AND a1 < b1",
    "during": "b1 < a1 AND a2 < b2",
    "contains": "a1 < b1 AND b2 < a2",
    "overlaps": "a1 < b1 AND b1 < a2 AND a2 < b2",
    "overlapped by": "b1 < a1 AND a1 < b2 AND b2 < a2",
}
"""J. F. Allen, Maintaining knowledge about temporal intervals, 1983, figure 2; of empty ones the first that holds."""


def _bounds(condition: str, names: str = "ab") -> str:
    """Return a condition over begin and end of structs."""
    for name in names:
        for number, field in ((1, "b"), (2, "e")):
            condition = condition.replace(f"{name}{number}", f"struct_extract({name}, '{field}')")
    return condition


def _common(names: str) -> str:
    """Return what intervals have in common: something if each two of them have."""
    met = " AND ".join(f"{one}1 < {other}2" for one, other in permutations(names, 2))
    begin, end = (f"list_{of}([{', '.join(f'{name}{end}' for name in names)}])" for of, end in (("max", 1), ("min", 2)))
    return _bounds(f"CASE WHEN {met} THEN struct_pack(b := {begin}, e := {end}) END", names)


def _holds(condition: str, bounds: Mapping[str, int]) -> bool:
    """Return whether a condition over begin and end of intervals holds for these."""
    compared = (each.split() for each in condition.split(" AND "))
    return all(COMPARED[sign](bounds[one], bounds[other]) for one, sign, other in compared)


def _allen() -> str:
    """Return the name of a relation, looked up by how the bounds are ordered: CASE would have them too often."""
    names: dict[int, str] = {}
    spans = [(begin, end) for begin in range(5) for end in range(begin, 5)]
    for (a1, a2), (b1, b2) in product(spans, spans):
        bounds = {"a1": a1, "a2": a2, "b1": b1, "b2": b2}
        holds = (name for name, condition in OF_ALLEN.items() if _holds(condition, bounds))
        place = 0
        for one, other in ORDERS:
            place = 3 * place + (bounds[one] > bounds[other]) - (bounds[one] < bounds[other]) + 1
        names[place] = next(holds)
    listed = ", ".join(f"'{names[place]}'" if place in names else "NULL" for place in range(3 ** len(ORDERS)))
    places = " + ".join(f"{3**n} * (sign({one} - {other}) + 1)" for n, (one, other) in enumerate(reversed(ORDERS)))
    return f"list_extract([{listed}], ({_bounds(places)})::BIGINT + 1)"


ORDERS = (("a1", "b1"), ("a2", "b2"), ("a2", "b1"), ("a1", "b2"))
INTERVAL_MACROS = (
    *(f"CREATE MACRO f_{name.lower()}(a, b) AS {_bounds(condition)}" for name, condition in RELATIONS.items()),
    f"CREATE MACRO f_allen(a, b) AS {_allen()}",
    f"CREATE MACRO f_common_2(a, b) AS {_common('ab')}",
    f"CREATE MACRO f_common_3(a, b, c) AS {_common('abc')}",
    f"CREATE MACRO f_lasting(a) AS {_bounds('a2 - a1')}",
)


@dataclass(frozen=True)
class Span:
    """The interval of the tuples of an item of FROM: what the item is called, and its column in DuckDB.

    Parameters
    ----------
    alone
        True if the text may leave out what it is called: no other item has VALID UNTIL NEXT or COALESCE.
    """

    alias: str
    sql: str
    alone: bool = False


class IntervalDrawing:
    """Draws expressions about some intervals.

    Parameters
    ----------
    dice
        All randomness.
    turns
        What was drawn before.
    spans
        The intervals that a place in a text offers.
    """

    def __init__(self, dice: random.Random, turns: Turns, spans: Sequence[Span]) -> None:
        self._dice = dice
        self._turns = turns
        self._spans = [each for each in spans if each.alias or each.alone]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._spans)

    def interval(self, depth: int = 1) -> Scalar:
        """Return an interval: that of an item, or what some have in common."""
        dice = self._dice
        if depth > 0 and dice.random() < 0.25:
            parts = tuple(self.interval(depth - 1) for _ in range(dice.choice((2, 2, 3))))
            listed, count = ", ".join(f"{{{n}}}" for n in range(len(parts))), len(parts)
            text, sql = words(f"INTERSECT({listed})"), words(f"f_common_{count}({listed})")
            return Scalar(None, text, sql, parts, label=f"INTERSECT of {count}")
        found = self.of(dice.choice(self._spans))
        return replace(found, parentheses=1) if dice.random() < 0.05 else found

    def of(self, span: Span) -> Scalar:
        """Return the interval of an item."""
        dice = self._dice
        named = span.alias and (not span.alone or dice.random() < 0.7)
        text = f"VALID({spelling.name(dice, span.alias) if named else ''})"
        return Scalar(None, (text,), (span.sql,), label="VALID", span=span.sql)

    def duration(self) -> Scalar:
        """Return how long an interval is: no value of the types that other expressions take."""
        return Scalar(
            INTERVAL, words("DURATION({0})"), words("f_lasting({0})"), (self.interval(),), label="DURATION"
        )  # fmt: skip

    def leaves(self) -> dict[FieldType, list[Leaf]]:
        """Return what draws values made of intervals, by type."""
        if not self:
            return {}
        return {
            REAL: [lambda _need: _seconds(self.duration())],
            BOOLEAN: [lambda _need: self.relation(), lambda _need: self.relation(), lambda _need: self._compared()],
            TEXT: [lambda _need: self._allen()],
        }

    def aggregates(self) -> dict[FieldType, list[Leaf]]:
        """Return what draws values made of aggregates of durations, by type."""
        if not self:
            return {}
        counted = [lambda _need: self._counted()]
        longest = [lambda _need: _seconds(self.extreme())] * 2
        return {REAL: longest, INTEGER: counted, BOOLEAN: [lambda _need: self._compared_extreme()]}

    def relation(self) -> Scalar:
        """Return whether two intervals are related in some way."""
        word = self._turns.choose(self._dice, tuple(RELATIONS), "relation")
        return self.related(word, self.interval(), self.interval())

    def related(self, word: str, one: Scalar, other: Scalar) -> Scalar:
        """Return whether two intervals are related by a word."""
        text, sql = words(f"{{0}} {word} {{1}}"), words(f"f_{word.lower()}({{0}}, {{1}})")
        return Scalar(BOOLEAN, text, sql, (one, other), Binding.COMPARISON, word)

    def _allen(self) -> Scalar:
        parts = (self.interval(), self.interval())
        return Scalar(TEXT, words("ALLEN({0}, {1})"), words("f_allen({0}, {1})"), parts, label="ALLEN")

    def _compared(self) -> Scalar:
        dice = self._dice
        way = dice.random()
        if way < 0.15:
            text, sql = words("{0:3} IS NULL"), words("{0} IS NULL")
            return Scalar(BOOLEAN, text, sql, (self.duration(),), Binding.IS, "IS NULL(interval)")
        other = self.duration() if way < 0.35 else _length(dice)
        return _comparison(dice, self.duration(), other)

    def extreme(self) -> Scalar:
        """Return the longest or the shortest duration of a group."""
        function = self._turns.choose(self._dice, ("max", "min"), "extreme")
        return Scalar(
            INTERVAL, words(f"{function.upper()}({{0}})"), (), (self.duration(),),
            label=f"{function.upper()}(interval)", aggregate=Aggregate(function), default=function,
        )  # fmt: skip

    def _compared_extreme(self) -> Scalar:
        return _comparison(self._dice, self.extreme(), _length(self._dice))

    def _counted(self) -> Scalar:
        distinct = self._dice.random() < 0.4
        text = words(f"COUNT({'DISTINCT ' if distinct else ''}{{0}})")
        return Scalar(
            INTEGER, text, (), (self.duration(),), label="COUNT(interval)",
            aggregate=Aggregate("count", distinct=distinct), default="count_distinct" if distinct else "count",
        )  # fmt: skip

    def shown(self, taken: Sequence[str], *, grouped: bool) -> Output | Star:
        """Return a column of SELECT that is a duration, or the two of an interval; of groups a duration only."""
        dice = self._dice
        if grouped or dice.random() < 0.4:
            name = unique("lasting", taken)
            return Output(self.extreme() if grouped else self.duration(), name, f"AS {name}")
        interval = self.interval()
        text, own = scalar_text(interval), "valid"
        if dice.random() < 0.6:
            used = {each.casefold() for each in taken}
            own = dice.choice([each for each in ("held", "Spell", "für") if f"{each}_start".casefold() not in used])
            text = f"{text} {'AS ' if dice.random() < 0.7 else ''}{spelling.name(dice, own, exactly=True)}"
        ends = []
        for word, bound in (("start", "b"), ("end", "e")):
            # No expression of a text is one of both bounds: ORDER BY has its name or place.
            known = Known("", TIMESTAMP, "", "")
            sql = words(f"struct_extract({{0}}, '{bound}')")
            ends.append(Output(Scalar(TIMESTAMP, (), sql, (interval,), known=known), unique(f"{own}_{word}", taken)))
        return Star(text, tuple(ends))


def with_intervals(
    leaves: Mapping[FieldType, Sequence[Leaf]], more: Mapping[FieldType, Sequence[Leaf]]
) -> dict[FieldType, list[Leaf]]:  # fmt: skip
    """Return leaves, and others of the same types."""
    found: dict[FieldType, list[Leaf]] = defaultdict(list)
    for each in (leaves, more):
        for kind, drawn in each.items():
            found[kind] += drawn
    return found


def _seconds(duration: Scalar) -> Scalar:
    return Scalar(
        REAL, words("EXTRACT(EPOCH FROM {0})"), words("({0}::DOUBLE / 1000000.0::DOUBLE)"), (duration,),
        label="EPOCH(interval)", exactness=Exactness.SAME,
    )  # fmt: skip


def _length(dice: random.Random) -> Scalar:
    """Return a duration that is written out."""
    size = dice.choice((0, 1, 2, 3, 5, 8))
    text = dice.choice(
        (f"INTERVAL '{size} US'", f"INTERVAL {size} MICROSECONDS", f"INTERVAL '{size / 10**6:.6f}' SECOND")
    )
    return Scalar(INTERVAL, (text,), (f"{size}::BIGINT",))


def _comparison(dice: random.Random, one: Scalar, other: Scalar) -> Scalar:
    sides = [one, other]
    dice.shuffle(sides)
    sign = dice.choice(("=", "<>", "<", "<=", ">", ">="))
    return Scalar(
        BOOLEAN, words(f"{{0:5}} {sign} {{1:5}}"), words(f"{{0}} {sign} {{1}}"), tuple(sides), Binding.COMPARISON,
        f"{sign}(interval, interval)",
    )  # fmt: skip

"""Random texts with MATCH_RECOGNIZE, each with its meaning: never seen by our parser, planner and operators."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cluster.pattern_definition import Element, Row, Sight, Stamped, matches, ordered

COLUMNS = ("k", "x", "y")
Value = Callable[[Sight], Any]


@dataclass(frozen=True)
class Expression:
    """An expression as it is written, the columns of rows that it reads, and its value."""

    text: str
    reads: frozenset[str]
    value: Value


@dataclass(frozen=True)
class PatternQuery:
    """A text and its meaning.

    Parameters
    ----------
    text
        The clause with all that is around it.
    answers
        The rows of the answer with their stamps, given the tuples of the stream.
    """

    text: str
    answers: Callable[[Sequence[Stamped]], list[tuple[int, tuple[Any, ...]]]]


def random_query(dice: random.Random) -> PatternQuery:
    """Return a random query over the stream `readings`."""
    return _Drawing(dice).query()


class _Drawing:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.names = dice.sample(("A", "B", "C", "up", "Down", "last_one"), dice.choice((1, 2, 2, 3, 4)))
        fixed = dice.random() < 0.2
        self.elements = [self._element(name, fixed=fixed) for name in self.names]
        if dice.random() < 0.2:
            self.elements.append(self._element(dice.choice(self.names), fixed=fixed))
        if not any(each.least for each in self.elements):
            self.elements[0] = Element(self.elements[0].variable, 1, self.elements[0].most)
        self.within = None if fixed and dice.random() < 0.7 else dice.choice((1, 4, 8, 15, 30))
        self.keys = dice.choice((("k",), ("k",), ("k",), (), ("k", "y")))

    def _element(self, name: str, *, fixed: bool) -> Element:
        dice = self.dice
        if fixed:
            count = dice.choice((1, 1, 1, 2))
            return Element(name, count, count)
        least, most = dice.choice(((1, 1), (1, 1), (1, None), (0, None), (0, 1), (2, 2), (1, 3), (0, 2), (2, None)))
        return Element(name, least, most, reluctant=dice.random() < 0.3 and (least, most) not in ((1, 1), (2, 2)))

    def query(self) -> PatternQuery:
        dice = self.dice
        defined = [name for name in self.names if dice.random() < 0.8]
        conditions = {name: self._condition(name, dice.choice((0, 0, 1, 2))) for name in defined}
        measures = [self._operand(None) for _ in range(dice.randint(1, 4))]
        skip = self._skip()
        low = dice.choice((None, None, 0, 1))
        read = {*self.keys, *(name for each in (*conditions.values(), *measures) for name in each.reads)}
        text = self._written(conditions, measures, skip, low)

        def fits(variable: str, sight: Sight) -> bool:
            return variable not in conditions or conditions[variable].value(sight) is True

        def answers(stream: Sequence[Stamped]) -> list[tuple[int, tuple[Any, ...]]]:
            parts: dict[tuple[Any, ...], list[Stamped]] = {}
            for stamp, row in stream:
                if low is None or (row["x"] is not None and row["x"] > low):
                    parts.setdefault(tuple(row[key] for key in self.keys), []).append((stamp, row))
            found = []
            for key, rows in parts.items():
                own = ordered(rows, [name for name in COLUMNS if name in read])
                for taken in matches(own, self.elements, fits, self.within, skip):
                    sight = Sight(own, taken, self.within)
                    found.append((own[taken[-1][1]][0], (*key, *(each.value(sight) for each in measures))))
            return found

        return PatternQuery(text, answers)

    def _skip(self) -> tuple[str, str]:
        kind = self.dice.choice(("past last row", "past last row", "to next row", "to first", "to last"))
        if kind in ("past last row", "to next row"):
            return kind, ""
        behind = [
            place for place, each in enumerate(self.elements)
            if each.least and any(before.least for before in self.elements[:place])
        ]  # fmt: skip
        names = [
            name for name in self.names
            if (mine := [place for place, each in enumerate(self.elements) if each.variable == name])
            and mine[0] in behind
        ]  # fmt: skip
        return (kind, self.dice.choice(names)) if names else ("past last row", "")

    def _written(
        self, conditions: dict[str, Expression], measures: list[Expression], skip: tuple[str, str], low: int | None
    ) -> str:
        dice = self.dice
        partition = f"PARTITION BY {', '.join(self.keys)} " if self.keys else ""
        listed = ", ".join(f"{each.text} AS m{number}" for number, each in enumerate(measures))
        way = {
            "past last row": dice.choice(("", "AFTER MATCH SKIP PAST LAST ROW ")),
            "to next row": "AFTER MATCH SKIP TO NEXT ROW ",
            "to first": f"AFTER MATCH SKIP TO FIRST {skip[1]} ",
            "to last": f"AFTER MATCH SKIP TO {dice.choice(('', 'LAST '))}{skip[1]} ",
        }[skip[0]]
        within = f"WITHIN {dice.choice((f'{self.within} US', f'INTERVAL {self.within!r} MICROSECOND'))} ".replace(
            f"INTERVAL {self.within}", f"INTERVAL '{self.within}'"
        )  # fmt: skip
        pattern = dice.choice((" ", "  ")).join(self._quantified(each) for each in self.elements)
        defined = ", ".join(f"{name} AS {each.text}" for name, each in conditions.items())
        rows = dice.choice(("", "ONE ROW PER MATCH "))
        clause = (
            f"MATCH_RECOGNIZE ({partition}ORDER BY STAMP() MEASURES {listed} {rows}{way}PATTERN ({pattern}) "
            f"{within if self.within else ''}{f'DEFINE {defined}' if defined else ''})"
        )
        source = dice.choice(("readings", "readings AS r"))
        return f"{source if low is None else f'(SELECT * FROM readings WHERE x > {low})'} {clause}"

    def _quantified(self, element: Element) -> str:
        signs = {(1, 1): ("", "{1}"), (1, None): ("+", "{1,}"), (0, None): ("*", "{0,}"),
                 (0, 1): ("?", "{0,1}", "{,1}")}  # fmt: skip
        most = "" if element.most is None else element.most
        exact = f"{{{element.least}}}" if element.least == element.most else f"{{{element.least},{most}}}"
        sign = self.dice.choice(signs.get((element.least, element.most), (exact,)))
        if element.least == element.most:
            return element.variable + sign
        return element.variable + sign + ("?" if element.reluctant else "")

    def _column(self, variable: str | None, name: str) -> str:
        dice = self.dice
        spelled = name if dice.random() < 0.8 else name.upper()
        return spelled if variable is None else f"{dice.choice((variable, variable.upper()))}.{spelled}"

    def _operand(self, current: str | None) -> Expression:
        dice = self.dice
        kind = dice.choice(("column", "column", "number", "number", "prev", "last", "first", "aggregate", "sum"))
        if current is None and kind == "number":
            kind = dice.choice(("aggregate", "stamp"))
        name = dice.choice(("x", "y"))
        variable = dice.choice((None, current, current, *self.names))
        column = self._column(variable, name)
        reads = frozenset({name})
        offset = dice.randint(0, 2)
        match kind:
            case "stamp":
                return self._stamp(variable)
            case "number":
                number = dice.randint(0, 3)
                return Expression(str(number), frozenset(), lambda _: number)
            case "column":
                return Expression(column, reads, lambda sight: _of(sight, sight.nth(variable, 0, first=False), name))
            case "prev":
                far = max(offset, 1)
                text = f"PREV({column})" if far == 1 and dice.random() < 0.5 else f"PREV({column}, {far})"
                return Expression(
                    text,
                    reads,
                    lambda sight: _of(sight, sight.before(sight.nth(variable, 0, first=False), far), name),
                )
            case "last" | "first":
                text = f"{kind.upper()}({column}{f', {offset}' if offset or dice.random() < 0.3 else ''})"
                return Expression(
                    text, reads, lambda sight: _of(sight, sight.nth(variable, offset, first=kind == "first"), name)
                )
            case "aggregate":
                return self._aggregate(variable, name)
            case _:
                one, other = self._number(current), self._number(current)
                sign, combined = dice.choice((("+", lambda a, b: a + b), ("-", lambda a, b: a - b)))
                return Expression(
                    f"({one.text} {sign} {other.text})",
                    one.reads | other.reads,
                    lambda sight: _strict(combined, one.value(sight), other.value(sight)),
                )

    def _number(self, current: str | None) -> Expression:
        """Return an operand that is no stamp."""
        while (found := self._operand(current)).text.upper().find("STAMP") >= 0:
            continue
        return found

    def _stamp(self, variable: str | None) -> Expression:
        """Return the stamp of a row, as the answer shows it."""
        dice = self.dice
        stamp = f"STAMP({variable or ''})"
        first = dice.random() < 0.6
        text = f"FIRST({stamp})" if first else dice.choice((stamp, f"LAST({stamp})"))
        return Expression(
            text,
            frozenset(),
            lambda sight: _shown(sight, sight.nth(variable, 0, first=first)),
        )

    def _aggregate(self, variable: str | None, name: str) -> Expression:
        dice = self.dice
        function = dice.choice(("COUNT", "SUM", "MIN", "MAX", "COUNT(*)"))
        if function == "COUNT(*)":
            text = "COUNT(*)" if variable is None else f"COUNT({variable}.*)"
            return Expression(text, frozenset(), lambda sight: len(sight.of(variable)))
        folded: Callable[[list[Any]], Any] = {"COUNT": len, "SUM": sum, "MIN": min, "MAX": max}[function]
        distinct = function == "COUNT" and dice.random() < 0.3
        over = None if distinct or dice.random() < 0.8 else dice.randint(0, 2)
        column = self._column(variable, name)
        condition = "" if over is None else f" FILTER (WHERE {self._column(variable, 'y')} > {over})"

        def value(sight: Sight) -> Any:
            rows = [sight.rows[row][1] for row in sight.of(variable)]
            if over is not None:
                rows = [row for row in rows if row["y"] is not None and row["y"] > over]
            found = [row[name] for row in rows if row[name] is not None]
            found = list(dict.fromkeys(found)) if distinct else found
            return folded(found) if found or function == "COUNT" else None

        reads = frozenset({name} if over is None else {name, "y"})
        return Expression(f"{function}({'DISTINCT ' if distinct else ''}{column}){condition}", reads, value)

    def _condition(self, current: str, depth: int) -> Expression:
        dice = self.dice
        kind = dice.choice(("and", "or", "or", "not", "compare")) if depth else "compare"
        if kind in ("and", "or"):
            one, other = self._condition(current, depth - 1), self._condition(current, depth - 1)
            absorbing = kind == "or"
            return Expression(
                f"({one.text} {kind.upper()} {other.text})" if kind == "or" else f"{one.text} AND {other.text}",
                one.reads | other.reads,
                lambda sight: _connected(absorbing, one.value(sight), other.value(sight)),
            )
        if kind == "not":
            inner = self._condition(current, depth - 1)
            denied = lambda sight: _strict(lambda value: not value, inner.value(sight))  # noqa: E731 - a value
            return Expression(f"NOT ({inner.text})", inner.reads, denied)
        one, other = self._operand(current), self._operand(current)
        if dice.random() < 0.15:
            return Expression(f"{one.text} IS NULL", one.reads, lambda sight: one.value(sight) is None)
        sign, compared = dice.choice((
            ("<", lambda a, b: a < b), (">", lambda a, b: a > b), ("<=", lambda a, b: a <= b),
            ("=", lambda a, b: a == b), ("<>", lambda a, b: a != b),
        ))  # fmt: skip
        return Expression(
            f"{one.text} {sign} {other.text}",
            one.reads | other.reads,
            lambda sight: _strict(compared, one.value(sight), other.value(sight)),
        )


def _of(sight: Sight, row: int | None, name: str) -> Any:
    return None if row is None else sight.rows[row][1][name]


def _shown(sight: Sight, row: int | None) -> str | None:
    return None if row is None else f"1970-01-01T00:00:00.{sight.rows[row][0]:06}Z"


def _strict(function: Callable[..., Any], *values: Any) -> Any:
    return None if None in values else function(*values)


def _connected(absorbing: bool, *values: bool | None) -> bool | None:
    if absorbing in values:
        return absorbing
    return None if None in values else not absorbing


def random_stream(dice: random.Random) -> list[Stamped]:
    """Return tuples in order of arrival: equal stamps, NULLs, and some out of order."""
    count = dice.randint(0, 40)
    few = dice.choice((1, 2, 3))
    rows: list[Stamped] = []
    stamp = 0
    for _ in range(count):
        stamp += dice.choice((0, 1, 1, 2, 5))
        row: Row = {
            "k": dice.choice(("a", "b", None)[:few]),
            "x": dice.choice((0, 1, 2, 3, 0, 1, 2, 3, None)),
            "y": dice.choice((0, 1, 2, 0, 1, 2, None)),
        }
        rows.append((stamp, row))
    if dice.random() < 0.5:
        rows.sort(key=lambda each: each[0] + dice.randint(0, 4))
    return rows

"""Random functions over tuples in order: how they are written, and what they are in DuckDB."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster.operators.sequence import SequenceCall, SequenceFunction
from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.sequence_sql import OrderSql
from tests.cluster.oracle.text_expressions import Exactness, Known

INTEGER, REAL, TEXT, BOOLEAN = FieldType.INTEGER, FieldType.REAL, FieldType.TEXT, FieldType.BOOLEAN
LITERALS = {INTEGER: "2", REAL: "0.5", TEXT: "'x'", BOOLEAN: "TRUE"}
OVER, ORDER, CHANGED, LAST_VALUE = "OVER", "ORDER BY", "CHANGED", "LAST_VALUE"


@dataclass(frozen=True)
class Value:
    """An argument: FjordSQL, DuckDB over the columns c0, c1 ..., and the columns that it reads."""

    text: str
    sql: str
    type: FieldType
    reads: tuple[int, ...] = ()
    exactness: Exactness = Exactness.EVEN
    wild: bool = False


@dataclass(frozen=True)
class Called:
    """A function over tuples in order, as a :class:`Value` whose DuckDB needs an order yet: ``{order}``."""

    text: str
    parts: tuple[tuple[SequenceCall, str | None, str | None], ...]
    template: str
    type: FieldType
    reads: tuple[int, ...]
    exactness: Exactness = Exactness.EVEN
    wild: bool = False

    def sql(self, order: OrderSql) -> str:
        """Return it in DuckDB."""
        return self.template.format(*(order.of(*part) for part in self.parts))


class InOrderDrawing:
    """Draws functions over some columns.

    Parameters
    ----------
    dice
        All randomness.
    columns
        Those of the tuples.
    keys
        The columns of PARTITION BY, by place.
    stamp
        The name of the column that is the stamp, if there is one.
    """

    def __init__(self, dice: random.Random, columns: Sequence[Known], keys: Sequence[int], stamp: str | None) -> None:
        self._dice = dice
        self._columns = columns
        self._keys = keys
        self._stamp = stamp

    def called(self) -> Called:
        """Return any function."""
        return self._dice.choice(
            (self._neighbour, self._neighbour, self._changed, self._hysteresis, self._end, self._running)
        )()

    def condition(self) -> Called:
        """Return one that is a condition."""
        return self._dice.choice((self._changed, self._hysteresis))()

    def _column(self, *kinds: FieldType) -> Value | None:
        fitting = [place for place, each in enumerate(self._columns) if not kinds or each.type in kinds]
        if not fitting:
            return None
        place = self._dice.choice(fitting)
        known = self._columns[place]
        written = spelling.name(self._dice, known.name)
        return Value(written, f"c{place}", known.type, (place,), known.exactness, known.wild)

    def _value(self, *kinds: FieldType) -> Value:
        dice = self._dice
        column = self._column(*kinds)
        if column is None or dice.random() < 0.25:
            kind = dice.choice(kinds or tuple(LITERALS))
            return Value(LITERALS[kind], f"{LITERALS[kind]}::{_sql_type(kind)}", kind)
        if dice.random() < 0.2:
            literal = LITERALS[column.type]
            built = f"COALESCE({{}}, {literal})"
            return Value(
                built.format(column.text), f"coalesce({column.sql}, {literal}::{_sql_type(column.type)})", column.type,
                column.reads, column.exactness, column.wild,
            )  # fmt: skip
        if (not kinds or BOOLEAN in kinds) and dice.random() < 0.2:
            return Value(f"{column.text} IS NULL", f"{column.sql} IS NULL", BOOLEAN, column.reads)
        return column

    def _over(self, *, order: bool, frame: str = "", within: int | None = None) -> str:
        dice = self._dice
        parts = []
        if self._keys:
            names = [spelling.name(dice, self._columns[key].name) for key in self._keys]
            parts.append(f"PARTITION BY {', '.join(names)}")
        if order:
            by_column = self._stamp is not None and dice.random() < 0.4
            parts.append(f"ORDER BY {self._stamp if by_column else 'STAMP()'}")
        over = f"{OVER} ({' '.join([*parts, *([frame] if frame else [])])})"
        return over if within is None else f"{over} WITHIN {spelling.duration(dice, within) if within else '0'}"

    def _neighbour(self) -> Called:
        dice = self._dice
        value, rows = self._value(), dice.choice((1, 1, 2, 3))
        function: SequenceFunction = dice.choice(("lag", "lead"))
        within = dice.choice((0, 1, 3, 8)) if function == "lead" or dice.random() < 0.4 else None
        text, fallback, kind = value.text, None, value.type
        if rows > 1 or dice.random() < 0.3:
            text += f", {rows}"
            if function == "lag" and dice.random() < 0.5:
                default = self._default(value)
                text, fallback = f"{text}, {default.text}", default.sql
                kind = default.type
                value = Value(value.text, value.sql, value.type, (*value.reads, *default.reads))
        call = SequenceCall("", function, "", kind, rows=rows, within_us=within)
        over = self._over(order=dice.random() < 0.6, within=within)
        written = f"{function.upper()}({text}) {over}"
        return Called(written, ((call, value.sql, fallback),), "{}", kind, value.reads)

    def _default(self, value: Value) -> Value:
        choice = self._dice.random()
        if choice < 0.2:
            return Value("NULL", "NULL", value.type)
        if choice < 0.4 and value.type is INTEGER:
            return Value("0.5", "0.5::DOUBLE", REAL)
        found = self._value(value.type)
        return found if found.type is value.type else Value("NULL", "NULL", value.type)

    def _changed(self) -> Called:
        dice = self._dice
        values = [self._value() for _ in range(dice.choice((1, 1, 2)))]
        within = dice.choice((0, 2, 6)) if dice.random() < 0.3 else None
        calls = [(SequenceCall("", "lag", "", each.type, rows=1, within_us=within), each.sql, None) for each in values]
        parts = [f"({each.sql}) IS DISTINCT FROM {{{n}}}" for n, each in enumerate(values)]
        over = self._over(order=dice.random() < 0.3, within=within)
        written = f"{CHANGED}({', '.join(each.text for each in values)}) {over}"
        return Called(written, tuple(calls), f"({' OR '.join(parts)})", BOOLEAN, _reads(values))

    def _hysteresis(self) -> Called:
        dice = self._dice
        value = self._value(INTEGER, REAL)
        above, below = dice.choice(((1, 0), (1.5, 0.5), (2, -1), (0.5, 0.5)))
        levels = f"ABOVE {above}" + (f" BELOW {below}" if below != above or dice.random() < 0.3 else "")
        number = f"({value.sql})" if isinstance(above, int) else f"({value.sql})::DOUBLE"
        real = "" if isinstance(above, int) else "::DOUBLE"
        state = f"CASE WHEN {number} >= {above}{real} THEN TRUE WHEN {number} <= {below}{real} THEN FALSE END"
        call = SequenceCall("", "last", "", BOOLEAN, known=True)
        written = f"HYSTERESIS({value.text} {levels}) {self._over(order=dice.random() < 0.3)}"
        return Called(written, ((call, state, None),), "coalesce({}, FALSE)", BOOLEAN, value.reads)

    def _end(self) -> Called:
        dice = self._dice
        value, known = self._value(), dice.random() < 0.5
        function: SequenceFunction = dice.choice(("first", "last"))
        over, frame = self._framed()
        name = "FIRST_VALUE" if function == "first" else LAST_VALUE
        written = f"{name}({value.text})"
        if known:
            written = dice.choice((f"{name}({value.text} IGNORE NULLS)", f"{written} IGNORE NULLS"))
        call = SequenceCall("", function, "", value.type, known=known, **frame)
        return Called(f"{written} {over}", ((call, value.sql, None),), "{}", value.type, value.reads)

    def _running(self) -> Called:
        dice = self._dice
        over, frame = self._framed()
        function: SequenceFunction = dice.choice(("count", "sum", "avg", "min", "max"))
        value = self._value(*((INTEGER, REAL) if function in ("sum", "avg") else ()))
        if function in ("sum", "avg") and (value.wild or value.exactness is not Exactness.EVEN):
            value = Value("2", "2::BIGINT", INTEGER)
        kind = {"count": INTEGER, "avg": REAL}.get(function, value.type)
        call = SequenceCall("", function, "", kind, **frame)
        text, sql, reads = value.text, value.sql, value.reads
        if function == "count" and dice.random() < 0.4:
            text, sql, reads = "*", None, ()
        filtered = ""
        if dice.random() < 0.3:
            condition = self._value(BOOLEAN)
            filtered = f" FILTER (WHERE {condition.text})"
            sql = f"CASE WHEN {condition.sql} THEN {'1' if sql is None else sql} END"
            reads = (*reads, *condition.reads)
        written = f"{function.upper()}({text}){filtered} {over}"
        return Called(written, ((call, sql, None),), "{}", kind, reads)

    def _framed(self) -> tuple[str, dict[str, Any]]:
        """Return OVER with a frame, and the frame as a :class:`SequenceCall` has it."""
        dice = self._dice
        far = dice.choice((1, 2, 5))
        ordered = dice.random() < 0.5
        kind = dice.choice(("rows", "range", "all rows", "all", "none"))
        if kind == "none":
            return self._over(order=True), {"peers": True}
        by_time = "rows" not in kind
        word = "RANGE" if by_time else "ROWS"
        low = "UNBOUNDED" if kind.startswith("all") else self._bound(far, by_time=by_time)
        call: dict[str, Any] = {"peers": by_time}
        if kind in ("rows", "range"):
            call["range_us" if by_time else "rows"] = far
        ends = dice.random()
        frame = f"{word} {low} PRECEDING"
        if ends < 0.3:
            until = dice.randint(0, far)
            call["until_us" if by_time else "until_rows"] = until
            frame = f"{word} BETWEEN {low} PRECEDING AND {self._bound(until, by_time=by_time)} PRECEDING"
        elif ends < 0.7:
            frame = f"{word} BETWEEN {low} PRECEDING AND CURRENT ROW"
        return self._over(order=ordered, frame=frame), call

    def _bound(self, far: int, *, by_time: bool) -> str:
        """Return how far away a frame begins or ends, as it is written."""
        if not by_time or not far:
            return str(far)
        written = spelling.duration(self._dice, far)
        number, _, unit = written.partition(" ")
        return self._dice.choice((written, f"INTERVAL '{number}' {unit}", f"INTERVAL '{written}'"))


def _reads(values: Sequence[Value]) -> tuple[int, ...]:
    return tuple(place for each in values for place in each.reads)


def _sql_type(kind: FieldType) -> str:
    return {INTEGER: "BIGINT", REAL: "DOUBLE", TEXT: "VARCHAR", BOOLEAN: "BOOLEAN"}[kind]

"""Expressions with any number of arguments: CASE, IF, IN, BETWEEN, and LIKE with its pattern."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Binding, Exactness, Hole, Scalar, Words, words
from tests.cluster.oracle.text_operations import BOOLEAN, COMPARABLE, INTEGER, REAL, TEXT

if TYPE_CHECKING:
    from tests.cluster.oracle.text_scalars import Scalars

NULL_SHARE = 0.05
PATTERN_PIECES = (*"%_axyAb.*^$( ", "\\", "é", "ß", "日", "👩", "'", "\n", "[a]")
PLAIN_ESCAPE = "\x01"
"""That of DuckDB's patterns, which takes one byte."""
ESCAPES = ("!", "\\", "#", "é", "|")


def _results(scalars: Scalars, kind: FieldType, depth: int, count: int) -> list[Scalar]:
    """Return values to choose among; they have one type in common, and one of them may be NULL."""
    kinds = [scalars.dice.choice((INTEGER, REAL)) if kind is REAL else kind for _ in range(count)]
    kinds[0] = kind
    found = [scalars.argument(each, depth - 1, Exactness.NEARLY, "result") for each in kinds]
    if count > 1 and scalars.dice.random() < 2 * NULL_SHARE:
        found[-1] = scalars.null(kind)
    return found


def _case(scalars: Scalars, kind: FieldType, depth: int) -> Scalar:
    branches, other = scalars.dice.choice((1, 1, 2, 3)), scalars.dice.random() < 0.7
    conditions = [_truth(scalars, depth - 1) for _ in range(branches)]
    results = _results(scalars, kind, depth, branches + other)
    parts = [*conditions, *results]
    whens = [f" WHEN {{{n}}} THEN {{{branches + n}}}" for n in range(branches)]
    end = f" ELSE {{{2 * branches}}}" if other else ""
    text = f"CASE{''.join(whens)}{end} END"
    return scalars.built("CASE", kind, (words(text), Binding.ATOM), words(_widened(text, parts, branches, kind)), parts)


def _truth(scalars: Scalars, depth: int) -> Scalar:
    null = scalars.dice.random() < NULL_SHARE / 2
    return scalars.null(BOOLEAN) if null else scalars.argument(BOOLEAN, depth, Exactness.SAME, "truth")


def _if(scalars: Scalars, kind: FieldType, depth: int) -> Scalar:
    other = scalars.dice.random() < 0.8
    parts = [_truth(scalars, depth - 1), *_results(scalars, kind, depth, 1 + other)]
    name = scalars.dice.choice(("IF", "IIF"))
    text = f"{name}({{0}}, {{1}}{', {2}' if other else ''})"
    sql = _widened(f"CASE WHEN {{0}} THEN {{1}}{' ELSE {2}' if other else ''} END", parts, 1, kind)
    return scalars.built("IF", kind, (words(text), Binding.ATOM), words(sql), parts)


def _case_of(scalars: Scalars, kind: FieldType, depth: int) -> Scalar:
    one, other = scalars.dice.choice(COMPARABLE)
    branches, default = scalars.dice.choice((1, 1, 2)), scalars.dice.random() < 0.7
    subject = scalars.subject(one, depth - 1)
    tried = [scalars.argument(other, depth - 1, Exactness.SAME, "tried") for _ in range(branches)]
    if scalars.dice.random() < NULL_SHARE:
        tried[0] = scalars.null(other)
    parts = [subject, *tried, *_results(scalars, kind, depth, branches + default)]
    first = 1 + branches
    whens = [f" WHEN {{{n + 1}}} THEN {{{first + n}}}" for n in range(branches)]
    end = f" ELSE {{{first + branches}}} END" if default else " END"
    equal = [_same(0, n + 1, one, other) for n in range(branches)]
    sql = "CASE" + "".join(f" WHEN {each} THEN {{{first + n}}}" for n, each in enumerate(equal)) + end
    text = f"CASE {{0}}{''.join(whens)}{end}"
    return scalars.built("CASE OF", kind, (words(text), Binding.ATOM), words(_widened(sql, parts, first, kind)), parts)


def _in(scalars: Scalars, _: FieldType, depth: int) -> Scalar:
    one, other = scalars.dice.choice(COMPARABLE)
    count = scalars.dice.choice((1, 2, 2, 3, 5))
    parts = [scalars.subject(one, depth - 1)]
    parts += [scalars.argument(other, max(0, depth - 2), Exactness.SAME, "IN") for _ in range(count)]
    if scalars.dice.random() < 0.15:
        parts[-1] = scalars.null(other)
    if count == 1 and parts[1].query is not None:
        parts[1] = scalars.literal(other)  # IN ((SELECT ...)) is a condition on all rows of a query
    listed = ", ".join(f"{{{n}}}" for n in range(1, count + 1))
    either = " OR ".join(_same(0, n, one, other) for n in range(1, count + 1))
    return _negatable(scalars, "IN", f"IN ({listed})", f"({either})", parts)


def _row_in(scalars: Scalars, _: FieldType, depth: int) -> Scalar:
    kinds = [scalars.dice.choice(COMPARABLE) for _ in range(scalars.dice.choice((1, 2, 2, 3)) + 1)]
    rows, width = scalars.dice.choice((1, 2, 2, 3)), len(kinds)
    parts = [scalars.argument(one, depth - 1, Exactness.SAME, "row") for one, _ in kinds]
    for _ in range(rows):
        parts += [scalars.argument(other, 0, Exactness.SAME, "row IN") for _, other in kinds]
    if scalars.dice.random() < 0.15:
        parts[-1] = scalars.null(kinds[-1][1])
    row, *listed = (
        f"({', '.join(f'{{{at}}}' for at in range(first, first + width))})"
        for first in range(0, width * (rows + 1), width)
    )
    equal = [
        " AND ".join(_same(at, width * (number + 1) + at, *kinds[at]) for at in range(width)) for number in range(rows)
    ]
    sql = " OR ".join(f"({each})" for each in equal)
    way = scalars.dice.randint(0, 2)
    if way == 0:
        written = (words(f"{row} IN ({', '.join(listed)})"), Binding.COMPARISON)
        return scalars.built("ROW IN", BOOLEAN, written, words(f"({sql})"), parts)
    text = f"{row} NOT IN ({', '.join(listed)})" if way == 1 else f"NOT {row} IN ({', '.join(listed)})"
    negated = (words(text), Binding.COMPARISON if way == 1 else Binding.NOT)
    return scalars.built("NOT ROW IN", BOOLEAN, negated, words(f"NOT ({sql})"), parts)


def _between(scalars: Scalars, _: FieldType, depth: int) -> Scalar:
    one, other = scalars.dice.choice(COMPARABLE)
    kinds = (one, other, scalars.dice.choice((one, other)))
    parts = [scalars.argument(kind, depth - 1, Exactness.SAME, ("BETWEEN", n)) for n, kind in enumerate(kinds)]
    if scalars.dice.random() < 2 * NULL_SHARE:
        parts[scalars.dice.choice((0, 1, 2))] = scalars.null(other)
    low, high = (_compared(0, sign, n, one, kinds[n]) for sign, n in ((">=", 1), ("<=", 2)))
    order = scalars.dice.choice(("", "", "", " ASYMMETRIC", " SYMMETRIC"))
    sql = f"({low} AND {high})"
    if order == " SYMMETRIC":
        least, most = (_compared(0, sign, n, one, kinds[n]) for sign, n in ((">=", 2), ("<=", 1)))
        sql = f"({sql} OR ({least} AND {most}))"
    return _negatable(scalars, "BETWEEN", f"BETWEEN{order} {{1:5}} AND {{2:5}}", sql, parts)


def _like(scalars: Scalars, _: FieldType, depth: int) -> Scalar:
    dice = scalars.dice
    pieces = [(piece, piece) for piece in dice.choices(PATTERN_PIECES, k=dice.choice((0, 1, 2, 2, 3, 4)))]
    escape = dice.choice(ESCAPES) if dice.random() < 0.3 else None
    if escape is not None:
        meant = dice.choice(("%", "_", escape))
        pieces = [each for each in pieces if each[0] != escape]
        pieces.insert(dice.randint(0, len(pieces)), (escape + meant, PLAIN_ESCAPE + meant))
    pattern, plain_pattern = (spelling.text("".join(each[side] for each in pieces)) for side in (0, 1))
    end = "" if escape is None else f" ESCAPE {spelling.text(escape)}"
    word = dice.choice(("LIKE", "LIKE", "ILIKE"))
    label = word if escape is None else f"{word} ESCAPE"
    part = scalars.subject(TEXT, depth - 1)
    sql = ("(", Hole(0), f" {word} {plain_pattern} ESCAPE '{PLAIN_ESCAPE}')")
    plain: Words = (Hole(0, Binding.CONCATENATION), f" {word} {pattern}{end}")
    way = dice.randint(0, 2)
    if way == 0:
        return scalars.built(label, BOOLEAN, (plain, Binding.COMPARISON), sql, [part])
    negated: Words = (Hole(0, Binding.CONCATENATION), f" NOT {word} {pattern}{end}")
    written = (negated, Binding.COMPARISON) if way == 1 else (("NOT ", *plain), Binding.NOT)
    return scalars.built(f"NOT {label}", BOOLEAN, written, ("NOT ", *sql), [part])


def _negatable(scalars: Scalars, label: str, rest: str, sql: str, parts: Sequence[Scalar]) -> Scalar:
    written = (f"{{0:5}} {rest}", Binding.COMPARISON)
    way = scalars.dice.randint(0, 3)
    if way < 2:
        return scalars.built(label, BOOLEAN, (words(written[0]), written[1]), words(sql), parts)
    text, binding = (f"{{0:5}} NOT {rest}", Binding.COMPARISON) if way == 2 else (f"NOT {written[0]}", Binding.NOT)
    return scalars.built(f"NOT {label}", BOOLEAN, (words(text), binding), words(f"NOT {sql}"), parts)


def _compared(left: int, sign: str, right: int, one: FieldType, other: FieldType) -> str:
    wide = "::DOUBLE" if one is not other else ""
    return f"{{{left}}}{wide} {sign} {{{right}}}{wide}"


def _same(left: int, right: int, one: FieldType, other: FieldType) -> str:
    return _compared(left, "=", right, one, other)


def _widened(sql: str, parts: Sequence[Scalar], first: int, kind: FieldType) -> str:
    """Return `sql` in which the parts from `first` on are of the type that all have in common."""
    for number in range(first, len(parts)):
        if kind is REAL and parts[number].type is INTEGER:
            sql = sql.replace(f"THEN {{{number}}}", f"THEN {{{number}}}::DOUBLE")
            sql = sql.replace(f"ELSE {{{number}}}", f"ELSE {{{number}}}::DOUBLE")
    return sql


CHOICES: Mapping[str, Callable[[Scalars, FieldType, int], Scalar]] = {"CASE": _case, "CASE OF": _case_of, "IF": _if}
"""Of any type."""
TESTS: Mapping[str, Callable[[Scalars, FieldType, int], Scalar]] = {
    "IN": _in, "ROW IN": _row_in, "BETWEEN": _between, "LIKE": _like,
}  # fmt: skip
"""What is true or false."""

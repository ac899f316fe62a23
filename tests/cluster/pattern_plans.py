"""What the node of a pattern means: its expressions value by value, and its matches by their definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.language.dialect import parse_scalar
from cluster.operators import PatternMatch
from cluster.operators.columns import AggregateCall, Scalar
from cluster.operators.pattern_match import INSTANT, Reach
from tests.cluster.fjord.scalar_definition import value_of
from tests.cluster.pattern_definition import Element, Row, Sight, matches, ordered

_FOLDED = {"sum": sum, "min": min, "max": max, "avg": lambda values: sum(values) / len(values)}


def pattern_rows(node: PatternMatch, rows: Sequence[tuple[int, tuple[Any, ...]]]) -> list[tuple[int, tuple[Any, ...]]]:
    """Return the rows of the answer with their stamps, given those of the input."""
    pattern = node.pattern
    names = [column.name for column in node.input.schema]
    conditions = {each.variable: [part for part in (each.row, each.reaching) if part] for each in pattern.definitions}
    elements = [Element(each.variable, each.least, each.most, each.reluctant) for each in pattern.elements]

    def fits(variable: str, sight: Sight) -> bool:
        row = _columns(node, sight)
        return all(_value(part, row) is True for part in conditions.get(variable, ()))

    partitions: dict[tuple[Any, ...], list[tuple[int, Row]]] = {}
    for stamp, values in rows:
        row = dict(zip(names, values, strict=True))
        partitions.setdefault(tuple(row[key] for key in node.keys), []).append((stamp, row))
    found = []
    for key, own in partitions.items():
        in_order = ordered(own, pattern.ties)
        for taken in matches(in_order, elements, fits, pattern.within_us, (pattern.skip.kind, pattern.skip.variable)):
            measured = _columns(node, Sight(in_order, taken, pattern.within_us))
            values = tuple(_value(output.scalar, measured) for output in pattern.measures)
            found.append((in_order[taken[-1][1]][0], (*key, *values)))
    return found


def _columns(node: PatternMatch, sight: Sight) -> Row:
    """Return the columns of the current row, those of rows before it, and what is reached from it."""
    current = sight.taken[-1][1]
    row = _with_lags(node, sight, current)
    for reach in node.pattern.reaches:
        row[reach.name] = _reached(node, reach, sight)
    return row


def _with_lags(node: PatternMatch, sight: Sight, number: int) -> Row:
    row = {INSTANT: sight.rows[number][0], **sight.rows[number][1]}
    for lag in node.pattern.lags:
        before = sight.before(number, lag.rows)
        row[lag.name] = (
            None if before is None else _value(lag.scalar, {INSTANT: sight.rows[before][0], **sight.rows[before][1]})
        )
    return row


def _reached(node: PatternMatch, reach: Reach, sight: Sight) -> Any:
    if reach.call is not None:
        return _aggregated(reach.call, [_with_lags(node, sight, row) for row in sight.of(reach.variable)])
    number = sight.nth(reach.variable, reach.offset, first=reach.kind == "first")
    assert reach.scalar is not None
    return None if number is None else _value(reach.scalar, _with_lags(node, sight, number))


def _aggregated(call: AggregateCall, rows: list[Row]) -> Any:
    if call.argument is None:
        return len(rows)
    values = [found for row in rows if (found := _value(call.argument, row)) is not None]
    values = list(dict.fromkeys(values)) if call.distinct else values
    if call.function == "count":
        return len(values)
    return _FOLDED[call.function](values) if values else None


def _value(scalar: Scalar, row: Row) -> Any:
    return value_of(parse_scalar(scalar.sql), row)

"""Functions over tuples in order, by their definition: the whole sequence at once, tuple by tuple."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cluster.operators.sequence import SequenceCall
from protocols.wire.streams import FieldType

Row = tuple[Any, ...]
Stamped = tuple[int, Row]


def sequence_rows(
    rows: Sequence[Stamped],
    columns: Sequence[str],
    keys: Sequence[str],
    ties: Sequence[str],
    calls: Sequence[SequenceCall],
) -> list[Stamped]:
    """Return every tuple with the results of calls behind its values.

    Parameters
    ----------
    rows
        The tuples, in any order.
    columns
        The names of their values.
    keys, ties, calls
        As of the algebra's node.
    """
    place = {name: number for number, name in enumerate(columns)}
    of_key: dict[Row, list[Stamped]] = defaultdict(list)
    for stamp, row in rows:
        of_key[tuple(row[place[key]] for key in keys)].append((stamp, row))
    found: list[Stamped] = []
    for group in of_key.values():
        group.sort(key=lambda each: (each[0], *(_last_if_null(each[1][place[name]]) for name in ties)))
        for number, (stamp, row) in enumerate(group):
            results = tuple(_result(call, group, number, place) for call in calls)
            found.append((stamp, (*row, *results)))
    return found


def _last_if_null(value: Any) -> tuple[bool, Any]:
    return value is None, 0 if value is None else value


def _result(call: SequenceCall, group: list[Stamped], number: int, place: dict[str, int]) -> Any:
    stamp, row = group[number]
    if call.function in ("lag", "lead"):
        assert call.rows is not None
        other = number - call.rows if call.function == "lag" else number + call.rows
        near = 0 <= other < len(group) and (call.within_us is None or abs(group[other][0] - stamp) <= call.within_us)
        if not near:
            return None if call.default is None else row[place[call.default]]
        return group[other][1][place[call.argument or ""]]
    frame = [
        other
        for position, (at, other) in enumerate(group)
        if (position <= number - call.until_rows or (call.peers and at == stamp))
        and at <= stamp - call.until_us
        and (call.rows is None or position >= number - call.rows)
        and (call.range_us is None or at >= stamp - call.range_us)
    ]
    if call.argument is None:
        return len(frame)
    values = [each[place[call.argument]] for each in frame]
    known = [value for value in values if value is not None]
    if call.function in ("first", "last"):
        values = known if call.known else values
        return None if not values else values[0 if call.function == "first" else -1]
    return _aggregate(call, known)


def _aggregate(call: SequenceCall, known: list[Any]) -> Any:
    if call.function == "count":
        return len(known)
    if not known:
        return None
    match call.function:
        case "min":
            return min(known)
        case "max":
            return max(known)
        case "avg":
            return sum(known) / len(known)
        case _ if call.type is FieldType.INTEGER:
            return (sum(known) + 2**63) % 2**64 - 2**63
        case _:
            return sum(known)

"""Random columns of SELECT, and what they are called."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Exactness, Known, Scalar
from tests.cluster.oracle.text_forms import Output, Query, Select, Star, outputs_of, types_of
from tests.cluster.oracle.text_scalars import KINDS, Scalars

if TYPE_CHECKING:
    from tests.cluster.oracle.text_conditions import Scope
    from tests.cluster.oracle.text_intervals import IntervalDrawing

NAMES = (
    "n",
    "total",
    "value",
    "start",
    "end",
    "row",
    "温度",
    "stamp",
    "left",
    "_c",
    "From",
    "case",
    "result",
    "x",
    "y",
)


def columns(
    scalars: Scalars,
    scope: Scope,
    kinds: Sequence[FieldType] | None,
    need: Exactness,
    *,
    grouped: bool,
    intervals: IntervalDrawing,
) -> tuple[Output | Star, ...]:
    """Return what is selected: of some types, if given."""
    dice = scalars.dice
    if kinds is None and not grouped and dice.random() < 0.2:
        shown = starred(dice, scope, need)
        if shown is not None:
            return shown
    count = dice.choice((1, 2, 2, 3, 4))
    wanted = list(kinds) if kinds is not None else [dice.choice(KINDS) for _ in range(count)]
    found: list[Output | Star] = []
    names: list[str] = []
    asking = kinds is None and bool(intervals) and dice.random() < 0.5
    place = dice.randint(0, len(wanted)) if asking else None
    for number, kind in enumerate([*wanted, None]):
        if number == place:
            found.append(intervals.shown(names, grouped=grouped))
            names = [each.name for each in shown_by(found)]
        if kind is not None:
            found.append(_output(dice, scalars.value(kind, 2, need), len(names) + 1, names))
            names = [each.name for each in shown_by(found)]
    return tuple(found)


def shown_by(outputs: Sequence[Output | Star]) -> list[Output]:
    """Return all columns, one by one."""
    return [each for output in outputs for each in (output.outputs if isinstance(output, Star) else (output,))]


def _output(dice: random.Random, scalar: Scalar, number: int, taken: Sequence[str]) -> Output:
    used = {each.casefold() for each in taken}
    free = [each for each in NAMES if each.casefold() not in used]
    if dice.random() < 0.5:
        name = dice.choice(free)
        written = spelling.name(dice, name, exactly=True)
        quoted = written.startswith('"')
        return Output(scalar, name, f"AS {written}" if not quoted or dice.random() < 0.6 else written)
    plain = scalar.default if not scalar.parentheses else ""
    return Output(scalar, unique(plain or f"column_{number}", taken))


def starred(dice: random.Random, scope: Scope, need: Exactness) -> tuple[Output | Star, ...] | None:
    """Return stars; None if what they stand for is not exact enough."""
    aliases = list(dict.fromkeys(known.alias for known in scope.columns))
    every = [each for each in scope.all if each.exactness >= need]
    if len(every) < len(scope.all):
        return None
    names: list[str] = []
    found: list[Output | Star] = []
    for own in dice.choice(([False], [True], [True, False])):
        alias = dice.choice([each for each in aliases if each] or [""]) if own else ""
        shown = [each for each in scope.all if each.alias == alias] if alias else scope.starring or scope.all
        outputs = []
        single = [each for each in shown if sum(each.name.casefold() == other.name.casefold() for other in shown) == 1]
        left_out = dice.sample(single, dice.randint(1, 2)) if len(single) > 2 and dice.random() < 0.4 else []
        for known in [each for each in shown if each not in left_out]:
            name = unique(known.name, names)
            names.append(name)
            scalar = Scalar(known.type, (), (known.sql,), exactness=known.exactness, wild=known.wild, known=known)
            outputs.append(Output(scalar, name))
        star = f"{spelling.name(dice, alias)}.*" if alias else "*"
        if left_out:
            listed = ", ".join(spelling.name(dice, each.name) for each in left_out)
            star = f"{star} {dice.choice(('EXCEPT', 'EXCLUDE'))} ({listed})"
        found.append(Star(star, tuple(outputs)))
    return tuple(found)


def unique(name: str, taken: Sequence[str]) -> str:
    """Return a name, with a number if it is taken: docs/reference/sql/selecting.md, Selecting."""
    used = {each.casefold() for each in taken}
    found, number = name, 1
    while found.casefold() in used:
        number += 1
        found = f"{name}_{number}"
    return found


def columns_of(query: Query, mark: str) -> list[Known]:
    """Return the columns that a query offers around it."""
    names = [each.name for each in outputs_of(query)]
    return [
        Known(name, kind, f"{mark}.c{n}", "", exactness, wild)
        for n, (name, kind, (exactness, wild)) in enumerate(zip(names, types_of(query), _numbers(query), strict=True))
    ]


def _numbers(query: Query) -> list[tuple[Exactness, bool]]:
    """Return, by column, how exact its numbers are, and whether they may be huge."""
    if isinstance(query, Select):
        return [(each.scalar.exactness, each.scalar.wild) for each in outputs_of(query)]
    sides = zip(_numbers(query.left), _numbers(query.right), strict=True)
    return [(min(one, other), huge or wild) for (one, huge), (other, wild) in sides]

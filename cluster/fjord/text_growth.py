"""Refuses queries that concatenate a text with itself so often that every result but the empty text would be NULL.

    SELECT x || x AS x FROM (SELECT x || x AS x FROM ...)        of how many parts each x is made:  4, 2, 1

A text of more parts than letters are allowed (:mod:`cluster.scalars.texts`) is NULL, unless its parts are empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.errors import PlanError
from cluster.expressions.nodes import Among, Between, Binary, Call, Chain, Column, Expression, Like
from cluster.expressions.walks import from_below
from cluster.operators import Aggregate, Node, Project, walks
from cluster.operators.columns import Scalar
from cluster.planning_budget import spend
from cluster.scalars.operators import COMPARED
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType

Parts = Mapping[str, int]
"""By column: how many texts are concatenated in it; columns that are missing are unchanged."""


class TextGrowthError(PlanError):
    """A query that concatenates too many texts."""


def check_text(root: Node) -> None:
    """Refuse a plan that concatenates more texts than a text may have code points.

    Raises
    ------
    TextGrowthError
        If it does; the error names the column.
    """
    known: dict[int, Parts] = {}
    for node in walks.from_below(root):
        spend(1)
        below: dict[str, int] = {}
        for each in node.inputs:
            below |= known[id(each)]
        known[id(node)] = _parts(node, below)


def _parts(node: Node, below: Parts) -> Parts:
    match node:
        case Project():
            made = {output.name: _parts_of(output.name, output.scalar, below) for output in node.outputs}
        case Aggregate():
            called = ((call.name, call.argument) for call in node.calls if call.type is FieldType.TEXT)
            made = {name: _parts_of(name, argument, below) for name, argument in called if argument is not None}
            made |= {key: below[key] for key in node.keys if key in below}
        case _:
            made = dict(below)
    return {name: count for name, count in made.items() if count > 1}


def _parts_of(name: str, scalar: Scalar, below: Parts) -> int:
    if scalar.type is not FieldType.TEXT:
        return 1
    count = _counted(scalar.expression, below)
    if count > LONGEST_TEXT:
        raise TextGrowthError(
            f"{name} would be a text of {count:,} parts, one behind the other",
            hint=f"a text that is made of others has {LONGEST_TEXT:,} characters at most; what is longer is NULL",
        )
    return count


def _counted(expression: Expression, below: Parts) -> int:
    """Return how many texts an expression concatenates."""
    counts: dict[int, int] = {}
    for node in from_below(expression):
        found = [counts[id(operand)] for operand in node.operands]
        match node:
            case Column():
                counts[id(node)] = below.get(node.name, 1)
            case Chain(word="||") | Call(function="CONCAT"):
                counts[id(node)] = sum(found)
            case (
                Call(function="LENGTH" | "REGEXP_LIKE" | "STRPOS" | "STARTS_WITH" | "ENDS_WITH")
                | Like()
                | Among()
                | Between()
            ):
                counts[id(node)] = 1
            case Binary() if node.sign in COMPARED or node.sign.startswith("IS"):
                counts[id(node)] = 1
            case _:
                counts[id(node)] = max(found, default=1)
    return counts[id(expression)]

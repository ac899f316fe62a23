"""How long the texts of a query's answers may get that it makes itself: an upper estimate, made before anything runs.

    SELECT LPAD(sensor, 10000) AS a, UPPER(sensor) AS b        a: 10,000 characters, b: those of a column

A thousand of the former are ten million characters a row: few rows take as long to store and publish as very many.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.expressions.nodes import Call, Chain, Column, Expression, Literal
from cluster.expressions.walks import from_below
from cluster.operators.columns import AggregateCall, Output
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import MergeAggregate, PaneAggregate, PartialAggregate, Project
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType

USUAL_TEXT = 20
"""Characters of a column that a stream brings."""

Widths = Mapping[str, int]
"""By column: how many characters it may have; columns that are missing are those of streams."""


def characters_of_answers(fragment: Fragment) -> int:
    """Return how many characters the texts of one answer may have that a fragment makes longer than streams bring."""
    known: dict[str, Widths] = {}
    for node in fragment.nodes:
        below: dict[str, int] = {}
        for each in node.inputs:
            below |= known[each]
        known[node.id] = _widths(node, below)
    return sum(known[fragment.sink.id].values())


def _widths(node: OperatorNode, below: Widths) -> Widths:
    match node.operation:
        case Project(outputs=outputs):
            return _of_outputs(outputs, below)
        case PartialAggregate(calls=calls) | MergeAggregate(calls=calls) | PaneAggregate(calls=calls):
            return {**below, **_of_calls(calls, below)}
        case _:
            return below


def _of_outputs(outputs: tuple[Output, ...], below: Widths) -> Widths:
    texts = (each for each in outputs if each.scalar.type is FieldType.TEXT)
    found = {each.name: longest(each.scalar.expression, below) for each in texts}
    return {name: characters for name, characters in found.items() if characters > USUAL_TEXT}


def _of_calls(calls: tuple[AggregateCall, ...], below: Widths) -> Widths:
    found = {}
    for call in calls:
        if call.type is FieldType.TEXT and call.argument is not None:
            joins = call.function == "string_agg"
            found[call.name] = LONGEST_TEXT if joins else longest(call.argument.expression, below)
    return {name: characters for name, characters in found.items() if characters > USUAL_TEXT}


def longest(expression: Expression, below: Widths) -> int:
    """Return how many characters a text may have, as far as what it is made of tells.

    >>> longest(Call("LPAD", (Column("x"), Literal(FieldType.INTEGER, "500"))), {})
    500
    >>> longest(Chain("||", (Column("x"), Literal(FieldType.TEXT, "abc"), Column("y"))), {"y": 1000})
    1023
    """
    found: dict[int, int] = {}
    for node in from_below(expression):
        made = [found[id(operand)] for operand in node.operands]
        match node:
            case Column():
                characters = below.get(node.name, USUAL_TEXT)
            case Literal():
                characters = len(node.text)
            case Chain(word="||") | Call(function="CONCAT"):
                characters = sum(made)
            case Call(function="LPAD" | "RPAD", arguments=(_, Literal(text=text), *_)) if text.isdecimal():
                characters = int(text)
            case Call(function="LPAD" | "RPAD"):
                characters = LONGEST_TEXT
            case Call(function="REPLACE" | "REGEXP_REPLACE"):
                characters = made[0] * max(1, made[-1])
            case _:
                characters = max(made, default=0)
        found[id(node)] = min(characters, LONGEST_TEXT)
    return found[id(expression)]

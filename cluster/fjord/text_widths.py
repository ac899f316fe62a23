"""How long the texts of a query's answers may get that it makes itself: an upper estimate, made before anything runs.

    SELECT LPAD(sensor, 10000) AS a, UPPER(sensor) AS b        a: 10,000 characters, b: those of a column

A thousand of the former are ten million characters a row: few rows take as long to store and publish as very many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cluster.expressions.nodes import (
    Among,
    Between,
    Binary,
    Call,
    Cast,
    Chain,
    Column,
    Expression,
    Group,
    Like,
    Literal,
    Negative,
    Not,
)
from cluster.expressions.walks import from_below
from cluster.operators.columns import AggregateCall, Output
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import MergeAggregate, PaneAggregate, PartialAggregate, Project
from cluster.scalars import SCALAR_FUNCTIONS
from cluster.scalars.texts import LONGEST_TEXT
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

USUAL_TEXT = 20
"""Characters of a column that a stream brings."""
LONG_TEXT = 100
"""A text of more characters is long: up to so many, it takes hardly more time than any other value."""

_NO_TEXTS = frozenset(FieldType) - {FieldType.TEXT}

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
    widths = known[fragment.sink.id]
    for operation in fragment.subscribers[0].finish:
        if isinstance(operation, Project):
            widths = widths_of_outputs(operation.outputs, widths)
    return sum(widths.values())


def _widths(node: OperatorNode, below: Widths) -> Widths:
    match node.operation:
        case Project(outputs=outputs):
            return widths_of_outputs(outputs, below)
        case PartialAggregate(calls=calls) | MergeAggregate(calls=calls) | PaneAggregate(calls=calls):
            return {**below, **widths_of_calls(calls, below)}
        case _:
            return below


def widths_of_outputs(outputs: tuple[Output, ...], below: Widths) -> Widths:
    """Return the widths of what a projection computes of columns with these widths."""
    texts = (each for each in outputs if each.scalar.type is FieldType.TEXT)
    found = {each.name: longest(each.scalar.expression, below) for each in texts}
    return {name: characters for name, characters in found.items() if characters > USUAL_TEXT}


def widths_of_calls(calls: tuple[AggregateCall, ...], below: Widths, joined: int = LONGEST_TEXT) -> Widths:
    """Return the widths of what aggregates compute of columns with these widths; texts that are joined have one."""
    found = {}
    for call in calls:
        if call.type is FieldType.TEXT and call.argument is not None:
            joins = call.function == "string_agg"
            found[call.name] = joined if joins else longest(call.argument.expression, below)
    return {name: characters for name, characters in found.items() if characters > USUAL_TEXT}


def long_texts(widths: Iterable[int]) -> Iterator[int]:
    """Yield the widths of texts that are long."""
    return (characters for characters in widths if characters > LONG_TEXT)


def longest(expression: Expression, below: Widths) -> int:
    """Return how many characters a text may have, as far as what it is made of tells.

    >>> longest(Call("LPAD", (Column("x"), Literal(FieldType.INTEGER, "500"))), {})
    500
    >>> longest(Chain("||", (Column("x"), Literal(FieldType.TEXT, "abc"), Column("y"))), {"y": 1000})
    1023
    """
    return _lengths(expression, below)[id(expression)]


def characters_made(expression: Expression, below: Widths) -> int:
    """Return how many characters the long texts have that an expression makes or looks at on its way to its value.

    >>> characters_made(Call("LENGTH", (Call("LPAD", (Column("x"), Literal(FieldType.INTEGER, "500"))),)), {})
    500
    >>> characters_made(Call("UPPER", (Column("x"),)), {})
    0
    """
    return _made(expression, below) if below else _made_of_streams(expression)


@remembered
def _made_of_streams(expression: Expression) -> int:
    return _made(expression, {})


def _made(expression: Expression, below: Widths) -> int:
    lengths = _lengths(expression, below)
    made = (node for node in from_below(expression) if node.operands and not isinstance(node, Group))
    return sum(long_texts(lengths[id(node)] for node in made))


def _lengths(expression: Expression, below: Widths) -> dict[int, int]:
    """Return how many characters the value of each node may have, by the node's id; 0 if it is no text."""
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
            case _ if _is_no_text(node):
                characters = 0
            case _:
                characters = max(made, default=0)
        found[id(node)] = min(characters, LONGEST_TEXT)
    return found


def _is_no_text(node: Expression) -> bool:
    match node:
        case Call(function=name):
            function = SCALAR_FUNCTIONS.get(name)
            return function is not None and function.result in _NO_TEXTS
        case Cast(target=target):
            return target is not FieldType.TEXT
        case _:
            return isinstance(node, Among | Between | Binary | Chain | Like | Negative | Not)

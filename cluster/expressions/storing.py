"""Expressions as lists of their distinct nodes, to be written to files and read again.

    ("a" + 1) * "a"     [["column", "a"], ["integer", "1"], ["+", 0, 1], ["group", 2], ["*", 3, 0]]

A number is the place of an operand in the list; the last node is the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cluster.expressions.nodes import (
    Among,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Chain,
    Column,
    Expression,
    Group,
    Like,
    Literal,
    Negative,
    Not,
    UserCall,
)
from cluster.expressions.user_functions import FunctionLanguage, UserFunction
from cluster.expressions.walks import from_below
from protocols.wire.streams import FieldType

StoredNode = list[str | int | bool | None]
"""The node's kind, its own values, and the places of its operands."""

SIGNS = frozenset(
    {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "IS", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"}
)
WORDS = frozenset({"AND", "OR", "||"})
_KINDS: dict[type[Expression], str] = {
    Group: "group",
    Negative: "negative",
    Not: "not",
    Cast: "cast",
    Like: "like",
    Between: "between",
    Among: "in",
    Call: "call",
    Case: "case",
}


def stored(expression: Expression) -> list[StoredNode]:
    """Return an expression as a list of its distinct nodes."""
    places: dict[Expression, int] = {}
    listed: list[StoredNode] = []
    for node in from_below(expression):
        if node not in places:
            places[node] = len(listed)
            listed.append([*_said(node), *(places[each] for each in node.operands)])
    return listed


def _said(node: Expression) -> StoredNode:
    match node:
        case Column():
            return ["column", node.name]
        case Literal():
            return ["null" if node.kind is None else node.kind.value, node.text]
        case Binary():
            return [node.sign]
        case Chain():
            return [node.word]
        case Cast():
            return ["cast", node.target.value, node.tries]
        case Like():
            return ["ilike" if node.folds else "like", node.pattern, node.escape]
        case Call():
            return ["call", node.function]
        case UserCall():
            return ["user", *_function_written(node.function)]
        case Case():
            return ["case", node.subject is not None, len(node.conditions)]
        case _:
            return [_KINDS[type(node)]]


def _function_written(function: UserFunction) -> StoredNode:
    types = ",".join([each.value for each in function.parameters])
    where = [function.name, function.identity, function.module, function.attribute]
    return [
        *where,
        types,
        ",".join(function.names) if any(function.names) else "",
        function.result.value,
        function.strict,
        function.language.value,
    ]


def restored(listed: Sequence[StoredNode]) -> Expression:
    """Return the expression that a list describes.

    Raises
    ------
    ValueError
        If the list is empty, or a node is of no known kind, has other operands than its kind, or precedes one of them.
    """
    nodes: list[Expression] = []
    for number, entry in enumerate(listed):
        try:
            kind, *rest = entry
            nodes.append(_read(kind, rest, nodes))
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(f"node {number} of an expression cannot be read: {error}") from error
    if not nodes:
        raise ValueError("an expression without nodes")
    return nodes[-1]


def _read(kind: object, rest: StoredNode, nodes: Sequence[Expression]) -> Expression:
    match kind, rest:
        case "column", [str(name)]:
            return Column(name)
        case "null", [str(text)]:
            return Literal(None, text)
        case "boolean" | "integer" | "real" | "text" | "timestamp" | "interval", [str(text)]:
            return Literal(FieldType(str(kind)), text)
        case str(sign), [left, right] if sign in SIGNS:
            return Binary(sign, *_at([left, right], nodes))
        case str(word), [_, _, *_] if word in WORDS:
            return Chain(word, _at(rest, nodes))
        case "cast", [str(target), bool(tries), operand]:
            return Cast(_one(operand, nodes), FieldType(target), tries)
        case "like" | "ilike", [str(pattern), str() | None as escape, operand]:
            return Like(_one(operand, nodes), pattern, escape, kind == "ilike")
        case "call", [str(function), *arguments]:
            return Call(function, _at(arguments, nodes))
        case "user", _:
            return _user_call(rest, nodes)
        case "case", [bool(subject), int(branches), *operands]:
            return _case(branches, _at(operands, nodes), subject=subject)
        case "in", [value, *choices]:
            return Among(_one(value, nodes), _at(choices, nodes))
        case str(), _ if kind in _PLAIN:
            return _PLAIN[kind](*_at(rest, nodes))
        case _:
            raise ValueError(f"there is no {kind!r} of {rest!r}")


_PARTS_OF_FUNCTION = 9
"""How many values of a stored call are about the function; its operands are behind them."""


def _user_call(rest: StoredNode, nodes: Sequence[Expression]) -> Expression:
    parts, operands = rest[:_PARTS_OF_FUNCTION], _at(rest[_PARTS_OF_FUNCTION:], nodes)
    texts = [each for each in parts if isinstance(each, str)]
    strict = parts[-2] if len(parts) == _PARTS_OF_FUNCTION else None
    if len(texts) != _PARTS_OF_FUNCTION - 1 or not isinstance(strict, bool):
        raise ValueError(f"there is no function of {parts!r}")
    name, identity, module, attribute, types, names, result, language = texts
    parameters = tuple([FieldType(each) for each in types.split(",")])
    if len(parameters) != len(operands):
        raise ValueError(f"{name} takes {len(parameters)} arguments and has {len(operands)}")
    where = (name, identity, module, attribute)
    named = tuple(names.split(",")) if names else ()
    function = UserFunction(*where, parameters, FieldType(result), strict, FunctionLanguage(language), named)
    return UserCall(function, operands)


def _case(branches: int, operands: tuple[Expression, ...], *, subject: bool) -> Expression:
    first, end = int(subject), int(subject) + 2 * branches
    if len(operands) not in (end, end + 1) or branches < 1:
        raise ValueError(f"CASE of {branches} branches has {len(operands)} operands")
    default = operands[end] if len(operands) > end else None
    return Case(
        operands[0] if subject else None, operands[first:end:2], operands[first + 1 : end : 2], default
    )  # fmt: skip


def _at(places: Sequence[object], nodes: Sequence[Expression]) -> tuple[Expression, ...]:
    return tuple([_one(place, nodes) for place in places])


def _one(place: object, nodes: Sequence[Expression]) -> Expression:
    if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(nodes):
        raise ValueError(f"{place!r} is no place of an operand")
    return nodes[place]


_PLAIN: Mapping[str, Callable[..., Expression]] = {
    "group": Group,
    "negative": Negative,
    "not": Not,
    "between": Between,
}

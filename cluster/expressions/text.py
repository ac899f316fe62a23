"""Expressions as FjordSQL: names quoted, words upper case, one way to write each node.

Names of state and names on the wire are made of this text: it never changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

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
from cluster.expressions.walks import found_from_below, from_below
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

LONGEST_WRITTEN = 1_000_000
"""Longest expression that is written with every shared part repeated; no author writes a longer one."""

_Piece = str | Expression


@remembered
def text_of(expression: Expression) -> str:
    """Return an expression as FjordSQL; where that would be too long, each shared part is written once, with a number.

    >>> from cluster.expressions.nodes import TRUE
    >>> text_of(Chain("AND", (Not(Column("a")), TRUE)))
    'NOT "a" AND TRUE'
    """
    if letters(expression) <= LONGEST_WRITTEN:
        return "".join(_written(expression, {}))
    return _listed(expression)


@found_from_below
def letters(expression: Expression, operands: Sequence[int]) -> int:
    """Return the length of an expression's text with shared parts repeated."""
    return sum(operands) + sum([len(piece) for piece in _pieces(expression) if isinstance(piece, str)])


def _listed(expression: Expression) -> str:
    """Return the parts that occur in several places, and the operands of each: the same for equal expressions."""
    distinct = {node: node for node in from_below(expression)}
    uses = Counter(distinct[each] for node in distinct for each in node.operands)
    numbers: dict[Expression, str] = {}
    written: list[str] = []
    for node in distinct:
        if uses[node] > 1 and node.operands:
            written.append(f"#{len(numbers) + 1} = {''.join(_written(node, numbers))}")
            numbers[node] = f"#{len(numbers) + 1}"
    return f"{''.join(_written(expression, numbers))} WITH {', '.join(written)}"


def _written(expression: Expression, numbers: Mapping[Expression, str]) -> Iterator[str]:
    waiting: list[_Piece] = [*reversed(_pieces(expression))]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, str):
            yield piece
        elif numbers and piece in numbers:
            yield numbers[piece]
        else:
            waiting.extend(reversed(_pieces(piece)))


def _pieces(node: Expression) -> Sequence[_Piece]:
    """Return the text of a node as pieces: texts, and its operands in their places."""
    match node:
        case Column():
            return (quoted_name(node.name),)
        case Literal():
            return (_literal(node),)
        case Binary():
            return (node.left, f" {node.sign} ", node.right)
        case Group():
            return ("(", node.operand, ")")
        case Chain():
            return _separated(node.parts, f" {node.word} ")
        case Call():
            return (f"{node.function}(", *_separated(node.arguments, ", "), ")")
        case UserCall():
            return (f"{node.function.identity}(", *_separated(node.arguments, ", "), ")")
        case Not():
            return ("NOT ", node.operand)
        case Negative():
            # Two signs side by side would begin a comment.
            return ("- " if _begins_with_sign(node.operand) else "-", node.operand)
        case Cast():
            return ("TRY_CAST(" if node.tries else "CAST(", node.operand, f" AS {node.target.value.upper()})")
        case Like():
            escape = "" if node.escape is None else f" ESCAPE {quoted_text(node.escape)}"
            return (node.operand, f" {'ILIKE' if node.folds else 'LIKE'} {quoted_text(node.pattern)}{escape}")
        case Between():
            return (node.value, " BETWEEN ", node.low, " AND ", node.high)
        case Among():
            return (node.value, " IN (", *_separated(node.choices, ", "), ")")
        case Case():
            return tuple(_case(node))
        case _:
            raise TypeError(f"{type(node).__name__} is no expression")


def _literal(node: Literal) -> str:
    match node.kind:
        case FieldType.TEXT:
            return quoted_text(node.text)
        case FieldType.TIMESTAMP | FieldType.INTERVAL:
            return f"{node.kind.value.upper()} {quoted_text(node.text)}"
        case _:
            return node.text


def _case(node: Case) -> Iterator[_Piece]:
    yield "CASE"
    if node.subject is not None:
        yield " "
        yield node.subject
    for condition, result in zip(node.conditions, node.results, strict=True):
        yield " WHEN "
        yield condition
        yield " THEN "
        yield result
    if node.default is not None:
        yield " ELSE "
        yield node.default
    yield " END"


def _separated(parts: Sequence[Expression], separator: str) -> tuple[_Piece, ...]:
    pieces: list[_Piece] = []
    for part in parts:
        pieces += (separator, part)
    return tuple(pieces[1:])


def _begins_with_sign(node: Expression) -> bool:
    while isinstance(node, Binary | Chain | Between | Among | Like):
        node = node.operands[0]
    return isinstance(node, Negative)


def quoted_name(name: str) -> str:
    """Return a name in quotes.

    >>> print(quoted_name('a "b" c'))
    "a ""b"" c"
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def quoted_text(text: str) -> str:
    """Return a text in quotes.

    >>> quoted_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"

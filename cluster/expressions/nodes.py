"""The nodes of expressions: immutable, one kind for each way to write something in FjordSQL.

    ("a" + 1) * "b"        Binary("*", Group(Binary("+", Column("a"), Literal(INTEGER, "1"))), Column("b"))

A node is a value: equal nodes have the same meaning and the same text. Parts are shared: an expression is a graph in
which a part may occur in many places (:mod:`cluster.shared_nodes`), so no code walks it as a tree.

Columns are those of the input of the plan's node that holds the expression; the node has their types, too.
"""

from __future__ import annotations

from msgspec.structs import replace

from cluster.expressions.user_functions import UserFunction
from cluster.shared_nodes import SharedNode
from protocols.wire.streams import FieldType


class Expression(SharedNode, frozen=True):
    """Base of all nodes of expressions."""

    def __post_init__(self) -> None:
        """Compute the hash while those of the operands are known: a deep expression would else need a deep stack."""
        hash(self)

    @property
    def operands(self) -> tuple[Expression, ...]:
        """Its operands, in the order in which they are written."""
        return ()

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over other operands, of the same number and in the same order."""
        del operands
        return self


class Column(Expression, frozen=True, tag="Column"):
    """A column of the input, by its name there."""

    name: str


class Literal(Expression, frozen=True, tag="Literal"):
    """A constant.

    Parameters
    ----------
    kind
        Its type; None for NULL, which fits any type.
    text
        The value of a text; for other types, the literal as written: ``1.50`` is a real, TRUE a boolean. No sign.
    """

    kind: FieldType | None
    text: str


NULL = Literal(None, "NULL")
TRUE, FALSE = Literal(FieldType.BOOLEAN, "TRUE"), Literal(FieldType.BOOLEAN, "FALSE")


class _OfOne(Expression, frozen=True):
    """Base of nodes with one operand."""

    operand: Expression

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The operand."""
        return (self.operand,)

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over another operand."""
        return replace(self, operand=operands[0])


class Group(_OfOne, frozen=True, tag="Group"):
    """Parentheses, as written: they have no meaning, but names are made of the text as written."""


class Negative(_OfOne, frozen=True, tag="Negative"):
    """A number with its sign changed."""


class Not(_OfOne, frozen=True, tag="Not"):
    """NOT in three-valued logic."""


class Cast(_OfOne, frozen=True, tag="Cast"):
    """CAST, or TRY_CAST if it `tries`, with the same meaning: values that cannot be converted are NULL."""

    target: FieldType
    tries: bool = False


class Like(_OfOne, frozen=True, tag="Like"):
    """LIKE with a constant pattern, and perhaps an escape character; it is ILIKE if it `folds` case."""

    pattern: str
    escape: str | None = None
    folds: bool = False


class Binary(Expression, frozen=True, tag="Binary"):
    """Two operands with an operator between them: ``+ - * / % = <> < <= > >= IS``, ``IS [NOT] DISTINCT FROM``."""

    sign: str
    left: Expression
    right: Expression

    @property
    def operands(self) -> tuple[Expression, ...]:
        """Left and right."""
        return (self.left, self.right)

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over two other operands."""
        return Binary(self.sign, operands[0], operands[1])


class Chain(Expression, frozen=True, tag="Chain"):
    """Two or more operands with the same word between them, for which grouping changes nothing: ``AND OR ||``.

    None of the operands is a chain of the same word: see :func:`chain`.
    """

    word: str
    parts: tuple[Expression, ...]

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The operands."""
        return self.parts

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over other operands."""
        return chain(self.word, operands)


class Between(Expression, frozen=True, tag="Between"):
    """Tests whether a value is neither below nor above two others."""

    value: Expression
    low: Expression
    high: Expression

    @property
    def operands(self) -> tuple[Expression, ...]:
        """Value, lower and upper bound."""
        return (self.value, self.low, self.high)

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over other operands."""
        return Between(*operands)


class Among(Expression, frozen=True, tag="Among"):
    """IN over a list."""

    value: Expression
    choices: tuple[Expression, ...]

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The value and the list."""
        return (self.value, *self.choices)

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over other operands."""
        return Among(operands[0], operands[1:])


class Call(Expression, frozen=True, tag="Call"):
    """A call of a function, by its name in FjordSQL."""

    function: str
    arguments: tuple[Expression, ...]

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The arguments."""
        return self.arguments

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over other operands."""
        return Call(self.function, operands)


class UserCall(Expression, frozen=True, tag="UserCall"):
    """A call of a function of a user."""

    function: UserFunction
    arguments: tuple[Expression, ...]

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The arguments."""
        return self.arguments

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over other operands."""
        return UserCall(self.function, operands)


class Case(Expression, frozen=True, tag="Case"):
    """CASE, with or without a subject that is compared with each condition.

    Parameters
    ----------
    subject
        The value to compare; None if the conditions are booleans.
    conditions, results
        In pairs.
    default
        The value behind ELSE; None if there is no ELSE, which means NULL.
    """

    subject: Expression | None
    conditions: tuple[Expression, ...]
    results: tuple[Expression, ...]
    default: Expression | None

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The subject, conditions and results by turns, the default."""
        turns = [each for pair in zip(self.conditions, self.results, strict=True) for each in pair]
        return tuple(each for each in (self.subject, *turns, self.default) if each is not None)

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same node over other operands."""
        first, end = self.subject is not None, len(operands) - (self.default is not None)
        return Case(
            operands[0] if first else None,
            operands[first:end:2],
            operands[first + 1 : end : 2],
            operands[-1] if self.default is not None else None,
        )


def chain(word: str, parts: tuple[Expression, ...]) -> Expression:
    """Return parts with a word between them; chains of the same word among them become part of this one.

    >>> chain("AND", (Column("a"), chain("AND", (Column("b"), Column("c"))))).operands
    (Column(name='a'), Column(name='b'), Column(name='c'))
    """
    if any(isinstance(each, Chain) and each.word == word for each in parts):
        parts = tuple(
            part
            for each in parts
            for part in (each.parts if isinstance(each, Chain) and each.word == word else (each,))
        )
    return Chain(word, parts)


def bare(expression: Expression) -> Expression:
    """Return the expression inside parentheses."""
    while isinstance(expression, Group):
        expression = expression.operand
    return expression


def grouped(expression: Expression) -> Expression:
    """Return an expression in parentheses if an operator beside it could otherwise bind to a part of it.

    >>> grouped(Negative(Column("a")))
    Group(operand=Negative(operand=Column(name='a')))
    >>> grouped(Column("a"))
    Column(name='a')
    """
    match expression:
        case Column() | Literal() | Group() | Case() | Cast() | UserCall():
            return expression
        case Call() if expression.function != "POWER":  # once an operator, and still printed as one in names
            return expression
        case _:
            return Group(expression)

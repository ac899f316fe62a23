"""What expressions are made of: immutable nodes, one kind for each way to write something in FjordSQL.

    ("a" + 1) * "b"        Binary("*", Group(Binary("+", Column("a"), Literal(INTEGER, "1"))), Column("b"))

A node is a value: equal nodes mean the same and are written the same. Parts are shared: an expression is a graph in
which a part may stand in many places (:mod:`cluster.shared_nodes`), so nothing walks it as a tree.

Columns are those of the input of the plan's node that the expression stands in; their types are there, too.
"""

from __future__ import annotations

from msgspec.structs import replace

from cluster.shared_nodes import SharedNode
from protocols.wire.streams import FieldType


class Expression(SharedNode, frozen=True):
    """Base of all nodes of expressions."""

    def __post_init__(self) -> None:
        """Find out the hash while those of the operands are known: else a deep expression would take a deep stack."""
        hash(self)

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The parts it consists of, in the order in which they are written."""
        return ()

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same of other operands, which are as many as its own and in the same order."""
        del operands
        return self


class Column(Expression, frozen=True):
    """A column of the input, by its name there."""

    name: str


class Literal(Expression, frozen=True):
    """A constant.

    Parameters
    ----------
    kind
        Its type; None for that of NULL, which is any.
    text
        A text itself; of anything else, what is written: ``1.50`` is a real, TRUE a boolean. Numbers have no sign.
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
        """Return the same of another operand."""
        return replace(self, operand=operands[0])


class Group(_OfOne, frozen=True):
    """Parentheses, as they were written: they mean nothing, but names are made of what is written."""


class Negative(_OfOne, frozen=True):
    """A number with its sign changed."""


class Not(_OfOne, frozen=True):
    """NOT of three values."""


class Cast(_OfOne, frozen=True):
    """CAST, or TRY_CAST if it `tries`, which is the same: what cannot be converted is NULL."""

    target: FieldType
    tries: bool = False


class Like(_OfOne, frozen=True):
    """LIKE with a constant pattern, and perhaps a character behind which each stands for itself."""

    pattern: str
    escape: str | None = None


class Binary(Expression, frozen=True):
    """Two operands with a sign between them: ``+ - * / % = <> < <= > >= IS``."""

    sign: str
    left: Expression
    right: Expression

    @property
    def operands(self) -> tuple[Expression, ...]:
        """Left and right."""
        return (self.left, self.right)

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same of two others."""
        return Binary(self.sign, operands[0], operands[1])


class Chain(Expression, frozen=True):
    """Two operands or more with the same word between them, for which grouping changes nothing: ``AND OR ||``.

    None of the operands is a chain of the same word: see :func:`chain`.
    """

    word: str
    parts: tuple[Expression, ...]

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The parts."""
        return self.parts

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same of others."""
        return chain(self.word, operands)


class Between(Expression, frozen=True):
    """Whether a value is neither below nor above two others."""

    value: Expression
    low: Expression
    high: Expression

    @property
    def operands(self) -> tuple[Expression, ...]:
        """Value, lower and upper bound."""
        return (self.value, self.low, self.high)

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same of others."""
        return Between(*operands)


class Among(Expression, frozen=True):
    """IN over a list."""

    value: Expression
    choices: tuple[Expression, ...]

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The value and the list."""
        return (self.value, *self.choices)

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same of others."""
        return Among(operands[0], operands[1:])


class Call(Expression, frozen=True):
    """A call of a function, by its name in FjordSQL."""

    function: str
    arguments: tuple[Expression, ...]

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The arguments."""
        return self.arguments

    def over(self, operands: tuple[Expression, ...]) -> Expression:
        """Return the same of others."""
        return Call(self.function, operands)


class Case(Expression, frozen=True):
    """CASE, with or without something that is compared with each condition.

    Parameters
    ----------
    subject
        What is compared; None if conditions are conditions.
    conditions, results
        Side by side.
    default
        None is NULL that is not written.
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
        """Return the same of others."""
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
    """Return what is within parentheses."""
    while isinstance(expression, Group):
        expression = expression.operand
    return expression


def grouped(expression: Expression) -> Expression:
    """Return an expression in parentheses if it could be torn apart by what is written around it.

    >>> grouped(Negative(Column("a")))
    Group(operand=Negative(operand=Column(name='a')))
    >>> grouped(Column("a"))
    Column(name='a')
    """
    match expression:
        case Column() | Literal() | Group() | Case() | Cast():
            return expression
        case Call() if expression.function != "POWER":  # which once was an operator, and still is one in names
            return expression
        case _:
            return Group(expression)

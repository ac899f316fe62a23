"""How types and units combine, and checked expressions as plans hold them. Pure, without names and positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.nodes import bare
from cluster.expressions.reading import expression_of
from cluster.operators.columns import Scalar
from cluster.scalars.scalar_function import FAMILY_OF, Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Typed:
    """A resolved expression: every column reference is a quoted name of the plan.

    Parameters
    ----------
    expression
        The canonical syntax tree.
    type
        Its type; None for a bare NULL, which takes any.
    unit
        Its unit of measure, empty for none.
    nullable
        False if it can never be NULL.
    """

    expression: exp.Expr
    type: FieldType | None
    unit: str = ""
    nullable: bool = True


class TypeMismatchError(ValueError):
    """Types that do not match."""


def common_type(types: Iterable[FieldType | None]) -> FieldType | None:
    """Return the type that holds all of `types`; an integer is also a real, and NULL is anything.

    >>> common_type([FieldType.INTEGER, None, FieldType.REAL])
    <FieldType.REAL: 'real'>

    Raises
    ------
    TypeMismatchError
        If there is no such type.
    """
    found: FieldType | None = None
    for each in types:
        if each is None or each == found:
            continue
        if found is None:
            found = each
        elif FAMILY_OF[each] == FAMILY_OF[found] == Family.NUMBER:
            found = FieldType.REAL
        else:
            raise TypeMismatchError(f"{found.value} and {each.value} do not go together")
    return found


def belongs(type_: FieldType | None, family: Family) -> bool:
    """Return whether a value of `type_` may stand where `family` is required."""
    if type_ is None or family == Family.ANY:
        return True
    return type_ == FieldType.INTEGER if family == Family.INTEGER else FAMILY_OF[type_] == family


def common_unit(operands: Iterable[Typed]) -> str:
    """Return the unit of a sum, a choice or an extreme of `operands`: the common one of all that have a unit."""
    units = {operand.unit for operand in operands if operand.unit}
    return units.pop() if len(units) == 1 else ""


def clashing_units(operands: Iterable[Typed]) -> tuple[str, str] | None:
    """Return two different units among `operands`, which should not be added or compared, or None."""
    units = sorted({operand.unit for operand in operands if operand.unit})
    return (units[0], units[1]) if len(units) > 1 else None


def scalar_of(typed: Typed, type_: FieldType) -> Scalar:
    """Return a checked expression in the form that plans hold; outer parentheses have no meaning and are removed."""
    return Scalar(bare(expression_of(typed.expression)), type_)


def conjunction(parts: list[exp.Expr]) -> Scalar:
    """Return the expression that all of `parts` are true."""
    if len(parts) == 1:
        alone = parts[0].unnest() if isinstance(parts[0], exp.Paren) else parts[0]
        return Scalar(expression_of(alone), FieldType.BOOLEAN)
    built: exp.Expr | None = None
    for part in parts:
        safe = exp.Paren(this=part) if isinstance(part, exp.Or) else part
        built = safe if built is None else exp.And(this=built, expression=safe)
    assert built is not None  # noqa: S101 - callers have at least one part
    return Scalar(expression_of(built), FieldType.BOOLEAN)

"""How types and units combine. Pure, without names and positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.scalars.scalar_function import FAMILY_OF, Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp


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

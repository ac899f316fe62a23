"""Checking operands: the interface by which rules for expressions check the expressions in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.language.mismatches import converted, reconciled
from cluster.language.typing_rules import Typed, TypeMismatchError, belongs, clashing_units, common_type

if TYPE_CHECKING:
    from sqlglot import exp

    from cluster.language.context import Context
    from cluster.language.scope import Scope
    from cluster.scalars.scalar_function import Family
    from protocols.wire.streams import FieldType


@dataclass(frozen=True, slots=True)
class OperandChecker(ABC):
    """Checks operands against one scope."""

    scope: Scope
    context: Context

    @abstractmethod
    def check(self, expression: exp.Expr) -> Typed:
        """Return `expression`, resolved and typed.

        Raises
        ------
        FjordSqlError
            If a name is unknown, types do not fit, or it is no scalar expression of FjordSQL.
        """

    def check_as(self, expression: exp.Expr, family: Family, hint: str | None = None) -> Typed:
        """Return `expression`, resolved and typed, if it belongs to `family`; `hint` is for the error if it does not.

        Raises
        ------
        FjordSqlError
            As :meth:`check`, or if it does not.
        """
        return self.belonging(self.check(expression), expression, family, hint)

    def belonging(self, typed: Typed, expression: exp.Expr, family: Family, hint: str | None = None) -> Typed:
        """Return a typed expression, if it belongs to `family`, as :meth:`check_as` does.

        Raises
        ------
        FjordSqlError
            If it does not.
        """
        if not belongs(typed.type, family):
            found = typed.type.value if typed.type else "null"
            reason = f"{family.value} was expected here, but this is {found}"
            raise self.context.error(expression, reason, hint or converted(typed.type, family))
        return typed

    def common(self, at: exp.Expr, operands: list[Typed], *, action: str) -> FieldType | None:
        """Return the common type of `operands`; warns when their units differ.

        Raises
        ------
        FjordSqlError
            If they have none.
        """
        try:
            found = common_type(operand.type for operand in operands)
        except TypeMismatchError as mismatch:
            raise self.context.error(at, f"cannot {action}: {mismatch}", reconciled(at, operands)) from None
        if units := clashing_units(operands):
            self.context.warn(f"{self.context.source_text(at)} mixes {units[0]} and {units[1]}")
        return found

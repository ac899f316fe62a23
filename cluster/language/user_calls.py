"""Typing calls of functions of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import call_tree
from cluster.language.arguments import called, without_distinct
from cluster.language.calls import unsupported
from cluster.language.typing_rules import Typed
from cluster.scalars.scalar_function import FAMILY_OF, Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.operand_checks import OperandChecker


def check_user_call(checker: OperandChecker, call: exp.Anonymous) -> Typed:
    """Return a call of a function of a user, resolved and typed.

    Raises
    ------
    FjordSqlError
        If there is no such function, or the arguments do not fit it.
    """
    context = checker.context
    function = context.catalog.function(call.name)
    arguments = call.expressions
    if function is None:
        raise unsupported(context, call)
    if any(isinstance(each, exp.Distinct) for each in arguments):
        raise context.error(call, *without_distinct(called(call, call.name)))
    if any(isinstance(each, exp.Kwarg | exp.PropertyEQ) for each in arguments):
        raise context.error(call, "arguments have no names in FjordSQL", f"it is written {function.shape}")
    if len(arguments) != len(function.parameters):
        count = len(function.parameters)
        reason = f"{function.name} takes {count} argument{'' if count == 1 else 's'}"
        raise context.error(call, reason, f"it is written {function.shape}")
    typed = [
        checker.check_as(argument, _family(kind)) for argument, kind in zip(arguments, function.parameters, strict=True)
    ]
    return Typed(call_tree(function, [each.expression for each in typed]), function.result)


def _family(kind: FieldType) -> Family:
    return Family.INTEGER if kind is FieldType.INTEGER else FAMILY_OF[kind]

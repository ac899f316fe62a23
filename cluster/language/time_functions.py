"""Typing of functions about time: what is called, the types of arguments and result, and the call that a plan has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.expressions import timestamps
from cluster.expressions.called_functions import TimeCall
from cluster.language.functions import Family
from cluster.language.typing_rules import Typed
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from sqlglot import exp

    from cluster.language.operand_checks import OperandChecker
    from cluster.language.syntax import TimeFunction


@dataclass(frozen=True, slots=True)
class TimeSignature:
    """A function about time that takes one value for each argument.

    Parameters
    ----------
    parameters
        The family of each argument.
    result
        The type of the result.
    call
        The call that a plan has.
    shape
        How it is written, for errors.
    """

    parameters: tuple[Family, ...]
    result: FieldType
    call: str
    shape: str


SIGNATURES: dict[str, TimeSignature] = {
    "TIMESTAMP_MICROS": TimeSignature(
        (Family.INTEGER,), FieldType.TIMESTAMP, timestamps.OF_MICROSECONDS, "TIMESTAMP_MICROS(integer)"
    ),
}
"""By name."""


def check_time_function(checker: OperandChecker, function: TimeFunction) -> Typed:
    """Return a call of a function about time, resolved and typed.

    Raises
    ------
    FjordSqlError
        If the arguments do not fit it.
    """
    signature = SIGNATURES[function.this]
    arguments: list[exp.Expr] = function.expressions
    if len(arguments) != len(signature.parameters):
        count = "one argument" if len(signature.parameters) == 1 else f"{len(signature.parameters)} arguments"
        raise checker.context.error(function, f"{function.this} takes {count}", f"it is written {signature.shape}")
    pairs = zip(arguments, signature.parameters, strict=True)
    typed = [checker.check_as(argument, family).expression for argument, family in pairs]
    return Typed(TimeCall(this=signature.call, expressions=typed), signature.result)

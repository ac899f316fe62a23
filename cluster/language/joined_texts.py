"""STRING_AGG and LISTAGG: what stands between the texts of a group, and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.nodes import Expression, bare
from cluster.expressions.reading import expression_of
from cluster.expressions.walks import rebuilt
from cluster.language.arguments import called, wrong_number
from cluster.operators.columns import Joining
from cluster.scalars.texts import LONGEST_TEXT

if TYPE_CHECKING:
    from cluster.language.operand_checks import OperandChecker
    from cluster.language.syntax import StringAgg
    from cluster.language.typing_rules import Typed

JOINED = ("separator", "order", "desc", "within")
"""What a call of them may have besides its argument."""
_COMMA = ","
"""What stands between texts that LISTAGG joins, unless it is given."""
OWN_VALUE = "STRING_AGG orders by the texts that it joins, so that equal ones leave no choice"


def joining_of(call: StringAgg, argument: Typed, checker: OperandChecker) -> Joining:
    """Return how a call joins its texts.

    Raises
    ------
    FjordSqlError
        If the separator is no text that is written out, or the order is not that of the texts.
    """
    context, separator, order = checker.context, call.args.get("separator"), call.args.get("order")
    name = called(call, "STRING_AGG").upper()
    if separator is None:
        if name != "LISTAGG":
            raise context.error(call, *wrong_number(name))
        separator = exp.Literal.string(_COMMA)
    literal = separator.unnest()
    if not (isinstance(literal, exp.Literal) and literal.is_string):
        raise context.error(separator, "the separator must be written out, in quotes", f"{name}(x, ', ')")
    if len(literal.this) > LONGEST_TEXT:
        raise context.error(separator, f"a text that is computed has {LONGEST_TEXT:,} characters at most")
    if order is not None:
        by = checker.check(order)
        if by.type is not argument.type or _meaning(by) != _meaning(argument):
            if isinstance(order.unnest(), exp.Literal):
                hint = "a number is no place of a column here; leave ORDER BY out, or name the text"
                raise context.error(order, "a constant orders nothing", hint)
            raise context.error(order, OWN_VALUE, "leave ORDER BY out, or name the text; ARG_MAX goes by other values")
    return Joining(str(literal.this), descending=order is not None and bool(call.args.get("desc")))


def _meaning(typed: Typed) -> Expression:
    return rebuilt(expression_of(typed.expression), bare)

"""Streams of which a query asks only what held for how long: samples that equal the one before may stay away.

They are filled in before operators see them, so that answers are the same. Only where packets of a mote are lost there
are NULLs instead of what is not known. So this is for streams where these NULLs end what held before: they have to
reach COALESCE or VALID UNTIL NEXT, under keys that no loss changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cluster.expressions import nodes
from cluster.expressions.walks import columns_read, from_below
from cluster.language.acquisition import with_sources
from cluster.language.quantities import duration_us, read_quantity
from cluster.operators import Filter, KeptExtent, Node, Project, Source, TimeWindow
from cluster.operators.columns import STAMP
from cluster.operators.source import Unchanged
from cluster.operators.walks import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.language.context import Context
    from cluster.language.stream_item import StreamItem
    from cluster.language.validity_syntax import CoalesceClause, ValidClause

LONGEST_SILENCE_US = 600_000_000
"""A sample that equals the one before may stay away for so long at most; after a loss nothing is known for as long."""
WITHOUT_TIME_US = 60_000_000
"""The same behind a window by count."""
SHARE_OF_WINDOW = 10
"""A tenth of a window by time at most."""
_PASS_NULL_ON = frozenset({"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">="})
_FIXED, _SAMPLED, _OTHER = range(3)


def noted(result: Node, node: Node, item: StreamItem, context: Context) -> Node:
    """Return what an item of FROM gives, with a note at its stream of whether samples may stay away.

    Parameters
    ----------
    result
        The rows of the item.
    node
        The tuples below COALESCE or VALID UNTIL NEXT; for items with neither, nothing is noted.
    item
        Its syntax, which has been checked.
    context
        For quantities.
    """
    coalesce: CoalesceClause | None = item.args.get("coalesce")
    valid: ValidClause | None = item.args.get("valid")
    if coalesce is None and valid is None:
        return result
    kinds = _kinds_of(node)
    if kinds is None:
        return result
    names = {column.name.casefold(): column.name for column in node.schema}
    keys = {names[each.name.casefold()] for each in (coalesce or valid).args.get("keys") or ()}  # type: ignore[union-attr]
    if coalesce is None:
        read: Iterable[str] = [name for name in names.values() if name != STAMP.name and name not in keys]
    else:
        read = [names[each.this.name.casefold()] for each in coalesce.expressions]
    found = _why_not(kinds, keys, list(read), decided=bool(coalesce is not None and coalesce.args.get("condition")))
    silence_us = 0 if found else _silence_us(result, valid, context)
    note = Unchanged(silence_us, found)
    return with_sources(result, lambda source: msgspec.structs.replace(source, unchanged=note))


def _why_not(kinds: Mapping[str, int], keys: set[str], read: list[str], *, decided: bool) -> str:
    """Return why every sample is needed; empty if those that equal the one before may stay away."""
    if decided:
        return "WHILE may link what is not known"
    for name in sorted(keys):
        if kinds[name] != _FIXED:
            return f"{name} is sampled, so that after a loss it is not known whose validity ends"
    for name in read:
        if kinds[name] == _OTHER:
            return f"{name} may be a value where a sample is not known"
    if all(kinds[name] == _FIXED for name in read):
        return "it reads nothing that is sampled"
    return ""


def _silence_us(result: Node, valid: ValidClause | None, context: Context) -> int:
    if valid is not None:
        longest = valid.args.get("longest")
        longest_us = (
            LONGEST_SILENCE_US if longest is None else read_quantity(longest, duration_us, context, meant="MINUTES")
        )
        return min(LONGEST_SILENCE_US, longest_us)
    window = next((each for each in nodes_of(result) if isinstance(each, TimeWindow | KeptExtent)), None)
    if window is None or (isinstance(window, KeptExtent) and window.kept.rows is not None):
        return WITHOUT_TIME_US
    size_us = window.kept.size_us if isinstance(window, KeptExtent) else window.size_us
    return LONGEST_SILENCE_US if size_us is None else min(LONGEST_SILENCE_US, size_us // SHARE_OF_WINDOW)


def _kinds_of(node: Node) -> dict[str, int] | None:
    """Return whether columns are fixed, or NULL where a sample is not known; None if these samples do not come here."""
    above: list[Project | Filter] = []
    while isinstance(node, Project | Filter):
        above.append(node)
        node = node.input
    if not isinstance(node, Source) or node.detector is not None:
        return None
    sampled = {column.name for column in node.sampled if column != STAMP}
    kinds = {name: _SAMPLED if name in sampled else _OTHER for name in (column.name for column in node.columns)}
    kinds |= dict.fromkeys(node.fixed, _FIXED)
    for each in reversed(above):
        if isinstance(each, Project):
            kinds = {output.name: _kind_of(output.scalar.expression, kinds) for output in each.outputs}
        elif any(kinds[name] != _FIXED for name in columns_read(each.predicate.expression)):
            return None
    return kinds


def _kind_of(expression: nodes.Expression, columns: Mapping[str, int]) -> int:
    """Return the kind of an expression: NULL if one of its operands is, as far as is certain."""
    kinds: dict[int, int] = {}
    for each in from_below(expression):
        below = {kinds[id(operand)] for operand in each.operands}
        if isinstance(each, nodes.Column):
            kind = columns[each.name]
        elif below <= {_FIXED}:
            kind = _FIXED
        elif any(kinds[id(operand)] == _SAMPLED for operand in _strict(each)):
            kind = _SAMPLED
        else:
            kind = _OTHER
        kinds[id(each)] = kind
    return kinds[id(expression)]


def _strict(expression: nodes.Expression) -> tuple[nodes.Expression, ...]:
    """Return operands that make an expression NULL if they are."""
    match expression:
        case nodes.Binary() if expression.sign in _PASS_NULL_ON:
            return expression.operands
        case nodes.Between():
            return (expression.value,)
        case nodes.Group() | nodes.Negative() | nodes.Not() | nodes.Cast():
            return expression.operands
        case _:
            return ()

"""The syntax of an item of FROM, and the clauses that transform its tuples: one row each."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from cluster.language.granularity_clause import GRANULARITY
from cluster.language.item_clause import ItemClause

ITEM_CLAUSES: tuple[ItemClause, ...] = (GRANULARITY,)
"""In the order in which they are applied, whatever the order in which they are written."""


class StreamItem(exp.Expression):
    """One item of FROM: a name, a query or a changing relation with its clauses."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "alias": False,
        "window": False,
        "valid": False,
        "coalesce": False,
        "keep": False,
        **dict.fromkeys((each.slot for each in ITEM_CLAUSES), False),
        "sample": False,
        "events": False,
        "since": False,
    }


class Changes(exp.Expression):
    """``Istream(relation)``, ``Dstream(relation)`` or ``Rstream(relation)``; the relation is a :class:`StreamItem`."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": True}


def reshaping(item: exp.Expr) -> exp.Expr | None:
    """Return the window of an item or of a join, or else its first clause that transforms tuples, if any."""
    slots = ("window", *(each.slot for each in ITEM_CLAUSES))
    return next((clause for slot in slots if (clause := item.args.get(slot))), None)

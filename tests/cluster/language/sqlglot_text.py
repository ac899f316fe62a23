"""Expressions as sqlglot writes them: what names on disk and on the wire have always been made of."""

from __future__ import annotations

from sqlglot import exp

from cluster.language.dialect import FjordSQL


def canonical(tree: exp.Expr) -> str:
    """Return the text of a resolved expression."""
    return tree.sql(dialect=FjordSQL, identify=True, comments=False)

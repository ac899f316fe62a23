"""Separates the table of a lookup from the query's own projection and filter, so that other queries can share it."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.operators import Filter, Lookup, Node, Project
from cluster.operators.columns import Scalar
from cluster.operators.scalar_expressions import by_name, conjunction_of, conjuncts_of, plain_column, substituted


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A lookup's table without the query's selection of columns and rows.

    Parameters
    ----------
    rest
        The table below the selection.
    names
        By column of the lookup's table: its name there.
    condition
        Over the columns there; None for all rows.
    """

    rest: Node
    names: dict[str, str]
    condition: Scalar | None


def opened(lookup: Lookup) -> OpenedTable:
    """Return a lookup's table, opened as far as the selection can be applied afterwards."""
    table = lookup.table
    names = {column.name: column.name for column in table.schema}
    condition: Scalar | None = None
    while True:
        match table:
            case Project() if (plain := _plain(table)) is not None:
                below = None if condition is None else substituted(condition, by_name(table.outputs))
                if condition is not None and below is None:
                    return OpenedTable(table, names, condition)  # too large
                names = {name: plain[column] for name, column in names.items()}
                condition, table = below, table.input
            # Only pairs can be filtered afterwards: a missing row gives NULLs, or no row at all.
            case Filter() if lookup.kind == "inner":
                condition = conjunction_of((*conjuncts_of(table.predicate), *conjuncts_of(condition)))
                table = table.input
            case _:
                return OpenedTable(table, names, condition)


def _plain(table: Project) -> dict[str, str] | None:
    """Return the name of each column below, if a projection only renames and selects columns."""
    plain = {output.name: plain_column(output.scalar) for output in table.outputs}
    found = {name: below for name, below in plain.items() if below is not None}
    return found if len(found) == len(plain) else None

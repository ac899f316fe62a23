"""What the columns of a lookup's table are called below, and above."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.language.algebra import Lookup, Node, Output, Scalar, schema_of
from cluster.language.plans import column_scalar, project
from cluster.language.scope import unique_name


def called_columns(lookup: Lookup, names: dict[str, str]) -> dict[str, Scalar]:
    """Return the columns of a lookup's table under other names, by their own."""
    return {each.name: column_scalar(replace(each, name=names[each.name])) for each in schema_of(lookup.table)}


def renamed_table(lookup: Lookup, taken: list[str]) -> tuple[Node, dict[str, str]]:
    """Return a lookup's table with names that are not taken, and the new name of each column."""
    used = list(taken)
    names: dict[str, str] = {}
    for column in schema_of(lookup.table):
        names[column.name] = unique_name(column.name, used)
        used.append(names[column.name])
    outputs = [Output(names[each.name], column_scalar(each), each.unit) for each in schema_of(lookup.table)]
    return project(lookup.table, outputs), names


def found_columns(lookup: Lookup, names: dict[str, str]) -> list[Output]:
    """Return the columns that a lookup adds, under its own names, where they are called otherwise."""
    if not lookup.pairs:
        return []
    return [
        Output(column.name, column_scalar(replace(column, name=names[column.name])), column.unit)
        for column in schema_of(lookup.table)
    ]

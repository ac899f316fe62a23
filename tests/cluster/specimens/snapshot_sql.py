"""Writes what a plan means as one DuckDB query: a table expression per node, with a row per run, instant and tuple.

    #run   which of several stream sets (one query answers many at once)
    #t     the instant
    #n     multiplicity, at least 1
    #o     place in order of arrival; NULL where there is none any more (only count windows with equal stamps ask)

and then the node's columns.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.operators import Node, Source
from cluster.operators.columns import Scalar, Schema
from tests.cluster.oracle.scalar_sql import scalar_sql

HEAD = '"#run", "#t"'


def names_of(schema: Schema) -> str:
    """Return columns behind others."""
    return "".join(f', "{column.name}"' for column in schema)


def quoted(name: str) -> str:
    """Return a column's name."""
    return f'"{name}"'


def within(schema: Schema, table: str) -> str:
    """Return columns of a table behind others."""
    return "".join(f', {table}."{column.name}"' for column in schema)


def table_of(source: Source) -> str:
    """Return the name of the table of the tuples that a source takes."""
    period = "" if source.sample_period_us is None else f" every {source.sample_period_us}"
    return f"stream {source.stream}{period}"


def condition_sql(predicate: Scalar | None) -> str:
    """Return a condition; true if there is none."""
    return "true" if predicate is None else scalar_sql(predicate)


def counted(left: str, right: str, schema: Schema, count: str) -> str:
    """Return rows by their multiplicities in two tables, side by side; NULLs are equal to each other."""
    names = names_of(schema)
    return (
        f'SELECT {HEAD}, {count} AS "#n", NULL::BIGINT AS "#o"{names} FROM '
        f'(SELECT "#run", "#t", "#n" AS "#l", 0 AS "#r"{names} FROM ({left}) UNION ALL '
        f'SELECT "#run", "#t", 0, "#n", * EXCLUDE ("#run", "#t", "#n") FROM ({right})) '
        f"GROUP BY {HEAD}{names} HAVING {count} > 0"
    )


Define = Callable[[Node, "SnapshotSql"], str]
"""Writes the table expression of a node."""


class SnapshotSql:
    """The query: one common table expression per node; equal nodes share one.

    Parameters
    ----------
    define
        What nodes mean.
    root
        The plan.
    runs, instants
        How many.
    """

    def __init__(self, define: Define, root: Node, runs: int, instants: int) -> None:
        ranges = f"range({runs}) r, range({instants}) i"
        self._define = define
        self._parts = [f'instants AS MATERIALIZED (SELECT r.range AS "#run", i.range AS "#t" FROM {ranges})']
        self._written: dict[Node, str] = {}
        self._ambiguity: list[str] = []
        self.last = instants - 1
        self._root = self.of(root)
        self._names = names_of(root.schema)

    def snapshots(self) -> str:
        """Return the query for all snapshots of the root."""
        return (
            f'WITH {", ".join(self._parts)} SELECT {HEAD}, CAST(sum("#n") AS BIGINT){self._names} '
            f"FROM {self._root} GROUP BY {HEAD}{self._names}"
        )

    def ambiguity(self) -> str | None:
        """Return the query for the runs on which the plan is ambiguous; None if it cannot be."""
        if not self._ambiguity:
            return None
        return f"WITH {', '.join(self._parts)} {' UNION '.join(self._ambiguity)}"

    def of(self, node: Node) -> str:
        """Write a node's table expression; return its name."""
        if node not in self._written:
            sql = self._define(node, self)
            numbered = f'SELECT * REPLACE (CAST("#n" AS BIGINT) AS "#n") FROM ({sql})'
            self._written[node] = self.part("node", numbered)
        return self._written[node]

    def part(self, kind: str, sql: str) -> str:
        """Write a table expression beside those of nodes; return its name."""
        name = f"{kind}{len(self._parts)}"
        self._parts.append(f"{name} AS MATERIALIZED ({sql})")
        return name

    def ambiguous_if(self, runs: str) -> None:
        """Say that the plan has no one meaning on the runs that a query finds."""
        self._ambiguity.append(runs)

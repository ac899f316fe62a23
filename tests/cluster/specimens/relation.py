"""Relations: the same rows at every instant; and how tuples are looked up in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import polars as pl

from cluster.errors import PlanError
from cluster.expressions.nodes import NULL
from cluster.fjord.lookup_tables import LookupTable
from cluster.fjord.operators.held_rows import Held as HeldOperator
from cluster.fjord.operators.lookup import Lookup as LookupOperator
from cluster.operators import AntiJoin, Held, Join, Lookup, LookupKind, Node, Project, Relation, TableLookup, Union
from cluster.operators.columns import Column, Output, Scalar
from cluster.operators.scalar_expressions import column_scalar
from protocols.wire.streams import FieldType
from tests.cluster.fjord.operators.conformance import Case, condition
from tests.cluster.oracle.scalar_sql import NoDefinitionError
from tests.cluster.specimens.specimen import Cases, DefinedByRewriting, Specimen

TABLE = Relation("r", "r@1", (Column("id", FieldType.TEXT), Column("name", FieldType.TEXT)))


class Relations:
    """A relation of which another version holds from instant 9 on."""

    VERSIONS = ((-(2**62), [("a", "old"), ("a", "older")]), (9, [("a", "new"), ("b", "new")]))

    def pieces(
        self, table: Node, key: str | None, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, LookupTable | PlanError]]:
        found = []
        for since, rows in self.VERSIONS:
            if since <= last_us:
                found.append((since, LookupTable(pl.DataFrame(rows, schema=["id", "name"], orient="row"))))
        return found[1:] if len(found) > 1 and found[1][0] <= first_us else found


def looked_up(kind: LookupKind) -> LookupOperator:
    """Return what looks texts up."""
    return LookupOperator(TableLookup(TABLE, condition('"k" = "id"'), kind), frozenset(), Relations())


def held(begins_us: int, groups: tuple[int, ...] | None = None) -> Case:
    """Return a case of rows that hold from an instant on."""
    return Case(lambda: HeldOperator(TABLE, frozenset(), Relations(), begins_us=begins_us, waits_us=2, groups=groups))


class RelationSpecimen(Specimen[Relation]):
    """The oracle is given its rows."""

    node = Relation
    weight = 0


class HeldSpecimen(Specimen[Held]):
    """Its meaning is that of the relation; tests/cluster/local/test_flowing_relations.py has the changes in it."""

    node = Held
    weight = 0
    conformance: ClassVar[Cases] = {HeldOperator: (held(0), held(11, (1, 2)))}


class LookupSpecimen(DefinedByRewriting[Lookup]):
    node = Lookup
    weight = 0
    conformance: ClassVar[Cases] = {
        LookupOperator: (
            Case(lambda: looked_up("inner"), instantaneous=True),
            Case(lambda: looked_up("left")),
            Case(lambda: looked_up("semi")),
            Case(lambda: looked_up("anti")),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "lookup": "SELECT t.sensor, t.speed, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor",
        "lookup in a window": (
            "SELECT t.sensor, p.name FROM traffic WINDOW(RANGE 6 US) AS t, places AS p WHERE t.sensor = p.sensor"
        ),
        "lookup of some": (
            "SELECT t.sensor, p.name FROM traffic AS t, places AS p WHERE t.sensor = p.sensor AND p.closed"
        ),
        "lookup in two": (
            "SELECT t.sensor, p.name, l.fastest FROM traffic AS t, places AS p, limits AS l WHERE t.sensor = p.sensor "
            "AND p.segment = l.segment"
        ),
        "lookup without equality": "SELECT t.speed, l.fastest FROM traffic AS t, limits AS l WHERE t.speed > l.fastest",
        "lookup with more conditions": (
            "SELECT t.segment, l.fastest FROM traffic AS t, limits AS l WHERE t.segment = l.segment AND t.speed > "
            "l.fastest"
        ),
        "lookup by what is computed": (
            "SELECT t.lane, l.fastest FROM traffic AS t, limits AS l WHERE t.lane % 2 + 1 = l.segment"
        ),
        "left lookup by what is computed": (
            "SELECT t.lane, l.fastest FROM traffic AS t LEFT JOIN limits AS l ON t.speed * 2 = l.segment AND t.lane < "
            "l.fastest"
        ),
        "not in a relation by what is computed": (
            "SELECT sensor, lane FROM traffic AS t WHERE NOT EXISTS (SELECT 1 FROM places AS p WHERE UPPER(p.name) = "
            "UPPER(t.sensor) OR p.name = t.sensor || 'orth')"
        ),
        "left lookup": "SELECT t.sensor, t.lane, p.name FROM traffic AS t LEFT JOIN places AS p ON t.sensor = p.sensor",
        "left lookup with a condition": (
            "SELECT t.sensor, p.name FROM traffic AS t LEFT JOIN places AS p ON t.sensor = p.sensor AND p.closed"
        ),
        "left lookup of nothing": (
            "SELECT t.lane FROM traffic AS t LEFT JOIN limits AS l ON t.segment = l.segment WHERE l.segment IS NULL"
        ),
        "in a relation": (
            "SELECT speed FROM traffic WHERE segment IN (SELECT segment FROM limits WHERE segment IS NOT NULL)"
        ),
        "not in a relation": (
            "SELECT speed, segment FROM traffic WHERE segment NOT IN (SELECT segment FROM incidents WHERE segment > 1)"
        ),
        "exists in a relation": (
            "SELECT sensor FROM traffic AS t WHERE EXISTS (SELECT 1 FROM limits AS l WHERE l.segment = t.segment AND "
            "l.fastest > t.speed)"
        ),
        "not exists in a relation": (
            "SELECT sensor, segment FROM traffic AS t WHERE NOT EXISTS (SELECT 1 FROM incidents AS i WHERE i.segment = "
            "t.segment)"
        ),
        "lookup of an aggregate": (
            "SELECT s.segment, s.n, l.fastest FROM (SELECT segment, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US "
            "SLIDE 10 US) GROUP BY segment) AS s, limits AS l WHERE s.segment = l.segment"
        ),
    }
    golden = "lookup of an aggregate"

    def as_plan(self, node: Lookup) -> Node:
        """Return a left join in other words: pairs, and the tuples that have none with NULLs."""
        if node.kind != "left":
            raise NoDefinitionError(f"a look-up of the kind {node.kind}, which only plans that were rewritten have")
        pairs = Join(node.input, node.table, node.predicate)
        own = [Output(column.name, column_scalar(column)) for column in node.input.schema]
        nothing = [Output(column.name, Scalar(NULL, column.type)) for column in node.table.schema]
        return Union(pairs, Project(AntiJoin(node.input, node.table, node.predicate), (*own, *nothing)))

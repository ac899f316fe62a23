"""Relations in memory, and how they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS
from cluster.fjord.lookup_tables import LookupTable, Parts, UnreadableRelationError
from cluster.fjord.snapshot_evaluation import evaluate_snapshot
from cluster.operators import Node, Relation
from cluster.scalars.real_values import settled_scan
from protocols.wire.streams import FieldType


@dataclass(frozen=True, slots=True)
class RelationRows:
    """A relation's rows from some instant on.

    Parameters
    ----------
    rows
        All its rows.
    begins_us
        By stream: tuples stamped at or after this instant meet them; streams that are not named always do. The first
        rows of a relation have always been there.
    """

    rows: pl.DataFrame
    begins_us: Mapping[str, int] = field(default_factory=dict)


class MemoryTables:
    """Tables of relations in memory, for lookups.

    Parameters
    ----------
    relations
        By identity of a relation: its rows, oldest first. May grow: what has been read stays as it was.
    """

    def __init__(self, relations: Mapping[str, Sequence[RelationRows]] | None = None) -> None:
        self._relations = relations or {}
        self._made: dict[tuple[Node, tuple[int, ...]], LookupTable] = {}

    def advance(self, versions: Mapping[str, int]) -> None:
        """Do nothing: all versions are in memory already."""
        del versions

    def pieces(
        self, table: Node, key: str | None, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, Parts | PlanError]]:
        """Return a table's versions between two instants: since when, and its rows; the first holds at `first_us`.

        Raises
        ------
        UnreadableRelationError
            If one of its relations has no rows yet.
        """
        del key
        relations = table.relations
        begins = {each: self._begins(each, streams) for each in relations}
        changes = {since for known in begins.values() for since in known if first_us < since <= last_us}
        return [
            (since, self._table(table, {each: _active(known, since) for each, known in begins.items()}))
            for since in [first_us, *sorted(changes)]
        ]

    def _begins(self, relation: Relation, streams: frozenset[str]) -> list[int]:
        versions = self._relations.get(relation.identity, ())
        if not versions:
            raise UnreadableRelationError(f"relation {relation.name} has not been read yet")
        later = [
            max((each.begins_us.get(stream, ALWAYS) for stream in streams), default=ALWAYS) for each in versions[1:]
        ]
        return [ALWAYS, *later]

    def _table(self, table: Node, active: Mapping[Relation, int]) -> LookupTable:
        key = (table, tuple(active.values()))
        if key not in self._made:
            scans = {each: _scan(each, self._relations[each.identity][number]) for each, number in active.items()}
            self._made[key] = LookupTable(evaluate_snapshot(table, scans))
        return self._made[key]


def _active(begins: Sequence[int], instant_us: int) -> int:
    return max(number for number, since in enumerate(begins) if since <= instant_us)


def _scan(relation: Relation, version: RelationRows) -> pl.LazyFrame:
    reals = [column.name for column in relation.columns if column.type is FieldType.REAL]
    return settled_scan(version.rows.lazy(), reals)


class MemoryStore(dict[str, bytes]):
    """Values by name. A copy is a snapshot: values never change."""

    def put(self, name: str, value: bytes) -> None:
        """Set a value."""
        self[name] = value

    def remove(self, name: str) -> None:
        """Remove a value."""
        del self[name]

    def names(self) -> Iterable[str]:
        """Return the names of all values."""
        return list(self)

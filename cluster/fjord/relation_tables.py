"""Tables made of relations, at the versions that a micro-batch knows.

A table is pulled once for each combination of versions; it, and the hash tables on its columns, stay in the worker's
memory for the micro-batches that follow, and for all lookups that ask for the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS
from cluster.fjord.operators.lookup import LookupTable
from cluster.fjord.pull_plan import pulled
from cluster.language.algebra import Node, Relation
from cluster.plan.lookups import relations_of
from cluster.storage.relation_versions import RelationVersion, RelationVersions

LARGEST_KEPT_BYTES = 1 << 30
"""Tables in a worker's memory; beyond that, those that were not asked for longest go."""


class UnreadableRelationError(PlanError):
    """A relation that cannot be looked up: not read yet, or not for longer than its author allows."""


class RelationTables:
    """Answers what lookups ask.

    Parameters
    ----------
    folder
        Where the versions of all relations are.
    versions
        By identity of a relation: its newest version that counts.
    """

    def __init__(self, folder: str, versions: Mapping[str, int]) -> None:
        self._folder = Path(folder)
        self._versions = dict(versions)
        self._histories: dict[tuple[str, frozenset[str]], list[tuple[int, RelationVersion]]] = {}

    def advance(self, versions: Mapping[str, int]) -> None:
        """Take note of newer versions."""
        if versions != self._versions:
            self._versions = dict(versions)
            self._histories.clear()

    def pieces(
        self, table: Node, streams: frozenset[str], first_us: int, last_us: int
    ) -> Sequence[tuple[int, LookupTable]]:
        """Return what a table is between two instants: since when, and its rows; the first holds at `first_us`.

        Raises
        ------
        UnreadableRelationError
            If one of its relations has no version, or one that says that it has not been read for too long.
        """
        relations = relations_of(table)
        histories = {each.identity: self._history(each, streams) for each in relations}
        changes = {since for history in histories.values() for since, _ in history if first_us < since <= last_us}
        pieces = []
        for since in [first_us, *sorted(changes)]:
            active = {each: _active(histories[each.identity], since) for each in relations}
            pieces.append((since, self._table(table, active)))
        return pieces

    def _history(self, relation: Relation, streams: frozenset[str]) -> list[tuple[int, RelationVersion]]:
        """Return since when each version holds, oldest first; the oldest there is has always held."""
        key = (relation.identity, streams)
        if key not in self._histories:
            versions = RelationVersions(self._folder / relation.identity)
            last = self._versions.get(relation.identity, 0)
            known = [versions.version(number) for number in versions.numbers() if number <= last]
            if not known:
                raise UnreadableRelationError(f"relation {relation.name} has not been read yet")
            begins = [max((each.begins_us.get(stream, ALWAYS) for stream in streams), default=ALWAYS) for each in known]
            self._histories[key] = list(zip([ALWAYS, *begins[1:]], known, strict=True))
        return self._histories[key]

    def _table(self, table: Node, active: Mapping[Relation, RelationVersion]) -> LookupTable:
        for version in active.values():
            if version.failure:
                raise UnreadableRelationError(version.failure)
        key = (str(self._folder), table, tuple(version.data for version in active.values()))
        found = _kept.pop(key, None)
        if found is None:
            scans = {each: pl.scan_parquet(self._file(each, version)) for each, version in active.items()}
            found = LookupTable(pulled(table, scans))
        _kept[key] = found
        while len(_kept) > 1 and sum(each.bytes for each in _kept.values()) > LARGEST_KEPT_BYTES:
            _kept.popitem(last=False)
        return found

    def _file(self, relation: Relation, version: RelationVersion) -> Path:
        return RelationVersions(self._folder / relation.identity).snapshot(version.number)


_kept: OrderedDict[tuple[str, Node, tuple[int, ...]], LookupTable] = OrderedDict()
"""Tables this worker has pulled, by folder, plan and versions; that asked for last comes last."""


def _active(history: Sequence[tuple[int, RelationVersion]], instant_us: int) -> RelationVersion:
    return next(version for since, version in reversed(history) if since <= instant_us)

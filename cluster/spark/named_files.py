"""Syncs what an offset names before Spark logs the offset.

Each version is synced when it is committed, but it is visible a moment before. If an offset named it then, the offset
could be on disk after a power cut and the version not: another version would get its number, and would count as read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cluster.spark.offsets import Offset
from cluster.storage.archived_log import LOG, is_local
from cluster.storage.synced_files import sync
from cluster.storage.table_folders import folder_of, relation_folder


def sync_named(start: Offset, end: Offset, streams: str, plans: str, relations: str) -> None:
    """Sync what an offset names and the one before it did not.

    Parameters
    ----------
    start, end
        The offset before, and the one to come.
    streams, plans, relations
        Folders of stream tables, plan files, and versions of relations.

    Raises
    ------
    OSError
        If something cannot be synced.
    """
    if start == end:
        return
    sync((path for path in _commits(start, end, streams)), missing_ok=True)
    sync((path for path in _folders(start, end, streams, plans, relations)), missing_ok=True)


def _commits(start: Offset, end: Offset, streams: str) -> Iterator[Path]:
    for stream, version in end.versions.items():
        # A commit is synced before the next one is made: what is further back is on disk, in the archive even.
        first = max(start.versions.get(stream, 0) + 1, version - 1)
        if is_local(streams):
            yield from (
                Path(streams, folder_of(stream), LOG, f"{each:020d}.json") for each in range(first, version + 1)
            )


def _folders(start: Offset, end: Offset, streams: str, plans: str, relations: str) -> Iterator[Path]:
    for commit in _commits(start, end, streams):
        yield commit.parent
    if start.epoch != end.epoch:
        yield Path(plans)
    for identity, version in end.relations.items():
        if start.relations.get(identity) != version:
            yield Path(relations, relation_folder(identity))

"""Versions of relations: immutable snapshots in a folder that driver and executors share.

A version has, for each stream, the instant from which on tuples are looked up in it: later than all stored tuples of
the stream when the version was made. So a change affects only later tuples (papers/star_joins.md section 1.3),
a late tuple is still joined with the rows that were active when it was sampled, and a replay finds the same rows as the
first run.

A snapshot is Parquet; a small JSON file beside it describes it. The version exists once this file is written.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
import polars as pl

from cluster.errors import StorageError
from cluster.storage.synced_files import make_folder, rename
from cluster.storage.table_folders import relation_folder

KEEP = 16
"""Most recent versions, which are kept however old they are."""
KEEP_SECONDS = 3600.0
"""Younger versions stay, however many there are: late tuples and replays may need them."""


class RelationVersion(msgspec.Struct, frozen=True):
    """A version of a relation.

    Parameters
    ----------
    number
        From 1.
    data
        Number of the version whose snapshot it has: its own, unless only `failure` changed.
    begins_us
        By stream: tuples stamped at or after this instant are joined with it; of other streams, all tuples.
    rows, bytes
        Size of the snapshot; the bytes are those of its columns in memory.
    failure
        The error for lookups, in place of rows; empty if the relation can be read.
    distinct
        By column: about how many different values it has.
    """

    number: int
    data: int
    begins_us: Mapping[str, int]
    rows: int
    bytes: int
    failure: str = ""
    distinct: Mapping[str, int] = {}


class RelationVersions:
    """The versions of one relation.

    Parameters
    ----------
    folder
        Their folder: see :meth:`below`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._distinct: Mapping[str, int] = {}

    @classmethod
    def below(cls, relations: Path | str, identity: str) -> RelationVersions:
        """Return the versions of a relation, given the folder of all."""
        return cls(Path(relations, relation_folder(identity)))

    def latest(self) -> int:
        """Return the number of the newest version; 0 if there is none."""
        return max(self.numbers(), default=0)

    def numbers(self) -> list[int]:
        """Return the numbers of all existing versions, oldest first."""
        return sorted(int(path.stem) for path in self.folder.glob("*.json"))

    def version(self, number: int) -> RelationVersion:
        """Return a version.

        Raises
        ------
        StorageError
            If the number does not exist, or the version's file is damaged.
        """
        try:
            return _described(self._description(number))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = f"version {number} of relation {self.folder.name} cannot be read: {error}"
            raise StorageError(reason) from error

    def snapshot(self, number: int) -> Path:
        """Return the Parquet file of a version's rows."""
        return self.folder / f"{self.version(number).data:012d}.parquet"

    def prepare(self, rows: pl.DataFrame) -> int:
        """Write the rows of the next version, which is invisible before it is committed; return its number."""
        number = self.latest() + 1
        make_folder(self.folder)
        path = self.folder / f"{number:012d}.parquet"
        unfinished = path.with_suffix(".unfinished")
        rows.write_parquet(unfinished, compression="lz4")  # written once, and read by every worker
        rename(unfinished, path)
        self._distinct = rows.select(pl.all().approx_n_unique()).row(0, named=True) if rows.width else {}
        return number

    def commit(self, rows: pl.DataFrame, begins_us: Mapping[str, int]) -> RelationVersion:
        """Make the prepared version the newest one. This is quick: no tuple of a stream may be stored meanwhile.

        Parameters
        ----------
        rows
            The prepared version.
        begins_us
            By stream: an instant after all its stored tuples.
        """
        number = self.latest() + 1
        size = int(rows.estimated_size())
        return self._write(RelationVersion(number, number, dict(begins_us), rows.height, size, distinct=self._distinct))

    def commit_failure(self, failure: str, begins_us: Mapping[str, int]) -> RelationVersion:
        """Make a version whose lookups fail with an error; an empty `failure` ends that.

        Raises
        ------
        StorageError
            If there is no version yet.
        """
        last = self.version(self.latest())
        return self._write(
            msgspec.structs.replace(last, number=last.number + 1, begins_us=dict(begins_us), failure=failure)
        )

    def prune(self, *, keep: int = KEEP, now_seconds: float) -> int:
        """Remove old versions; return how many.

        Parameters
        ----------
        keep
            How many stay in any case.
        now_seconds
            Seconds since 1970.
        """
        old = [
            number
            for number in self.numbers()[:-keep]
            if self._description(number).stat().st_mtime < now_seconds - KEEP_SECONDS
        ]
        for number in old:
            self._description(number).unlink()
        used = {self.version(number).data for number in self.numbers()}
        for path in self.folder.glob("*.parquet"):
            if int(path.stem) not in used and int(path.stem) <= self.latest():
                path.unlink()
        for path in self.folder.glob("*-by-*"):
            if int(path.name.split("-", 1)[0]) not in used:
                shutil.rmtree(path, ignore_errors=True)
        return len(old)

    def set_aside(self, number: int) -> None:
        """Treat a version with a damaged description as if it had never been made."""
        path = self._description(number)
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".damaged"))

    def _description(self, number: int) -> Path:
        return self.folder / f"{number:012d}.json"

    def _write(self, version: RelationVersion) -> RelationVersion:
        path = self._description(version.number)
        unfinished = path.with_suffix(".being-written")
        unfinished.write_bytes(msgspec.json.encode(version))
        rename(unfinished, path)
        return version


@lru_cache(maxsize=16_384)
def _described(path: Path) -> RelationVersion:
    """Read the description of a version; kept in memory, because every task of every micro-batch needs all of them."""
    return msgspec.json.decode(path.read_bytes(), type=RelationVersion)

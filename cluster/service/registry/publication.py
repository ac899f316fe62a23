"""How far results have been published, and which of them are lost."""

from __future__ import annotations

import time

import msgspec

from cluster.service.registry.registry_file import RegistryFile


class LostResults(msgspec.Struct, frozen=True):
    """Results that are lost, published or not.

    Parameters
    ----------
    times
        How often some were lost.
    commits, rows
        How many; rows as far as is known.
    seen_us
        When the last loss was found.
    """

    times: int = 0
    commits: int = 0
    rows: int = 0
    seen_us: int | None = None


class Publication:
    """The registry's record of published results.

    Parameters
    ----------
    database
        The registry's.
    """

    def __init__(self, database: RegistryFile) -> None:
        self._database = database

    def position(self) -> tuple[int, int]:
        """Return up to where results have been published: a version of the results table, and rows of the next one."""
        found = self._database.execute("SELECT version, row FROM published").fetchone()
        return (0, 0) if found is None else (int(found[0]), int(found[1]))

    def version(self) -> int:
        """Return the version of the results table up to which everything has been published."""
        return self.position()[0]

    def set_position(self, version: int, row: int) -> None:
        """Note that everything up to `version`, and `row` rows of the one after it, has been published."""
        self._database.execute("INSERT OR REPLACE INTO published VALUES (0, ?, ?)", (version, row))

    def lost(self) -> LostResults:
        """Return which results are lost."""
        found = self._database.execute("SELECT value FROM meta WHERE key = 'lost_results'").fetchone()
        return LostResults() if found is None else msgspec.json.decode(found[0], type=LostResults)

    def note_lost(self, version: int, *, commits: int, rows: int) -> LostResults:
        """Record how many commits, and rows if known, are lost; publication continues after `version`."""
        before = self.lost()
        lost = LostResults(before.times + 1, before.commits + commits, before.rows + rows, time.time_ns() // 1000)
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(
                "INSERT OR REPLACE INTO meta VALUES ('lost_results', ?)", (msgspec.json.encode(lost).decode(),)
            )
            self._database.execute("INSERT OR REPLACE INTO published VALUES (0, ?, 0)", (version,))
        return lost

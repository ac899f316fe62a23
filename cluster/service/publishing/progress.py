"""How far publishers are, as they last reported, or as the data folder says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cluster.service.publishing.publication import Publication, published_of
from cluster.service.publishing.published import LostResults, most_lost
from cluster.service.publishing.publisher_channel import Report
from cluster.service.publishing.shares import Share, shares_of


class Progress:
    """How far a publisher is.

    Parameters
    ----------
    share
        What it publishes.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self.last = Report(0)
        self.rows_before = 0
        """Rows that processes published that have ended."""

    def begin(self, version: int, lost: LostResults) -> None:
        """Begin at a version, with what is lost; no process runs."""
        self.last = Report(version, lost=lost)

    def ended(self) -> None:
        """Note that the process has ended."""
        self.rows_before += self.last.rows
        self.begin(self.last.version, self.last.lost)

    @property
    def rows(self) -> int:
        """Rows published since this cluster was started."""
        return self.rows_before + self.last.rows


class ProgressOfAll:
    """How far all publishers of a data folder are.

    Parameters
    ----------
    folder
        The data folder.
    publishers
        How many there are to be.

    Raises
    ------
    StorageError
        If the data folder does not say how far publication is.
    """

    def __init__(self, folder: Path, publishers: int = 1) -> None:
        self._folder = folder
        self.each: Sequence[Progress] = [Progress(share) for share in shares_of(publishers)]
        self.begin()

    def begin(self) -> None:
        """Begin where the data folder says, before shards are divided; no publisher runs."""
        published = published_of(self._folder)
        for progress in self.each:
            progress.begin(published.version, published.lost)

    def divided(self) -> None:
        """Begin where each publisher will, once shards are divided among them; errors are those of the class."""
        for progress in self.each:
            now = Publication(self._folder, progress.share).now
            progress.begin(now.version, now.lost)

    def version(self) -> int:
        """Return the version of the results table up to which everything has been published."""
        return min(progress.last.version for progress in self.each)

    @property
    def lost(self) -> LostResults:
        """Which results are lost."""
        return most_lost(progress.last.lost for progress in self.each)

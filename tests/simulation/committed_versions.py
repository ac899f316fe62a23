"""What a cluster has committed to its tables, noted when it was: retention may remove it, and power cuts the newest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.physical.plan_files import PlanFiles
from cluster.storage.commit_log import CommitLog
from cluster.storage.stream_tables import watermark_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.physical.nodes import PhysicalPlan

ALWAYS_US = -(2**62)


@dataclass(frozen=True)
class Version:
    """A version of a table: the data files it added, and the watermark that its commit says."""

    files: list[bytes]
    watermark_us: int | None

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of its files, read when they are asked for first: they are again, once for each query."""
        tables = (pq.ParquetFile(pa.py_buffer(octets)).read(use_threads=False) for octets in self.files)
        return [row for table in tables for row in table.to_pylist()]


class Span(NamedTuple):
    """Between which positions of a stream a query has answers.

    Parameters
    ----------
    begun
        The version of the stream's table after which it was added; -1 if it has seen all.
    ended
        The version after which it was dropped; None if it was not.
    handover
        Of one that was dropped while it handed over to another plan: at which instant, and up to which one its streams
        would have had to come. None for one that was not.
    """

    begun: int
    ended: int | None
    handover: tuple[int, int] | None = None


class CommittedVersions:
    """The versions of all tables of a cluster.

    Parameters
    ----------
    folder
        The data folder.
    seconds
        Returns the present, in simulated seconds.
    """

    def __init__(self, folder: Path, seconds: Callable[[], float]) -> None:
        self._folder = folder
        self._seconds = seconds
        self._known: dict[tuple[str, int], Version] = {}
        self._at: dict[tuple[str, int], float] = {}

    def note(self, root: str, version: int) -> None:
        """Note a version that has been committed; a power cut may have taken an older one of the same number."""
        commit = CommitLog(root).read(version)
        files = [Path(root, file.path).read_bytes() for file in commit.files]
        self._known[root, version] = Version(files, watermark_of(commit.metadata))
        self._at[root, version] = self._seconds()

    def age_seconds(self, table: str, version: int) -> float:
        """Return how long ago a version was committed."""
        return self._seconds() - self._at[str(self._folder / table), version]

    def rows(self, table: str, newest: int, after: int = -1) -> Iterator[dict[str, Any]]:
        """Yield all rows that a table was given after a version, up to its newest version, which it knows itself."""
        root = str(self._folder / table)
        for version in range(after + 1, newest + 1):
            yield from self._known[root, version].rows

    def watermark_us(self, stream: str, version: int) -> int:
        """Return a stream's watermark at a version of its table; an instant before all others if it has none."""
        root = str(self._folder / "streams" / stream)
        for each in range(version, -1, -1):
            found = self._known[root, each].watermark_us
            if found is not None:
                return found
        return ALWAYS_US

    def span(self, query: str, stream: str) -> Span | None:
        """Return between which positions a query has answers, by its plans; None if no plan has it."""
        plans = PlanFiles(self._folder / "plans")
        begun, handover = None, None
        for epoch in range(1, plans.newest() + 1):
            plan = plans.read(epoch)
            if begun is not None and not _has(plan, query):
                return Span(begun, plan.positions.get(stream, -1), handover)
            if begun is None and _has(plan, query):
                begun = plan.positions.get(stream, -1)
            handover = _handover(plan, query)
        return None if begun is None else Span(begun, None)

    def span_us(self, query: str, stream: str) -> tuple[int, int | None] | None:
        """Return between which instants a query without state has answers: from, and until if dropped.

        None if no plan has it. It begins with what lies behind the watermark at the position of its epoch.
        """
        span = self.span(query, stream)
        if span is None:
            return None
        return self.watermark_us(stream, span.begun), None if span.ended is None else self.watermark_us(
            stream, span.ended
        )


def _has(plan: PhysicalPlan, query: str) -> bool:
    return any(identity.rpartition("@")[0] == query for identity in plan.subscribers)


def _handover(plan: PhysicalPlan, query: str) -> tuple[int, int] | None:
    """Return the instants of the handover that a query of a plan is in, if it is in one."""
    return next(
        (
            (each.until.at_us, each.until.opens_us)
            for fragment in plan.fragments
            for each in fragment.subscribers
            if each.query == query and each.until is not None
        ),
        None,
    )

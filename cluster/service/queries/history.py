"""The stored rows that a query with history reads before it continues live: shown when it is added or explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.fjord.batch import instant_text
from cluster.operators import Node
from cluster.plan.history import EVER_US, history_starts, streams_of_held, with_history_starts
from cluster.storage.stored_files import StoredFiles
from cluster.storage.stream_tables import StreamTable, watermark_at


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """The part of one stream's history that a query reads.

    Parameters
    ----------
    stream
        The stream.
    begins_us
        From which instant on; None for all that is stored.
    stored_us
        The earliest stamp that is stored; None if nothing is.
    rows, files
        About how many rows are stamped since then, in how many files.
    kept_from_us
        The instant after which nothing has been removed; None if nothing ever was.
    """

    stream: str
    begins_us: int | None
    stored_us: int | None
    rows: int
    files: int
    kept_from_us: int | None = None

    @property
    def warning(self) -> str | None:
        """A warning about what the user might not expect; None if there is nothing."""
        if self.stored_us is None:
            return f"nothing is stored of {self.stream} yet: there is no history to read"
        if self.kept_from_us is not None and (self.begins_us is None or self.kept_from_us > self.begins_us):
            return f"{self.stream} is kept since {instant_text(self.kept_from_us)} only: older rows have been removed"
        if self.begins_us is not None and self.stored_us > self.begins_us:
            return f"{self.stream} is stored since {instant_text(self.stored_us)} only: there is no more history"
        return None

    def as_json(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        since = None if self.begins_us is None else instant_text(self.begins_us)
        return {"stream": self.stream, "since": since, "rows": self.rows, "files": self.files}


def begun_at(node: Node, epoch: int, positions: Mapping[str, int], tables: Mapping[str, StreamTable]) -> Node:
    """Return a plan with the instants from which on it reads streams, if an epoch begins at these positions.

    Parameters
    ----------
    node
        The plan.
    epoch
        The epoch.
    positions, tables
        By stream.
    """
    watermarks = {
        stream: watermark_at(tables[stream].log, positions[stream])
        for stream in {*history_starts(node), *streams_of_held(node)}
    }
    stored = {
        stream: StoredFiles.at(tables[stream].root, tables[stream].version).first_us
        for stream in history_starts(node).keys() & streams_of_held(node)
    }
    return with_history_starts(node, epoch, watermarks, stored)


def history_of(node: Node, tables: Mapping[str, StreamTable]) -> Iterator[HistoryRead]:
    """Yield the history that a query reads, stream by stream.

    Parameters
    ----------
    node
        Its plan, with beginnings.
    tables
        By stream.
    """
    for stream, begins_us in sorted(history_starts(node).items()):
        stored = StoredFiles.at(tables[stream].root, tables[stream].version)
        rows, files = round(stored.rows_between(begins_us, None)), len(stored.between(begins_us, None))
        since_us = None if begins_us == EVER_US else begins_us
        yield HistoryRead(stream, since_us, stored.first_us, rows, files, tables[stream].retention.kept_from_us)


def history_text(reads: tuple[HistoryRead, ...], at_once: int) -> str:
    """Return in words which history a query reads, and in portions of what size.

    Parameters
    ----------
    reads
        What it reads.
    at_once
        Rows of history that one micro-batch reads.
    """
    lines = []
    for read in reads:
        since = "from the beginning" if read.begins_us is None else f"since {instant_text(read.begins_us)}"
        lines.append(f"{read.stream} {since}: about {_counted(read.rows, 'row')} in {_counted(read.files, 'file')}")
        if read.warning:
            lines.append(read.warning)
    if sum(read.rows for read in reads) > at_once:
        lines.append(f"about {at_once:,} rows at once, while other queries go on")
    return "\n".join(f"  {line}" for line in lines)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"

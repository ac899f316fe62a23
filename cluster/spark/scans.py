"""Which scan a node of the plan reads in a micro-batch: what is new, shared by all, or a piece of a query's past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cluster.fjord.batch import NEVER
from cluster.fjord.stored_rows import RowsInFile
from cluster.fjord.stream_scan import StreamScan
from cluster.language.algebra import History
from cluster.spark.catching_up import PastRead


class Scans:
    """The scans of one part of a micro-batch.

    Parameters
    ----------
    folder
        Of all stream tables.
    files
        (stream, path below its table) of what is new.
    watermarks_us
        By stream.
    past
        What queries that catch up with their streams read instead.
    between_us
        By stream: between which stamps what is new is read; a stream that is left out is read whatever its stamps.
    """

    def __init__(
        self,
        folder: str,
        files: Sequence[tuple[str, str]],
        watermarks_us: Mapping[str, int],
        past: Iterable[PastRead] = (),
        between_us: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self._folder = folder
        self._live = StreamScan(self._rows(files), watermarks_us, between_us=between_us)
        self._past = {(read.epoch, read.stream): read for read in past}
        self._made: dict[tuple[int, str, int], StreamScan] = {}

    def of(self, stream: str, history: History | None) -> tuple[str, StreamScan]:
        """Return the scan of a stream, and what tells it in names from the live one; empty for that.

        Parameters
        ----------
        stream
            Its name.
        history
            The past that is read first, if any: while it is, that is what is scanned.
        """
        read = None if history is None else self._past.get((history.epoch, stream))
        if read is None or history is None:
            return "", self._live
        begins_us = read.from_us if history.begins_us is None else history.begins_us
        key = (read.epoch, read.stream, begins_us)
        if key not in self._made:
            self._made[key] = self._scan(read, begins_us)
        return f" since {begins_us} for epoch {read.epoch}", self._made[key]

    def _scan(self, read: PastRead, begins_us: int) -> StreamScan:
        # A query may read one stream twice, and look back less far the second time.
        between = max(read.from_us, begins_us), NEVER if read.until_us is None else read.until_us
        watermarks = {} if read.watermark_us is None else {read.stream: read.watermark_us}
        files = [(read.stream, path) for path in read.paths]
        return StreamScan(self._rows(files), watermarks, between_us={read.stream: between}, begins_us=begins_us)

    def _rows(self, files: Iterable[tuple[str, str]]) -> dict[str, list[RowsInFile]]:
        found: dict[str, list[RowsInFile]] = {}
        for stream, path in files:
            found.setdefault(stream, []).append(RowsInFile(f"{self._folder}/{stream}/{path}"))
        return found

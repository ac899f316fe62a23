"""Spark's way through micro-batches without Spark: the same log, the same order of files, nothing synced."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark.sql.streaming.datasource import ReadMaxRows

from cluster.local.engine import MemoryStore
from cluster.physical.nodes import Host
from cluster.spark import bucket_processor
from cluster.spark.bucket_processor import BucketHost, Envelope
from cluster.spark.checkpoint import CheckpointFiles, discard_truncated, discard_unstarted
from cluster.spark.envelopes import OUTPUT_SCHEMA
from cluster.spark.hosting import storing
from cluster.spark.source import FjordReader, SourceOptions
from cluster.storage.results_table import ResultsTable
from cluster.storage.unnumbered_answers import Numbering, UnnumberedFolder, write_numbered

BUCKETS = 2
ROWS = 40
KEPT = 20
"""So many micro-batches are kept in the log."""
ANSWERS_RETURNED = 0
"""Tasks that have more answers write them: all without state."""
_numbers = itertools.count()


def _written(files: Sequence[Numbering]) -> list[AddAction]:
    return [write_numbered(each) for each in files]


class _Answers:
    """As much of a DataFrame as is used."""

    def __init__(self, run: Callable[[], pa.Table]) -> None:
        self.toArrow = run


class MicroBatches:
    """One of the two Spark queries.

    Parameters
    ----------
    host
        Which.
    folder
        The data folder.
    results
        Where answers go.
    run
        Identity of the run: tasks write many answers into a folder of it before they are numbered.
    checkpoint
        Folder of the logs and states of both.
    rows
        A micro-batch reads about so many.
    partitions
        In so many parts, at most.
    returned
        Tasks that have more answers write them.
    on_commit
        Called when answers are stored.
    """

    def __init__(
        self,
        host: Host,
        folder: Path,
        results: ResultsTable,
        run: str,
        *,
        checkpoint: Path | None = None,
        rows: int = ROWS,
        partitions: int = 2,
        returned: int = ANSWERS_RETURNED,
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = host
        self._checkpoint = (checkpoint or folder / "checkpoint") / host.value
        self._limit = ReadMaxRows(rows)
        self._run_name = f"run {next(_numbers)}"
        results.remove_uncommitted(host.value)
        files = UnnumberedFolder(results.root, run, host.value)
        files.make()
        bucket_processor._kept.clear()  # another process keeps nothing
        discard_truncated(self._checkpoint, partial(results.committed, writer=host.value))
        discard_unstarted(self._checkpoint)
        for log in ("offsets", "commits", "state"):
            (self._checkpoint / log).mkdir(parents=True, exist_ok=True)
        self._options = SourceOptions(
            str(folder / "streams"),
            str(folder / "plans"),
            BUCKETS,
            partitions,
            rows,
            str(folder / "relations"),
            host=host,
            answers_folder=files.path,
            answers_returned=returned,
            awaited_seconds=0.0,
        )
        self._reader = FjordReader(self._options)
        self._store = storing(host, CheckpointFiles(self._checkpoint), results, files, _written, on_commit=on_commit)
        self._number, self._begin = -1, self._reader.initialOffset()
        logged = self._logged("offsets")
        if logged:
            self._number, self._begin = logged[-1], self._offset(logged[-1])
            if self._number not in self._logged("commits"):
                for _ in self._again():
                    pass

    def step(self) -> bool:
        """Run a micro-batch; return False if there is nothing to do."""
        return sum(1 for _ in self.instants()) > 0

    def instants(self) -> Iterator[None]:
        """Run a micro-batch, with instants in between at which the process may be killed; none if there is nothing."""
        end = json.loads(json.dumps(self._reader.latestOffset(self._begin, self._limit)))
        if end == self._begin:
            return
        self._write("offsets", self._number + 1, f"v1\n{{}}\n{json.dumps(end)}")
        yield
        yield from self._do(self._number + 1, end)

    def _again(self) -> Iterator[None]:
        """Do a micro-batch that was logged and not committed: from the offset before it."""
        end, number = self._begin, self._number
        self._begin = self._offset(number - 1) if number else self._reader.initialOffset()
        yield from self._do(number, end)

    def _do(self, number: int, end: dict[str, Any]) -> Iterator[None]:
        answers = self._run(number, end)
        yield
        self._store(_Answers(lambda: answers), number)  # type: ignore[arg-type] # as far as it is used
        yield
        self._write("commits", number, "v1\n{}")
        self._reader.commit(end)
        self._number, self._begin = number, end
        self._forget(number - KEPT)

    def _forget(self, number: int) -> None:
        """Remove what no replay needs any more."""
        for log, last in (
            ("offsets", number),
            ("commits", number),
            *((f"state/{each}", number) for each in range(BUCKETS)),
        ):
            (self._checkpoint / log / str(last)).unlink(missing_ok=True)

    def _run(self, number: int, end: dict[str, Any]) -> pa.Table:
        tasks = self._reader.partitions(self._begin, end)
        batches = [batch for task in tasks for batch in self._reader.read(task)]
        if self._host is Host.STATELESS:
            return pa.Table.from_batches(batches, OUTPUT_SCHEMA)
        envelopes: dict[int, list[Envelope]] = {}
        for row in (row for batch in batches for row in batch.to_pylist()):
            envelopes.setdefault(row["bucket"], []).append(Envelope(row["exchange"], row["origin"], row["payload"]))
        host = BucketHost(
            self._options.plans_folder,
            BUCKETS,
            self._run_name,
            self._options.relations_folder,
            answers_folder=self._options.answers_folder,
            answers_returned=self._options.answers_returned,
        )
        outputs = []
        for bucket in range(BUCKETS):
            state = self._state(bucket, number)
            output = host.process(bucket, envelopes.get(bucket, []), state)
            if output is not None:
                outputs.append({"bucket": bucket, **asdict(output)})
            self._write(f"state/{bucket}", number + 1, msgspec.msgpack.encode(dict(state)))
        return pa.Table.from_pylist(outputs, OUTPUT_SCHEMA)

    def _state(self, bucket: int, version: int) -> MemoryStore:
        if not version:
            return MemoryStore()
        path = self._checkpoint / "state" / str(bucket) / str(version)
        return MemoryStore(msgspec.msgpack.decode(path.read_bytes(), type=dict[str, bytes]))

    def _offset(self, number: int) -> dict[str, Any]:
        return dict(json.loads((self._checkpoint / "offsets" / str(number)).read_text().splitlines()[2]))

    def _logged(self, log: str) -> list[int]:
        return sorted(int(path.name) for path in (self._checkpoint / log).iterdir() if path.name.isdigit())

    def _write(self, log: str, number: int, content: str | bytes) -> None:
        path = self._checkpoint / log / str(number)
        path.parent.mkdir(exist_ok=True)
        assert log.startswith("state") or not path.exists(), "several streams in one checkpoint"
        beside = path.with_name(f".{number}.{os.getpid()}.tmp")
        beside.write_bytes(content if isinstance(content, bytes) else content.encode())
        beside.replace(path)

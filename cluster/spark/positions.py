"""From which versions of stream tables the two Spark queries still have to read, replays included.

Spark logs the end of a micro-batch before it runs it, and a commit afterwards. So the end of the newest committed
micro-batch is where the next one begins, and begins again after a crash::

    offsets   ...  6    7    8         8 was begun, and may have ended: it is run again, from where 7 ended
    commits   ...  6    7
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from cluster.errors import ClusterError
from cluster.physical.nodes import Host, PhysicalPlan
from cluster.physical.plan_files import PlanFiles
from cluster.spark.offsets import Offset, from_spark
from cluster.storage.synced_files import sync_with_names

NOTHING_READ = -1
"""Before the first version."""


def needed_from(stream: str, offset: Offset, following: Iterable[PhysicalPlan]) -> int | None:
    """Return the version of a stream's table after which it is to be read; None if it is not.

    Parameters
    ----------
    stream
        Its name.
    offset
        Where the last committed micro-batch ended.
    following
        The plans of later epochs, oldest first.
    """
    if stream in offset.versions:
        return offset.versions[stream]
    for plan in following:
        if stream in plan.streams:
            return plan.positions.get(stream, NOTHING_READ)
    return None


class SparkPositions:
    """The positions of the two Spark queries, read from their checkpoints.

    Parameters
    ----------
    checkpoint
        Folder of both checkpoints.
    plans
        Plans by epoch.
    """

    def __init__(self, checkpoint: Path, plans: PlanFiles) -> None:
        self._checkpoint = checkpoint
        self._plans = plans

    def __call__(self, stream: str) -> int | None:
        """Return the version of a stream's table from which it may be read again; None if no query reads it.

        Raises
        ------
        ClusterError
            If that cannot be read.
        """
        found = [self._read(self._lasting_offset(host), host, [stream]) for host in Host]
        return min((each[stream] for each in found if stream in each), default=None)

    def instants(self, stream: str) -> Mapping[Host, int]:
        """Return, by Spark query, up to which instant the slowest query with history has read a stream."""
        found = {}
        for host in Host:
            reached = [each[stream] for each in self._lasting_offset(host).history.values() if stream in each]
            if reached:
                found[host] = min(reached)
        return found

    def begun(self, host: Host) -> int:
        """Return the newest plan epoch with which one of them has committed a micro-batch.

        Raises
        ------
        ClusterError
            If that cannot be read.
        """
        return self._lasting_offset(host).epoch

    def begun_and_backfilling(self, host: Host) -> tuple[int, frozenset[int]]:
        """Return what `begun` does, and the epochs of the queries that still read their history then.

        Raises
        ------
        ClusterError
            If that cannot be read.
        """
        offset = self._lasting_offset(host)
        return offset.epoch, frozenset(offset.history)

    def check_plans(self, newest: int) -> None:
        """Raise if any plan that Spark may still run, up to the newest, cannot be read.

        Raises
        ------
        PlanError
            If one is damaged, of another format, or has an unknown part; the message names it.
        """
        begun = []
        for host in Host:
            with suppress(ClusterError):  # Spark's log is repaired, or rejected, when Spark starts
                begun.append(self.begun(host))
        self._plans.check(min(begun, default=newest), newest)

    def read_by(self, host: Host, streams: Collection[str]) -> Mapping[str, int]:
        """Return, by stream that one of them reads, the last version of its table that it has read and committed.

        Raises
        ------
        ClusterError
            If that cannot be read.
        """
        return self._read(self._offset(host), host, streams)

    def _read(self, offset: Offset, host: Host, streams: Collection[str]) -> Mapping[str, int]:
        following = () if offset.versions.keys() >= set(streams) else tuple(self._following(offset.epoch, host))
        found = {stream: needed_from(stream, offset, following) for stream in streams}
        return {stream: version for stream, version in found.items() if version is not None}

    def _following(self, epoch: int, host: Host) -> Iterable[PhysicalPlan]:
        while self._plans.exists(epoch := epoch + 1):
            yield self._plans.read(epoch).hosted(host)

    def _lasting_offset(self, host: Host) -> Offset:
        """Return where the last committed micro-batch ended, its commit on disk.

        Spark syncs nothing. If a power cut took the commit, the micro-batch would be run again, from where it began;
        and what it reads might have been removed.
        """
        commits = self._checkpoint / host.value / "commits"
        done = max(_numbers(commits), default=None)
        if done is None:
            return Offset()
        try:
            sync_with_names([commits / str(done)])
        except OSError as error:
            raise ClusterError(f"Spark's position cannot be synced: {commits / str(done)}: {error}") from error
        return self._ended(host, done)

    def _offset(self, host: Host) -> Offset:
        done = max(_numbers(self._checkpoint / host.value / "commits"), default=None)
        return Offset() if done is None else self._ended(host, done)

    def _ended(self, host: Host, done: int) -> Offset:
        """Return where a micro-batch ended."""
        folder = self._checkpoint / host.value
        path = folder / "offsets" / str(done)
        try:
            *_, written = path.read_text(encoding="utf-8").splitlines()
            return from_spark(msgspec.json.decode(written))
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise ClusterError(f"Spark's position cannot be read: {path}: {error}") from error


def _numbers(log: Path) -> list[int]:
    return [int(path.name) for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []

"""Positions of Fjord's source in Spark: a plan epoch and a table version per stream, and from where to read.

Spark writes offsets to its log before it runs a micro-batch, and uses the same ones again after a crash. All
that a micro-batch depends on is in its two offsets, so a replay is identical.

**From which versions of stream tables the two Spark queries still have to read, replays included.**

Spark logs the end of a micro-batch before it runs it, and a commit afterwards. So the end of the newest committed
micro-batch is where the next one begins, and begins again after a crash::

    offsets   ...  6    7    8         8 was begun, and may have ended: it is run again, from where 7 ended
    commits   ...  6    7
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cluster.errors import ClusterError
from cluster.physical.nodes import Host, PhysicalPlan
from cluster.physical.plan_files import PlanFiles
from cluster.storage.synced_files import sync_with_names

UNCHANGED_PLANS = 64
"""A plan in which nothing has changed for a host causes no micro-batch, but so many of them cause one: those after the
last offset are read each time."""


class Offset(msgspec.Struct, frozen=True):
    """A position. Pure.

    Parameters
    ----------
    epoch
        The plan under which the micro-batch that ends here runs.
    versions
        By stream of that plan: the last table version read.
    relations
        By identity of a relation of that plan: the newest version that counts; 0 where there is none yet.
    history
        By epoch of each query whose backfill goes on: by stream, the instant up to which it has read
        (:mod:`cluster.spark.reading.backfill`).
    """

    epoch: int = 0
    versions: Mapping[str, int] = {}
    relations: Mapping[str, int] = {}
    history: Mapping[int, Mapping[str, int]] = {}

    def to_spark(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        stored = {"epoch": self.epoch, "versions": dict(self.versions), "relations": dict(self.relations)}
        history = {str(epoch): dict(reached) for epoch, reached in self.history.items()}
        return {**stored, **({"history": history} if history else {})}


def from_spark(raw: Mapping[str, Any]) -> Offset:
    """Return the offset Spark stored."""
    return msgspec.convert(raw, Offset, str_keys=True)


def name_of(host: Host, first: Offset, last: Offset) -> str:
    """Return a text for the micro-batch between two offsets: the same whenever it is run, and another for any other."""
    content = msgspec.json.encode((host, first.to_spark(), last.to_spark()), order="deterministic")
    return hashlib.sha256(content).hexdigest()[:16]


class Reader:
    """What the decision may read. Pure.

    Parameters
    ----------
    plan
        The plan of an epoch; None if there is none yet.
    latest
        The newest version of a stream's table, given one that is known to exist.
    rows
        How many rows a version of a stream's table added.
    relation
        The newest version of a relation, by its identity.
    """

    def __init__(
        self,
        *,
        plan: Callable[[int], PhysicalPlan | None],
        latest: Callable[[str, int], int],
        rows: Callable[[str, int], int],
        relation: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self.plan = plan
        self.latest = latest
        self.rows = rows
        self.relation = relation


def next_offset(start: Offset, reader: Reader, *, max_rows: int | None) -> Offset:
    """Return where the next micro-batch ends. Pure.

    It stays within one epoch: it runs up to the positions at which the following epoch begins, and only when all of
    them are reached does the next one run under the new plan. Returns `start` if there is nothing to do.

    Parameters
    ----------
    start
        Where it begins.
    reader
        Access to plans and tables.
    max_rows
        It ends after the version with which it has this many rows of a stream; None takes all there is.
    """
    current = reader.plan(start.epoch)
    if current is None:
        return start
    begins: Mapping[str, int] = {stream: start.versions[stream] for stream in current.streams}
    following = reader.plan(current.epoch + 1)
    # Epochs that begin at this very position need no micro-batch each: a burst of new queries is one step.
    while following is not None and _reached(begins, following):
        begins = begin_versions(begins, following)
        current, following = following, reader.plan(following.epoch + 1)
    ends = _advance(begins, current, following, reader, max_rows)
    if ends == start.versions and (current.epoch == start.epoch or _unchanged(start, current, reader)):
        return start
    # Read after the streams: a version of a relation is there before any tuple that has to be joined with it.
    return Offset(current.epoch, ends, {identity: reader.relation(identity) for identity in current.relations})


def begin_versions(versions: Mapping[str, int], plan: PhysicalPlan) -> dict[str, int]:
    """Return, for each stream of `plan`, the version after which it is read first, coming from `versions`. Pure."""
    return {stream: versions.get(stream, plan.positions.get(stream, -1)) for stream in plan.streams}


def begins_between(start: Offset, end: Offset, plan: Callable[[int], PhysicalPlan | None]) -> dict[str, int]:
    """Return the version after which the micro-batch from `start` to `end` reads each stream of the end's plan."""
    begins = dict(start.versions)
    for epoch in range(start.epoch + 1, end.epoch + 1):
        passed = plan(epoch)
        if passed is not None:
            begins = begin_versions(begins, passed)
    return begins


def _unchanged(start: Offset, current: PhysicalPlan, reader: Reader) -> bool:
    """Return whether a plan is the same as that of the start, though it has another number; the first one never is."""
    if not start.epoch or current.epoch - start.epoch >= UNCHANGED_PLANS:
        return False
    before = reader.plan(start.epoch)
    return before is not None and before.fragments == current.fragments


def _reached(versions: Mapping[str, int], plan: PhysicalPlan) -> bool:
    return all(version >= plan.positions.get(stream, version) for stream, version in versions.items())


def _advance(
    begins: Mapping[str, int],
    plan: PhysicalPlan,
    following: PhysicalPlan | None,
    reader: Reader,
    max_rows: int | None,
) -> dict[str, int]:
    ends = {}
    for stream in sorted(plan.streams):
        begin = begins[stream]
        latest = reader.latest(stream, begin)
        if following is not None and stream in following.positions:
            latest = max(begin, min(latest, following.positions[stream]))
        ends[stream] = _bounded(stream, begin, latest, reader, max_rows)
    return ends


def _bounded(stream: str, begin: int, latest: int, reader: Reader, max_rows: int | None) -> int:
    if max_rows is None:
        return latest
    rows = 0
    for version in range(begin + 1, latest + 1):
        rows += reader.rows(stream, version)
        if rows >= max_rows:
            return version
    return latest


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

"""Plan epochs: the immutable plan under which a Fjord runs from an exact position of its streams.

Adding or dropping a query writes a new plan with the next epoch number. A plan names, for each stream it reads, the
table version up to which the plan before it holds; so where a query begins does not depend on how the stream happens
to be cut into micro-batches, and a replay after a crash meets the same plans at the same places.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from cluster.errors import PlanError, UnwritableError
from cluster.language.algebra import Node
from cluster.plan.demand import streams_of
from cluster.plan.relations_read import relations_of
from cluster.plan.stored_plans import Stored, from_nodes, restored, written
from cluster.synced_files import make_folder, sync

FORMAT = 4
"""1 had a whole plan in every file; 2 and 3 have expressions that are texts."""

FORMATS_READ = (2, 3, FORMAT)
"""Those of files that can be read; 3 is 2 with queries that are lists of distinct nodes."""

WHOLE_EVERY = 64
"""Epochs between two files with a whole plan; the others say what has changed since the epoch before."""


class PlannedQuery(msgspec.Struct, frozen=True):
    """A query as the operators run it.

    Parameters
    ----------
    name
        Of the query.
    since_epoch
        The epoch with which it began; tells it from an earlier query of the same name.
    node
        The rewritten algebra.
    """

    name: str
    since_epoch: int
    node: Node

    @property
    def identity(self) -> str:
        """A name no other query of this Fjord ever has."""
        return f"{self.name}@{self.since_epoch}"


class Plan(msgspec.Struct, frozen=True, tag=True):
    """All queries of an epoch.

    Parameters
    ----------
    epoch
        Counts plans from 0, the empty plan.
    queries
        What runs.
    positions
        By stream: the last table version that belongs to the epoch before.
    format
        Version of the plan's own format.
    """

    epoch: int
    queries: tuple[PlannedQuery, ...] = ()
    positions: Mapping[str, int] = {}
    format: int = FORMAT

    @property
    def streams(self) -> frozenset[str]:
        """Streams any of the queries reads."""
        return frozenset().union(*(streams_of(query.node) for query in self.queries))

    @property
    def relations(self) -> frozenset[str]:
        """Identities of the relations any of the queries reads."""
        return frozenset(each.identity for query in self.queries for each in relations_of(query.node))


class PlanChange(msgspec.Struct, frozen=True, tag=True):
    """How an epoch's plan differs from that of the epoch before.

    Parameters
    ----------
    epoch
        The new epoch.
    added
        Queries that come last in it.
    dropped
        Identities of those that are gone.
    positions, format
        As in :class:`Plan`.
    """

    epoch: int
    added: tuple[PlannedQuery, ...] = ()
    dropped: tuple[str, ...] = ()
    positions: Mapping[str, int] = {}
    format: int = FORMAT

    @classmethod
    def between(cls, before: Plan, after: Plan) -> PlanChange:
        """Return what makes `after` of `before`."""
        old, new = ({query.identity for query in plan.queries} for plan in (before, after))
        return cls(
            after.epoch,
            tuple(query for query in after.queries if query.identity not in old),
            tuple(query.identity for query in before.queries if query.identity not in new),
            after.positions,
        )

    def applied_to(self, before: Plan) -> Plan:
        """Return the plan after the change."""
        gone = set(self.dropped)
        kept = tuple(query for query in before.queries if query.identity not in gone)
        return Plan(self.epoch, kept + self.added, self.positions)


EMPTY = Plan(0)
"""The plan of a Fjord that has never had a query."""


_N = TypeVar("_N")


class _StoredQuery(msgspec.Struct, Generic[_N], frozen=True):
    name: str
    since_epoch: int
    node: _N


class _StoredPlan(msgspec.Struct, Generic[_N], frozen=True, tag="Plan"):
    epoch: int
    queries: tuple[_StoredQuery[_N], ...] = ()
    positions: Mapping[str, int] = {}
    format: int = FORMAT


class _StoredChange(msgspec.Struct, Generic[_N], frozen=True, tag="PlanChange"):
    epoch: int
    added: tuple[_StoredQuery[_N], ...] = ()
    dropped: tuple[str, ...] = ()
    positions: Mapping[str, int] = {}
    format: int = FORMAT


_decoder = msgspec.json.Decoder(_StoredPlan[Stored] | _StoredChange[Stored], dec_hook=from_nodes)


def encode_plan(plan: Plan | PlanChange) -> bytes:
    """Return a plan as JSON, no larger than its distinct nodes."""
    queries = plan.queries if isinstance(plan, Plan) else plan.added
    listed = tuple(_StoredQuery(query.name, query.since_epoch, msgspec.Raw(written(query.node))) for query in queries)
    if isinstance(plan, Plan):
        return msgspec.json.encode(_StoredPlan(plan.epoch, listed, plan.positions, plan.format))
    return msgspec.json.encode(_StoredChange(plan.epoch, listed, plan.dropped, plan.positions, plan.format))


def decode_plan(text: bytes | str) -> Plan | PlanChange:
    """Return the plan that is written so.

    Raises
    ------
    msgspec.DecodeError
        If it is none.
    """
    try:
        found = _decoder.decode(text)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    listed = found.queries if isinstance(found, _StoredPlan) else found.added
    try:
        queries = tuple(PlannedQuery(query.name, query.since_epoch, restored(query.node)) for query in listed)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error
    form = FORMAT if found.format in FORMATS_READ else found.format
    if isinstance(found, _StoredPlan):
        return Plan(found.epoch, queries, found.positions, form)
    return PlanChange(found.epoch, queries, found.dropped, found.positions, form)


class PlanFiles:
    """Plans as JSON files in a folder that driver and executors share; written once, never changed.

    Most files hold what has changed since the epoch before, so that the thousandth query costs no more than the tenth.

    Parameters
    ----------
    folder
        Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._latest = EMPTY
        self._prepared: Plan | None = None
        """Whose file is written and has not got its name yet."""

    def path(self, epoch: int) -> Path:
        """Return the file of an epoch's plan."""
        return self.folder / f"{epoch:012d}.json"

    def exists(self, epoch: int) -> bool:
        """Return whether an epoch has a plan; epoch 0 always has."""
        return epoch == 0 or self.path(epoch).exists()

    def newest(self) -> int:
        """Return the newest epoch that has a plan; 0 if there is none."""
        whole = (path for path in self.folder.glob("*.json") if path.stem.isdigit() and path.stat().st_size)
        return max((int(path.stem) for path in whole), default=0)

    def write(self, plan: Plan) -> None:
        """Write a plan so that it is either wholly there or not at all; on return it is on disk.

        Raises
        ------
        PlanError
            If the epoch already has another plan.
        UnwritableError
            If it cannot be written now.
        """
        path = self.path(plan.epoch)
        if path.exists() and path.stat().st_size:  # one without content is what a power cut leaves
            if self.read(plan.epoch) != plan:
                raise PlanError(f"epoch {plan.epoch} already has another plan at {path}")
            self._sync_names(plan.epoch)  # which may have failed
            return
        if self._prepared is not plan:
            self.prepare(plan)
        try:
            self._unfinished(plan.epoch).rename(path)
        except OSError as error:
            raise UnwritableError(f"the plan of epoch {plan.epoch}", error) from error
        finally:
            self._prepared = None
        self._sync_names(plan.epoch)
        self._latest = plan

    def _sync_names(self, epoch: int) -> None:
        try:
            sync([self.folder])
        except OSError as error:
            raise UnwritableError(f"the plan of epoch {epoch}", error) from error

    def prepare(self, plan: Plan) -> None:
        """Write all of a plan that needs room on the disk; nobody sees it before :meth:`write`.

        Raises
        ------
        UnwritableError
            If it cannot be written now.
        """
        try:
            make_folder(self.folder)
            with self._unfinished(plan.epoch).open("wb") as file:
                file.write(msgspec.json.format(encode_plan(self._content(plan))))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UnwritableError(f"the plan of epoch {plan.epoch}", error) from error
        self._prepared = plan

    def _unfinished(self, epoch: int) -> Path:
        return self.path(epoch).with_suffix(".unfinished")

    def _content(self, plan: Plan) -> Plan | PlanChange:
        if plan.epoch % WHOLE_EVERY == 0 or not self.path(plan.epoch - 1).exists():
            return plan
        before = self.read(plan.epoch - 1)
        change = PlanChange.between(before, plan)
        return change if change.applied_to(before) == plan else plan

    def read(self, epoch: int) -> Plan:
        """Return an epoch's plan.

        Raises
        ------
        PlanError
            If it is missing, damaged or of another format.
        """
        changes: list[PlanChange] = []
        while epoch and epoch != self._latest.epoch:
            found = self._decoded(epoch)
            if isinstance(found, Plan):
                self._latest = found
                break
            changes.append(found)
            epoch -= 1
        if epoch == 0:
            self._latest = EMPTY
        for change in reversed(changes):
            self._latest = change.applied_to(self._latest)
        return self._latest

    def _decoded(self, epoch: int) -> Plan | PlanChange:
        path = self.path(epoch)
        try:
            plan = decode_plan(path.read_bytes())
        except OSError as error:
            raise PlanError(f"plan of epoch {epoch} cannot be read: {error}") from error
        except msgspec.DecodeError as error:
            _check_format(path, epoch)
            raise PlanError(f"plan of epoch {epoch} at {path} is not a plan: {error}") from error
        _check_format(path, epoch)
        if plan.epoch != epoch:
            raise PlanError(f"plan of epoch {epoch} at {path} is that of epoch {plan.epoch}")
        return plan


class _FormatOnly(msgspec.Struct):
    format: int


def _check_format(path: Path, epoch: int) -> None:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_FormatOnly).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError):
        return  # not even that much of a plan
    if found not in FORMATS_READ:
        *earlier, newest = FORMATS_READ
        known = f"{', '.join(map(str, earlier))} and {newest}"
        raise PlanError(
            f"plan of epoch {epoch} has format {found}, this program reads formats {known}",
            hint="run the cluster with the version that wrote it, or start a new data folder",
        )

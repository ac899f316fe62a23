"""Plan files: the physical plan of each epoch, for driver and workers.

    63.json   the change since 62               a query that comes or goes: its fragment, its place among subscribers
    64.json   the whole plan
    65.json   the change since 64               and so on: the thousandth query costs no more than the tenth; of
                                                thousands, whole plans are further apart

Files of formats up to 4 have logical plans, which are lowered when they are read.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from cluster.errors import PlanError, UnwritableError
from cluster.physical import plan_json
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.physical.plan_changes import PhysicalChange
from cluster.physical.successors import steps_to
from cluster.plan import epoch as logical
from cluster.plan.epoch import EMPTY, Plan, PlanChange
from cluster.storage.synced_files import make_folder, sync

WHOLE_EVERY = 64
"""Epochs between two files with a whole plan; the others have the change since the previous epoch."""
SHARE = 8
"""Where this share of the subscribers is more than that, whole plans are as many epochs apart, or up to twice as many:
so that a change costs the same, however many queries there are."""

FORMATS_READ = (*logical.FORMATS_READ, plan_json.FORMAT)
_OTHER_VERSION = "run the cluster with the version that wrote it, or start a new data folder"
_DAMAGED = "restore the data folder from one copy, plans and registry together, or start a new one"

Content = PhysicalPlan | PhysicalChange | Plan | PlanChange
"""The content of a file."""


class PlanFiles:
    """Plans as JSON files in a folder that driver and executors share; written once, never changed.

    Parameters
    ----------
    folder
        Their folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._latest = NOTHING
        self._latest_logical = EMPTY
        """Of those in files of formats up to 4."""
        self._prepared: PhysicalPlan | None = None
        """The plan whose file is written but does not have its final name yet."""

    def path(self, epoch: int) -> Path:
        """Return the file of an epoch's plan."""
        return self.folder / f"{epoch:012d}.json"

    def exists(self, epoch: int) -> bool:
        """Return whether an epoch has a plan; epoch 0 always has."""
        return epoch == 0 or self.path(epoch).exists()

    def written(self, epoch: int) -> bool:
        """Return whether an epoch has a file; an empty one, as a power cut leaves it, does not count."""
        path = self.path(epoch)
        return path.exists() and path.stat().st_size > 0

    def newest(self) -> int:
        """Return the newest epoch that has a plan; 0 if there is none."""
        whole = (path for path in self.folder.glob("*.json") if path.stem.isdigit() and path.stat().st_size)
        return max((int(path.stem) for path in whole), default=0)

    def write(self, plan: PhysicalPlan) -> None:
        """Write a plan atomically; on return it is on disk.

        Raises
        ------
        PlanError
            If the epoch already has another plan.
        UnwritableError
            If it cannot be written now.
        """
        path = self.path(plan.epoch)
        if self.written(plan.epoch):
            if self.read(plan.epoch) != plan:
                raise another_plan(plan.epoch, path)
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

    def prepare(self, plan: PhysicalPlan) -> None:
        """Write a plan under a temporary name, which takes all the disk space; :meth:`write` makes it visible.

        Raises
        ------
        UnwritableError
            If it cannot be written now.
        """
        try:
            make_folder(self.folder)
            with self._unfinished(plan.epoch).open("wb") as file:
                for part in plan_json.file_parts(self._content(plan)):
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UnwritableError(f"the plan of epoch {plan.epoch}", error) from error
        self._prepared = plan

    def _unfinished(self, epoch: int) -> Path:
        return self.path(epoch).with_suffix(".unfinished")

    def _content(self, plan: PhysicalPlan) -> PhysicalPlan | PhysicalChange:
        if plan.epoch % whole_every(plan) == 0 or not self.path(plan.epoch - 1).exists():
            return plan
        before = self.read(plan.epoch - 1)
        if steps_to(before, plan) is None and len(plan.subscribers) > plan_json.PART:
            return plan  # much has changed at once: whole, it is written part by part
        return PhysicalChange.between(before, plan) or plan

    def check(self, first: int, last: int) -> None:
        """Raise if one of the plans from one epoch to another cannot be read.

        Raises
        ------
        PlanError
            If it is missing, damaged, of another format, or has unknown content; names it.
        """
        # The newest may not be written yet; Spark would wait for ever for a missing one before it.
        for epoch in range(first, min(last, self.newest()) + 1):
            self.read(epoch)

    def read(self, epoch: int) -> PhysicalPlan:
        """Return an epoch's plan.

        Raises
        ------
        PlanError
            If it is missing, damaged, of another format, or has unknown content.
        """
        changes: list[PhysicalChange] = []
        while epoch != self._latest.epoch:
            found = self._decoded(epoch) if epoch else NOTHING
            if isinstance(found, PhysicalChange):
                changes.append(found)
                epoch -= 1
            elif isinstance(found, PhysicalPlan):
                self._check_unchanged(epoch)
                self._latest = _sharing(found, self._latest)
            else:
                self._latest = lower(self._logical(epoch, found), self._latest)
        for change in reversed(changes):
            try:
                plan = change.applied_to(self._latest)
            except ValueError as error:
                raise _no_plan(change.epoch, self.path(change.epoch), error) from error
            self._check_unchanged(change.epoch)  # last, so that more precise errors come first
            self._latest = plan
        return self._latest

    def _check_unchanged(self, epoch: int) -> None:
        if epoch:
            try:
                plan_json.check_digest(self.path(epoch).read_bytes())
            except (OSError, ValueError) as error:
                raise _no_plan(epoch, self.path(epoch), error, hint=_DAMAGED) from error

    def _logical(self, epoch: int, found: Content) -> Plan:
        changes: list[PlanChange] = []
        while not isinstance(found, Plan):
            if not isinstance(found, PlanChange):
                raise _no_plan(epoch + 1, self.path(epoch + 1), "it is the change of another kind of plan")
            changes.append(found)
            epoch -= 1
            if epoch == self._latest_logical.epoch:
                found = self._latest_logical
            else:
                found = self._decoded(epoch) if epoch else EMPTY
        for change in reversed(changes):
            found = change.applied_to(found)
        self._latest_logical = found
        return found

    def _decoded(self, epoch: int) -> Content:
        path = self.path(epoch)
        try:
            text = path.read_bytes()
        except OSError as error:
            reason = error.strerror or error
            raise PlanError(f"plan of epoch {epoch} cannot be read: {path}: {reason}", hint=_DAMAGED) from error
        try:
            found_format = _format_of(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _no_plan(epoch, path, error, hint=_DAMAGED) from error
        if found_format not in FORMATS_READ:
            *earlier, newest = FORMATS_READ
            raise PlanError(
                f"plan of epoch {epoch} at {path} has format {found_format}, this program reads formats "
                f"{', '.join(map(str, earlier))} and {newest}",
                hint=_OTHER_VERSION,
            )
        try:
            found = plan_json.decode(text) if found_format == plan_json.FORMAT else logical.decode_plan(text)
        except msgspec.DecodeError as error:
            raise _no_plan(epoch, path, error) from error
        if found.epoch != epoch:
            raise PlanError(f"plan of epoch {epoch} at {path} is that of epoch {found.epoch}", hint=_DAMAGED)
        return found


def whole_every(plan: PhysicalPlan) -> int:
    """Return how many epochs lie between two files with a whole plan of this size."""
    found = WHOLE_EVERY
    while found * SHARE < len(plan.subscribers):
        found *= 2
    return found


def _sharing(plan: PhysicalPlan, known: PhysicalPlan) -> PhysicalPlan:
    """Return a plan that reuses the objects of another one for equal fragments."""
    pairs = ((each, known.by_identity.get(each.identity)) for each in plan.fragments)
    return replace(plan, fragments=tuple(old if old is not None and old == each else each for each, old in pairs))


class _FormatOnly(msgspec.Struct):
    format: int


def _format_of(text: bytes) -> int:
    return msgspec.json.decode(text, type=_FormatOnly).format


def another_plan(epoch: int, path: Path) -> PlanError:
    """Return the error that a file has another plan than it should have."""
    return PlanError(f"epoch {epoch} already has another plan at {path}", hint=_DAMAGED)


def _no_plan(epoch: int, path: Path, reason: object, *, hint: str = _OTHER_VERSION) -> PlanError:
    return PlanError(f"plan of epoch {epoch} at {path} is not a plan: {reason}", hint=hint)

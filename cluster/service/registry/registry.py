"""The registry: the queries that run, and their plan. SQLite is the truth; plan files are copies of it.

**Epochs that plans or Spark's log mention and the registry lacks: it was restored from a copy, or a disk lost them.**

Without repair, the next query would get the number of an epoch that already has another plan, and could not be added;
or Spark would wait for ever for the plan of an epoch that it had begun. So the registry's queries continue in an epoch
after all of these.

**Lost versions: plans or Spark's log refer to them, but no table has them.**

Versions are on disk before anything names them. They are lost if a data folder is restored from a copy, or if a disk
does not keep what it has synced. Without repair, a stream's next versions would get the same numbers and count as
read. For the publisher's position, cluster/service/publishing/publication.py has the same.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from cluster.errors import OneOfManyError, PlanError, StorageError, UnwritableError
from cluster.ingest.writer import StreamWriter
from cluster.operators import Node
from cluster.physical.difference import PlanStep, plan_history
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.physical.plan_files import PlanFiles, another_plan
from cluster.plan.epoch import Handover, Plan, encode_plan
from cluster.service.registry.plan_transitions import (
    LostEpochs,
    Transition,
    adding,
    adding_many,
    dropping,
    finishing,
    migrating,
    setting_aside,
    skipping,
)
from cluster.service.registry.query_names import NamesInUse, UnknownQueryError, spellings_of
from cluster.service.registry.registry_file import open_registry_file
from cluster.service.registry.registry_tables import (
    FunctionRegistry,
    Quarantine,
    RelationRegistry,
    SizeRegistry,
    StreamRegistry,
    WaitingQuery,
)
from cluster.service.registry.running_queries import (
    NextPlan,
    RegisteredQuery,
    RunningQueries,
    SetAsideQueries,
    delete_query,
    insert_queries,
    insert_set_aside,
    move_plans,
    note_reason,
    read_queries,
    reasons,
    update_query,
)
from cluster.spark.checkpoint import newest_epochs, newest_versions
from cluster.storage.synced_files import Troubles
from protocols.event_log import get_logger

_USE_NUMBER = "INSERT OR REPLACE INTO meta VALUES ('names', ?)"
_LOSE_EPOCHS = "INSERT OR REPLACE INTO meta VALUES ('lost_epochs', ?)"


class Registry:
    """Queries, plans and all other registered objects, in one SQLite file.

    Attributes
    ----------
    relations, streams, functions
        The statements that created them.
    aside
        Queries that are set aside.
    quarantine
        What was rejected.

    Parameters
    ----------
    path
        The file; made if it does not exist.
    plans
        Where plan files are written for the engine.
    max_queries
        Further ones are refused.
    troubles
        Counts what could not be written and was passed over.
    """

    def __init__(
        self, path: Path, plans: PlanFiles, *, max_queries: int = 50_000, troubles: Troubles | None = None
    ) -> None:
        self.folder = path.parent
        self._plans = plans
        self._max_queries = max_queries
        self._database = open_registry_file(path)
        self._plan_database = open_registry_file(path)
        """For changes of the plan, which wait for the disk in a thread of their own; one at a time."""
        self.troubles = troubles or Troubles()
        self._plan_written = False
        self._running: RunningQueries | None = None
        """As in the file, once that has been read."""
        self._plan: Plan | None = None
        self._physical = NOTHING
        self.relations = RelationRegistry(self._database, self.troubles)
        self.streams = StreamRegistry(self._database)
        self.sizes = SizeRegistry(self._database)
        self.functions = FunctionRegistry(self._database)
        self.aside = SetAsideQueries(self._database)
        self.quarantine = Quarantine(self._database, self.troubles)
        if self.epoch == 0:
            # A first plan without queries lets the engine run once, so that it is warm when the first query comes.
            self._keep(Transition(RunningQueries(1), lambda running: running))
        # A crash between the registry's commit and the plan file leaves the file to be written now.
        self.write_plan()

    @property
    def engine_id(self) -> str:
        """Identity of this engine, drawn once; its checkpoint and its transactions are named after it."""
        self._database.execute("INSERT OR IGNORE INTO meta VALUES ('fjord', ?)", (uuid.uuid4().hex[:12],))
        (found,) = self._database.execute("SELECT value FROM meta WHERE key = 'fjord'").fetchone()
        return str(found)

    def published(self) -> tuple[int, int, bytes]:
        """Return what earlier programs kept here, and cluster/service/publishing/publication.py keeps now.

        Returns
        -------
        version, row
            Up to where results had been published: a version of the results table, and rows of the next one.
        lost
            Which were lost, as JSON; ``{}`` if none were.
        """
        position = self._database.execute("SELECT version, row FROM published").fetchone() or (0, 0)
        lost = self._database.execute("SELECT value FROM meta WHERE key = 'lost_results'").fetchone() or ("{}",)
        return int(position[0]), int(position[1]), str(lost[0]).encode()

    def is_fixed(self, key: str) -> bool:
        """Return whether there is a number under `key`."""
        return self._database.execute("SELECT 1 FROM meta WHERE key = ?", (key,)).fetchone() is not None

    def fix(self, key: str, value: int) -> int:
        """Return the number under `key`, after storing `value` if there is none: for what must never change."""
        self._database.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, str(value)))
        (found,) = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return int(found)

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self._queries.epoch

    @property
    def positions(self) -> Mapping[str, int]:
        """By stream: the last table version that belongs to the epoch before the newest."""
        return self._queries.positions

    @property
    def plan(self) -> Plan:
        """The logical plan of the newest epoch, with all queries."""
        running, plan = self._queries, self._plan
        if plan is None or plan.epoch != running.epoch:
            plan = self._plan = running.plan
        return plan

    @property
    def _queries(self) -> RunningQueries:
        running = self._running
        if running is None:
            try:
                move_plans(self._plan_database)
                running = self._running = read_queries(self._plan_database)
            except (msgspec.DecodeError, ValueError) as error:
                raise StorageError(
                    f"the plan in the registry of {self.folder} cannot be read: {error}",
                    hint="run the version that wrote it, or choose another --data",
                ) from error
        return running

    @property
    def physical(self) -> PhysicalPlan:
        """The physical plan of the newest epoch: that in its file, once there is one."""
        if self._physical.epoch != self.epoch:
            plan = self.plan
            self._physical = self._read(plan) if self._plans.written(plan.epoch) else lower(plan, self._physical)
        return self._physical

    def _read(self, plan: Plan) -> PhysicalPlan:
        # Its operators may differ from those that this version would choose; they run until their queries change.
        found = self._plans.read(plan.epoch)
        if found.positions != plan.positions or found.subscribers.keys() != {each.identity for each in plan.queries}:
            raise another_plan(plan.epoch, self._plans.path(plan.epoch))
        return found

    def physical_at(self, epoch: int) -> PhysicalPlan:
        """Return the physical plan of an earlier epoch.

        Raises
        ------
        PlanError
            If there is none, or it cannot be read any more.
        """
        if epoch > self.epoch or not self._plans.exists(epoch):
            raise PlanError(f"there is no plan of epoch {epoch}", hint=f"the newest is {self.epoch}")
        return PlanFiles(self._plans.folder).read(epoch)

    def plan_history(self, last: int) -> list[PlanStep]:
        """Return what the last epochs changed, oldest first; may be called in a thread of its own.

        Raises
        ------
        PlanError
            If a plan cannot be read any more.
        """
        steps = plan_history(PlanFiles(self._plans.folder), self.epoch, last)
        why = reasons(self._database)
        return [replace(each, why=why.get(each.epoch, "")) for each in steps]

    def queries(self) -> list[RegisteredQuery]:
        """Return all running queries, oldest first."""
        return list(self._queries.by_name.values())

    def sized(self) -> list[RegisteredQuery]:
        """Return the running queries whose rows have a quality, oldest first: at the cost of these, not of all."""
        return list(self._queries.sized.values())

    def __len__(self) -> int:
        """How many queries run."""
        return len(self._queries.by_name)

    def query(self, name: str) -> RegisteredQuery:
        """Return one running query.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        """
        running = self._queries.by_name
        if name not in running:
            raise UnknownQueryError(name, running, self._queries.spellings)
        return running[name]

    def nodes(self, names: Collection[str]) -> dict[str, Node]:
        """Return the plans of the running queries, by name."""
        running = self._queries.by_name
        return {name: running[name].node for name in names if name in running}

    def add(
        self,
        name: str | None,
        sql: str,
        node: Node,
        positions: Mapping[str, int],
        reads: frozenset[str] = frozenset(),
        *,
        early: bool = False,
        waited: bool = False,
    ) -> RegisteredQuery:
        """Register a query; it begins after `positions`, the present versions of all streams that any query reads.

        A query that `waited` has its name already. The rows of an `early` one are published before their end is known.

        Raises
        ------
        QueryExistsError, TooManyQueriesError, TopicError
            If the name is taken, there are too many queries, or the name cannot be part of a topic.
        """
        before = self._queries
        used, name = (None, name) if waited and name is not None else self._name_for(name)
        query = RegisteredQuery(name, sql, node, before.epoch + 1, time.time_ns() // 1000, reads, early)
        self._change(adding(before, query, positions, used))
        return query

    def add_many(
        self, queries: Sequence[tuple[str | None, str, Node, frozenset[str], bool]], positions: Mapping[str, int]
    ) -> list[RegisteredQuery]:
        """Register queries that begin together, with one epoch.

        Parameters
        ----------
        queries
            Of each its name, text, plan, the streams named in its text, and whether it is early; a name is made up for
            None. Their plans share the tuples of others (:func:`cluster.physical.lowering.begins_with_others`).
        positions
            As in :meth:`add`.

        Raises
        ------
        OneOfManyError
            With the query, and an error as in :meth:`add`; then none of them is registered.
        """
        before, now_us = self._queries, time.time_ns() // 1000
        names, used = self._names().named([name for name, *_ in queries])
        found = [
            RegisteredQuery(name, *each[1:3], before.epoch + 1, now_us, *each[3:])
            for name, each in zip(names, queries, strict=True)
        ]
        self._change(adding_many(before, tuple(found), positions, used))
        return found

    def names_for(self, names: Sequence[str | None]) -> list[str]:
        """Return the names of queries that would be added together now; errors are those of :meth:`add_many`."""
        return self._names().named(names)[0]

    def wait(
        self,
        name: str | None,
        sql: str,
        reads: frozenset[str],
        relations: frozenset[str],
        functions: frozenset[str] = frozenset(),
    ) -> WaitingQuery:
        """Register a query that cannot begin before its relations have versions; errors are those of :meth:`add`."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            used, name = self._name_for(name)
            query = WaitingQuery(name, sql, time.time_ns() // 1000, reads, relations, functions)
            self.relations.add_waiting(query)
            if used is not None:
                self._database.execute(_USE_NUMBER, (str(used),))
        return query

    def drop(self, name: str, positions: Mapping[str, int]) -> None:
        """End a query; it still answers what lies before `positions`.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        """
        self._change(dropping(self._queries, self.query(name), positions))

    def set_aside(self, name: str, reason: str, positions: Mapping[str, int]) -> None:
        """End a query as :meth:`drop` does, and keep its name and the reason, a sentence, until it is dropped.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        """
        now_us = time.time_ns() // 1000
        self._change(setting_aside(self._queries, self.query(name), reason, positions, now_us))

    def migrate(
        self, name: str, node: Node, handover: Handover, *, positions: Mapping[str, int], why: str = ""
    ) -> RegisteredQuery:
        """Let a query hand over to another plan, which begins after `positions`; see :class:`NextPlan`.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        """
        following = NextPlan(self._queries.epoch + 1, handover, time.time_ns() // 1000, why)
        self._change(migrating(self._queries, self.query(name), node, following, positions))
        return self.query(name)

    def finish_migration(self, name: str, positions: Mapping[str, int]) -> None:
        """End the plan that a query has handed over; it still reads what lies before `positions`.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        """
        self._change(finishing(self._queries, self.query(name), positions))

    def skip_epochs(self, newest: int, positions: Mapping[str, int]) -> None:
        """Move the queries to the epoch after `newest`, give each epoch between a plan, and count these as lost.

        Parameters
        ----------
        newest
            An epoch that plans or offsets name, and this registry does not have.
        positions
            As in :meth:`add`.
        """
        before, running = self._queries, self.physical
        for epoch in range(before.epoch + 1, newest + 1):
            if not self._plans.exists(epoch):
                self._plans.write(replace(running, epoch=epoch, positions=dict(positions)))
        self._change(skipping(before, newest, positions, self.lost_epochs(), time.time_ns() // 1000))

    def lost_epochs(self) -> LostEpochs:
        """Return how many epochs have been lost since this registry was made."""
        found = self._database.execute("SELECT value FROM meta WHERE key = 'lost_epochs'").fetchone()
        return LostEpochs() if found is None else msgspec.json.decode(found[0], type=LostEpochs)

    def write_plan(self) -> bool:
        """Write the file of the newest plan for the engine, unless that is done; return False if it must be retried."""
        if not self._plan_written:
            try:
                self._plans.write(self.physical)
            except UnwritableError as error:
                self.troubles.note("plan file", error.message)
                return False
            self._plan_written = True
        return True

    def _change(self, transition: Transition) -> None:
        """Store a change: the plan's file under a temporary name, then the registry's row, then only a rename is left.

        Raises
        ------
        UnwritableError
            If one of them cannot be written. If that was the registry's, the outcome is unknown.
        """
        if not self.write_plan():
            raise UnwritableError(f"the plan of epoch {transition.after.epoch}", OSError(self.troubles.last))
        physical = transition.planned(self.physical)
        self._plans.prepare(physical)
        # Other threads use the plan before until this one is committed.
        self._keep(transition)
        self._physical, self._plan_written = physical, False
        self.write_plan()

    def close(self) -> None:
        """Close the file."""
        self.quarantine.write()
        self._database.close()
        self._plan_database.close()

    def _keep(self, change: Transition) -> None:
        """Commit a change; after a failure the outcome is unknown, and the queries are read again."""
        try:
            with self._plan_database as database:
                database.execute("BEGIN IMMEDIATE")
                insert_queries(database, change.come)
                if change.goes is not None:
                    delete_query(database, change.goes)
                if change.aside is not None:
                    insert_set_aside(database, change.aside)
                if change.changes is not None:
                    update_query(database, change.changes)
                    note_reason(database, change.after.epoch, change.changes)
                if change.lost is not None:
                    database.execute(_LOSE_EPOCHS, (msgspec.json.encode(change.lost).decode(),))
                database.execute(
                    "INSERT INTO plans VALUES (?, ?)", (change.after.epoch, encode_plan(change.after.head))
                )
                # Older plans remain as files for as long as a replay may need them.
                database.execute("DELETE FROM plans WHERE epoch <> ?", (change.after.epoch,))
                if change.used is not None:
                    database.execute(_USE_NUMBER, (str(change.used),))
        except BaseException:
            self._running, self._plan_written = None, False
            raise
        self._running = change.after

    def _names(self) -> NamesInUse:
        (used,) = self._plan_database.execute("SELECT value FROM meta WHERE key = 'names'").fetchone() or (0,)
        names = "SELECT name FROM waiting UNION SELECT name FROM set_aside"
        waiting = [name for (name,) in self._plan_database.execute(names)]
        count = len(self._queries.by_name) + len(waiting)
        return NamesInUse(self._queries.spellings, spellings_of(waiting), count, int(used), self._max_queries)

    def _name_for(self, wanted: str | None) -> tuple[int | None, str]:
        """Return a name for a query, and its number if it is made up."""
        try:
            (name,), used = self._names().named([wanted])
        except OneOfManyError as error:
            raise error.cause from None
        return used, name


log = get_logger(__name__)


def newest_known_epoch(plans: PlanFiles, checkpoint: Path) -> int:
    """Return the newest epoch that has a plan, or that Spark's log of offsets names; 0 if there is none."""
    return max((plans.newest(), *newest_epochs(checkpoint)), default=0)


def skip_lost_epochs(registry: Registry, newest: int, positions: Mapping[str, int]) -> int:
    """Move the registry's queries to an epoch after the newest known one; log and return how many are lost.

    Queries that were added in a lost epoch are lost. Those that were dropped in one run again: no record of it is left.

    Parameters
    ----------
    registry
        The registry.
    newest
        The newest epoch that a plan or an offset names.
    positions
        By stream: the newest version of its table.

    Raises
    ------
    PlanError, StorageError
        If the plan cannot be written.
    """
    plan = registry.plan
    lost = max(0, newest - plan.epoch)
    if lost:
        log.error("changes of queries are lost", epochs=lost, newest=plan.epoch, goes_on_with=newest + 1)
        known = {**plan.positions, **positions}  # a stream that cannot be read now keeps its position
        registry.skip_epochs(newest, {stream: at for stream, at in known.items() if stream in plan.streams})
    return lost


def newest_known_versions(plan: Plan, checkpoint: Path) -> dict[str, int]:
    """Return, by stream that is read, the highest version of its table that a plan or Spark's log of offsets names.

    Other streams may have been dropped since, and created again.
    """
    newest: dict[str, int] = {}
    for stream, version in (*plan.positions.items(), *newest_versions(checkpoint)):
        if stream in plan.streams:
            newest[stream] = max(version, newest.get(stream, 0))
    return newest


def replace_lost_versions(writers: Mapping[str, StreamWriter], newest: Mapping[str, int]) -> None:
    """Give streams empty versions in place of lost ones; log and count them.

    Raises
    ------
    StorageError
        If that cannot be stored.
    """
    for stream, writer in writers.items():
        lost = writer.table.make_up(newest.get(stream, 0))
        if lost:
            writer.admission.counters.lost_versions += lost
            log.error("versions of a stream's table are lost", stream=stream, versions=lost, newest=newest[stream])

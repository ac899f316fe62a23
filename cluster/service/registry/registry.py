"""The registry: the queries that run, and their plan. SQLite is the truth; plan files are copies of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from cluster.errors import ClusterError, PlanError, StorageError, UnwritableError
from cluster.language.algebra import Node
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.physical.plan_files import PlanFiles, another_plan
from cluster.plan import stored_plans
from cluster.plan.epoch import EMPTY, Plan, PlannedQuery, decode_plan, encode_plan
from cluster.service.registry.publication import Publication
from cluster.service.registry.quarantine import Quarantine
from cluster.service.registry.registry_file import open_registry_file
from cluster.service.registry.relation_registry import RelationRegistry, WaitingQuery
from cluster.service.registry.stream_registry import StreamRegistry
from cluster.storage.synced_files import Troubles
from protocols.wire.topics import check_name


class QueryExistsError(ClusterError):
    """A query of this name is running."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a query {name!r} already", hint="choose another name, or drop it first")
        self.name = name


class UnknownQueryError(ClusterError):
    """There is no query of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "") if known else "none"  # noqa: PLR2004
        super().__init__(f"there is no query {name!r}", hint=f"running queries: {listed}")
        self.name = name


class TooManyQueriesError(ClusterError):
    """The configured limit on queries is reached."""


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A query as its user sees it."""

    name: str
    sql: str
    node: Node
    since_epoch: int
    created_us: int
    reads: frozenset[str] = frozenset()
    """Streams named in its text, derived ones included."""

    @property
    def identity(self) -> str:
        """A name that no other query of this engine has, had or will have."""
        return f"{self.name}@{self.since_epoch}"


class LostEpochs(msgspec.Struct, frozen=True):
    """Epochs that plans or Spark's log mention and the registry has lost, along with changes of queries.

    Parameters
    ----------
    epochs
        How many.
    seen_us
        When the last loss was found.
    """

    epochs: int = 0
    seen_us: int | None = None


class Registry:
    """Queries, plans and all other registered objects, in one SQLite file.

    Attributes
    ----------
    relations, streams
        The statements that created them.
    publication
        How far results have been published.
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
        self, path: Path, plans: PlanFiles, *, max_queries: int = 10_000, troubles: Troubles | None = None
    ) -> None:
        self.folder = path.parent
        self._plans = plans
        self._max_queries = max_queries
        self._database = open_registry_file(path)
        self.troubles = troubles or Troubles()
        self._plan_written = False
        self._plan: Plan | None = None
        """The plan, once it has been read; its nodes cache what is derived from them."""
        self._physical = NOTHING
        self.relations = RelationRegistry(self._database, self.troubles)
        self.streams = StreamRegistry(self._database)
        self.publication = Publication(self._database)
        self.quarantine = Quarantine(self._database, self.troubles)
        if self.plan.epoch == 0:
            # A first plan without queries lets the engine run once, so that it is warm when the first query comes.
            with self._database:
                self._store(Plan(1))
            self._plan = None
        # A crash between the registry's commit and the plan file leaves the file to be written now.
        self.write_plan()

    @property
    def engine_id(self) -> str:
        """Identity of this engine, drawn once; its checkpoint and its transactions are named after it."""
        self._database.execute("INSERT OR IGNORE INTO meta VALUES ('fjord', ?)", (uuid.uuid4().hex[:12],))
        (found,) = self._database.execute("SELECT value FROM meta WHERE key = 'fjord'").fetchone()
        return str(found)

    def fix(self, key: str, value: int) -> int:
        """Return the number under `key`, after storing `value` if there is none: for what must never change."""
        self._database.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, str(value)))
        (found,) = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return int(found)

    @property
    def plan(self) -> Plan:
        """The plan of the newest epoch."""
        if self._plan is None:
            found = self._database.execute("SELECT plan FROM plans ORDER BY epoch DESC LIMIT 1").fetchone()
            try:
                plan = EMPTY if found is None else decode_plan(found[0])
            except msgspec.DecodeError as error:
                raise StorageError(
                    f"the plan in the registry of {self.folder} cannot be read: {error}",
                    hint="run the version that wrote it, or choose another --data",
                ) from error
            assert isinstance(plan, Plan)  # noqa: S101 - changes are in files only
            self._plan = plan
        return self._plan

    @property
    def physical(self) -> PhysicalPlan:
        """The physical plan of the newest epoch: that in its file, once there is one."""
        plan = self.plan
        if self._physical.epoch != plan.epoch:
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
        if epoch > self.plan.epoch or not self._plans.exists(epoch):
            raise PlanError(f"there is no plan of epoch {epoch}", hint=f"the newest is {self.plan.epoch}")
        return PlanFiles(self._plans.folder).read(epoch)

    def queries(self) -> list[RegisteredQuery]:
        """Return all running queries, oldest first."""
        planned = {(query.name, query.since_epoch): query.node for query in self.plan.queries}
        rows = self._database.execute(
            "SELECT name, sql, node, since_epoch, created_us, reads FROM queries ORDER BY since_epoch"
        )
        return [
            RegisteredQuery(
                name, sql, planned.get((name, since_epoch)) or stored_plans.read(node),
                since_epoch, created_us, frozenset(msgspec.json.decode(reads, type=list[str])),
            )
            for name, sql, node, since_epoch, created_us, reads in rows
        ]  # fmt: skip

    def query(self, name: str) -> RegisteredQuery:
        """Return one running query.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        """
        running = self.queries()
        for query in running:
            if query.name == name:
                return query
        raise UnknownQueryError(name, [query.name for query in running])

    def nodes(self, names: Collection[str]) -> dict[str, Node]:
        """Return the plans of the running queries, by name."""
        wanted = set(names)
        return {query.name: query.node for query in self.plan.queries if query.name in wanted}

    def add(
        self,
        name: str | None,
        sql: str,
        node: Node,
        positions: Mapping[str, int],
        reads: frozenset[str] = frozenset(),
        *,
        waited: bool = False,
    ) -> RegisteredQuery:
        """Register a query; it begins after `positions`, the present versions of all streams that any query reads.

        A query that `waited` has its name already.

        Raises
        ------
        QueryExistsError, TooManyQueriesError, TopicError
            If the name is taken, there are too many queries, or the name cannot be part of a topic.
        """
        before = self.plan
        name = name if waited and name is not None else self._name_for(name)
        epoch = before.epoch + 1
        query = RegisteredQuery(name, sql, node, epoch, time.time_ns() // 1000, reads)
        plan = Plan(epoch, (*before.queries, PlannedQuery(name, epoch, node)), dict(positions))
        text = stored_plans.written(node)
        physical = self._prepared(plan)
        with self._changing_plan():
            self._database.execute(
                "INSERT INTO queries VALUES (?, ?, ?, ?, ?, ?)",
                (name, sql, text, epoch, query.created_us, msgspec.json.encode(sorted(reads))),
            )
            self.relations.remove_waiting(name)
            self._store(plan)
        self._plan, self._physical, self._plan_written = plan, physical, False
        self.write_plan()
        return query

    def wait(self, name: str | None, sql: str, reads: frozenset[str], relations: frozenset[str]) -> WaitingQuery:
        """Register a query that cannot begin before its relations have versions; errors are those of :meth:`add`."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            query = WaitingQuery(self._name_for(name), sql, time.time_ns() // 1000, reads, relations)
            self.relations.add_waiting(query)
        return query

    def drop(self, name: str, positions: Mapping[str, int]) -> None:
        """End a query; it still answers what lies before `positions`.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        """
        self.query(name)
        before = self.plan
        kept = tuple(query for query in before.queries if query.name != name)
        plan = Plan(before.epoch + 1, kept, dict(positions))
        physical = self._prepared(plan)
        with self._changing_plan():
            self._database.execute("DELETE FROM queries WHERE name = ?", (name,))
            self._store(plan)
        self._plan, self._physical, self._plan_written = plan, physical, False
        self.write_plan()

    def skip_epochs(self, newest: int, positions: Mapping[str, int]) -> None:
        """Move the queries to the epoch after `newest`, give each epoch between a plan, and count these as lost.

        Parameters
        ----------
        newest
            An epoch that plans or offsets name, and this registry does not have.
        positions
            As in :meth:`add`.
        """
        before, running = self.plan, self.physical
        for epoch in range(before.epoch + 1, newest + 1):
            if not self._plans.exists(epoch):
                self._plans.write(replace(running, epoch=epoch, positions=dict(positions)))
        plan = Plan(newest + 1, before.queries, dict(positions))
        physical = self._prepared(plan)
        lost = LostEpochs(self.lost_epochs().epochs + newest - before.epoch, time.time_ns() // 1000)
        with self._changing_plan():
            self._store(plan)
            self._database.execute(
                "INSERT OR REPLACE INTO meta VALUES ('lost_epochs', ?)", (msgspec.json.encode(lost).decode(),)
            )
        self._plan, self._physical, self._plan_written = plan, physical, False
        self.write_plan()

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

    def _prepared(self, plan: Plan) -> PhysicalPlan:
        """Write the plan file under a temporary name, so that only a rename is left once the registry has the plan."""
        if not self.write_plan():
            raise UnwritableError(f"the plan of epoch {plan.epoch}", OSError(self.troubles.last))
        physical = lower(plan, self.physical)
        self._plans.prepare(physical)
        return physical

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def _changing_plan(self) -> Iterator[None]:
        """Commit what the block stores; after a failure the outcome is unknown, and the plan is read again."""
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                yield
        except BaseException:
            self._plan = None
            raise

    def _store(self, plan: Plan) -> None:
        # Other threads use the plan before until this one is committed.
        self._database.execute("INSERT INTO plans VALUES (?, ?)", (plan.epoch, encode_plan(plan)))
        # Older plans remain as files for as long as a replay may need them.
        self._database.execute("DELETE FROM plans WHERE epoch <> ?", (plan.epoch,))

    def _name_for(self, name: str | None) -> str:
        taken = {query.name for query in self.plan.queries} | {query.name for query in self.relations.waiting()}
        if len(taken) >= self._max_queries:
            raise TooManyQueriesError(
                f"{len(taken):,} queries are running, the limit is {self._max_queries:,}",
                hint="drop some, or raise the limit",
            )
        if name is None:
            return self._free_name(taken)
        if check_name(name, "query name") in taken:
            raise QueryExistsError(name)
        return name

    def _free_name(self, taken: set[str]) -> str:
        (used,) = self._database.execute("SELECT value FROM meta WHERE key = 'names'").fetchone() or (0,)
        number = int(used) + 1
        while f"q{number}" in taken:
            number += 1
        self._database.execute("INSERT OR REPLACE INTO meta VALUES ('names', ?)", (str(number),))
        return f"q{number}"

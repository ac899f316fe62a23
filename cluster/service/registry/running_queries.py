"""The queries that run, found by name and read from the file only once; and those that are set aside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from cluster.layered_map import LayeredMap
from cluster.operators import Node
from cluster.physical.nodes import Subscriber
from cluster.plan import stored_plans
from cluster.plan.epoch import EMPTY, Handover, Plan, PlannedQuery, decode_plan, encode_plan
from cluster.plan.sized import quality_of
from cluster.service.registry.query_names import spellings_of
from cluster.service.registry.registry_file import RegistryFile, names_as_text, names_in
from protocols.wire.names import folded

Subscribers = tuple[Subscriber, ...]
"""Queries as subscribers of the plan."""
MOST_EPOCHS = 1_000
"""The most epochs of which the history is shown at once; reasons for changes of plans are kept for as many."""
_PREFIX = "reason/"


class NextPlan(msgspec.Struct, frozen=True):
    """The plan with which a query that is migrating goes on.

    Parameters
    ----------
    since_epoch
        The epoch with which it began.
    handover
        When it is the query's plan.
    began_us
        When it began, in microseconds since 1970.
    why
        The reason for the change, for people.
    """

    since_epoch: int
    handover: Handover
    began_us: int
    why: str = ""


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
    early: bool = False
    """Whether its rows are published before their end is known."""
    since: Handover | None = None
    """When its plan became that of the query; None if it has had no other."""
    next: NextPlan | None = None
    """Set while it is migrating."""
    next_node: Node | None = None

    @property
    def identity(self) -> str:
        """A name that no other query of this engine has, had or will have."""
        return f"{self.name}@{self.since_epoch}"

    @property
    def planned(self) -> PlannedQuery:
        """The query as operators run it; while it is migrating, with the plan before."""
        until = None if self.next is None else self.next.handover
        return PlannedQuery(self.name, self.since_epoch, self.node, self.early, self.since, until)

    @property
    def all_planned(self) -> tuple[PlannedQuery, ...]:
        """The query as operators run it, with all its plans."""
        if self.next is None or self.next_node is None:
            return (self.planned,)
        following = PlannedQuery(self.name, self.next.since_epoch, self.next_node, self.early, since=self.next.handover)
        return self.planned, following

    def migrating(self, node: Node, following: NextPlan) -> RegisteredQuery:
        """Return the query while it hands over to another plan."""
        return replace(self, next=following, next_node=node)

    @property
    def migrated(self) -> RegisteredQuery:
        """The query when it has handed over to its next plan."""
        assert self.next is not None  # noqa: S101 - it is migrating
        assert self.next_node is not None  # noqa: S101 - as above
        return replace(
            self,
            node=self.next_node,
            since_epoch=self.next.since_epoch,
            since=self.next.handover,
            next=None,
            next_node=None,
        )


@dataclass(frozen=True, slots=True)
class RunningQueries:
    """All queries of an epoch; a value.

    Parameters
    ----------
    epoch
        The number of the plan.
    positions
        By stream: the last table version that belongs to the previous epoch.
    by_name
        The queries, oldest first.
    sized
        Those of them whose rows have a quality, as they have ranges; kept apart, because they are looked at for every
        query that comes, and may be few of many.
    spellings
        Their names, by what is the same of all spellings.
    """

    epoch: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    by_name: LayeredMap[str, RegisteredQuery] = field(default_factory=LayeredMap)
    sized: LayeredMap[str, RegisteredQuery] = field(default_factory=LayeredMap)
    spellings: LayeredMap[str, tuple[str, ...]] = field(default_factory=LayeredMap)

    def with_queries(self, queries: Collection[RegisteredQuery], positions: Mapping[str, int]) -> RunningQueries:
        """Return those of the next epoch, with more queries."""
        return self._next(positions, come=queries)

    def without_query(self, name: str, positions: Mapping[str, int]) -> RunningQueries:
        """Return those of the next epoch, without one."""
        return self._next(positions, go=[name])

    def changed(self, query: RegisteredQuery, positions: Mapping[str, int]) -> RunningQueries:
        """Return those of the next epoch, with one that has changed in its place."""
        return self._next(positions, come=[query])

    def _next(
        self, positions: Mapping[str, int], go: Collection[str] = (), come: Collection[RegisteredQuery] = ()
    ) -> RunningQueries:
        sized = [each for each in come if quality_of(each.node) is not None]
        others = {each.name for each in come}.difference(each.name for each in sized)
        return RunningQueries(
            self.epoch + 1,
            dict(positions),
            self.by_name.changed(go, ((each.name, each) for each in come)),
            self.sized.changed(
                (name for name in (*go, *others) if name in self.sized), ((each.name, each) for each in sized)
            ),
            self._respelled(go, come),
        )

    def _respelled(self, go: Collection[str], come: Collection[RegisteredQuery]) -> LayeredMap[str, tuple[str, ...]]:
        changed = dict[str, tuple[str, ...]]()
        for name in (*go, *(each.name for each in come)):
            key = folded(name)
            known = changed.get(key, self.spellings.get(key, ()))
            if name in go:
                changed[key] = tuple(each for each in known if each != name)
            elif name not in known:
                changed[key] = (*known, name)
        gone = [key for key, names in changed.items() if not names]
        return self.spellings.changed(gone, ((key, names) for key, names in changed.items() if names))

    def moved(self, epoch: int, positions: Mapping[str, int]) -> RunningQueries:
        """Return the same queries in another epoch."""
        return replace(self, epoch=epoch, positions=dict(positions))

    @property
    def plan(self) -> Plan:
        """The logical plan."""
        planned = (planned for each in self.by_name.values() for planned in each.all_planned)
        return Plan(self.epoch, tuple(sorted(planned, key=lambda each: each.since_epoch)), self.positions)

    @property
    def head(self) -> Plan:
        """The logical plan without its queries, which the file has in a table of their own."""
        return Plan(self.epoch, (), self.positions)


def read_queries(database: RegistryFile) -> RunningQueries:
    """Return the queries that a registry's file has, and the newest epoch.

    Raises
    ------
    msgspec.DecodeError
        If the plan, or a query, cannot be read.
    """
    found = database.execute("SELECT plan FROM plans ORDER BY epoch DESC LIMIT 1").fetchone()
    plan = EMPTY if found is None else decode_plan(found[0])
    assert isinstance(plan, Plan)  # noqa: S101 - changes are in files only
    rows = database.execute("SELECT name, sql, node, since_epoch, created_us, reads, early FROM queries ORDER BY rowid")
    by_name = {
        name: RegisteredQuery(
            name, sql, stored_plans.read(node), since_epoch, created_us,
            names_in(reads), bool(early),
        )
        for name, sql, node, since_epoch, created_us, reads, early in rows
    }  # fmt: skip
    for name, since, following, node in database.execute("SELECT name, since, next, node FROM migrations"):
        by_name[name] = replace(
            by_name[name],
            since=None if since is None else msgspec.json.decode(since, type=Handover),
            next=None if following is None else msgspec.json.decode(following, type=NextPlan),
            next_node=None if node is None else stored_plans.read(node),
        )
    sized = {name: each for name, each in by_name.items() if quality_of(each.node) is not None}
    return RunningQueries(
        plan.epoch, plan.positions, LayeredMap(by_name), LayeredMap(sized), LayeredMap(spellings_of(by_name))
    )


def move_plans(database: RegistryFile) -> None:
    """Move the plans of queries that an earlier version kept together to the queries, of which each has its own."""
    found = database.execute("SELECT epoch, plan FROM plans").fetchall()
    for epoch, text in found:
        plan = decode_plan(text)
        if not isinstance(plan, Plan) or not plan.queries:
            continue
        with database:
            database.execute("BEGIN IMMEDIATE")
            for each in plan.queries:
                database.execute(
                    "UPDATE queries SET node = ? WHERE name = ? AND since_epoch = ?",
                    (stored_plans.written(each.node), each.name, each.since_epoch),
                )
            head = encode_plan(Plan(plan.epoch, (), plan.positions))
            database.execute("UPDATE plans SET plan = ? WHERE epoch = ?", (head, epoch))


def insert_queries(database: RegistryFile, queries: Collection[RegisteredQuery]) -> None:
    """Put queries into a registry's file, inside a transaction of the caller; none of them waits any more."""
    for each in queries:
        database.execute(
            "INSERT INTO queries VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                each.name,
                each.sql,
                stored_plans.written(each.node),
                each.since_epoch,
                each.created_us,
                msgspec.json.encode(sorted(each.reads)),
                each.early,
            ),
        )
        database.execute("DELETE FROM waiting WHERE name = ?", (each.name,))


def update_query(database: RegistryFile, query: RegisteredQuery) -> None:
    """Store the plans of a query that migrates, or has migrated, inside a transaction of the caller."""
    database.execute(
        "UPDATE queries SET node = ?, since_epoch = ? WHERE name = ?",
        (stored_plans.written(query.node), query.since_epoch, query.name),
    )
    database.execute(
        "INSERT OR REPLACE INTO migrations VALUES (?, ?, ?, ?)",
        (
            query.name,
            None if query.since is None else msgspec.json.encode(query.since).decode(),
            None if query.next is None else msgspec.json.encode(query.next).decode(),
            None if query.next_node is None else stored_plans.written(query.next_node),
        ),
    )


def delete_query(database: RegistryFile, name: str) -> None:
    """Remove a query, with all its plans, inside a transaction of the caller."""
    database.execute("DELETE FROM queries WHERE name = ?", (name,))
    database.execute("DELETE FROM migrations WHERE name = ?", (name,))


def note_reason(database: RegistryFile, epoch: int, query: RegisteredQuery) -> None:
    """Store why a query begins to go on with another plan, inside a transaction of the caller.

    Parameters
    ----------
    database
        The registry's.
    epoch
        The epoch that begins it.
    query
        The query; if it does not migrate, nothing is stored.
    """
    if query.next is not None and query.next.why:
        database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_key(epoch), query.next.why))
        database.execute("DELETE FROM meta WHERE key > ? AND key < ?", (_PREFIX, _key(max(epoch - MOST_EPOCHS, 0))))


def reasons(database: RegistryFile) -> dict[int, str]:
    """Return the reasons that are kept, by epoch: with each, one query begins to migrate."""
    found = database.execute("SELECT key, value FROM meta WHERE key > ? AND key < ?", (_PREFIX, f"{_PREFIX}~"))
    return {int(key.removeprefix(_PREFIX)): why for key, why in found}


def _key(epoch: int) -> str:
    return f"{_PREFIX}{epoch:020}"


@dataclass(frozen=True, slots=True)
class SetAsideQuery:
    """A query that is set aside.

    Parameters
    ----------
    name, sql, created_us, reads
        As those of a query that runs.
    since_us
        When it was set aside, in microseconds since 1970.
    reason
        Why, as a sentence about the query.
    """

    name: str
    sql: str
    created_us: int
    reads: frozenset[str]
    since_us: int
    reason: str

    @classmethod
    def of(cls, query: RegisteredQuery, reason: str, since_us: int) -> SetAsideQuery:
        """Return a query that has run, set aside."""
        return cls(query.name, query.sql, query.created_us, query.reads, since_us, reason)


class SetAsideQueries:
    """The table.

    Parameters
    ----------
    database
        The registry's.
    """

    def __init__(self, database: RegistryFile) -> None:
        self._database = database

    def all(self) -> list[SetAsideQuery]:
        """Return them, the one first that was set aside first."""
        columns = "name, sql, created_us, reads, since_us, reason"
        rows = self._database.execute(f"SELECT {columns} FROM set_aside ORDER BY number")  # noqa: S608 - written above
        return [
            SetAsideQuery(name, sql, created_us, names_in(reads), since_us, reason)
            for name, sql, created_us, reads, since_us, reason in rows
        ]

    def find(self, name: str) -> SetAsideQuery | None:
        """Return the one of this name, or None."""
        return next((query for query in self.all() if query.name == name), None)

    def drop(self, name: str) -> bool:
        """Remove one; return whether there was one."""
        return self._database.execute("DELETE FROM set_aside WHERE name = ?", (name,)).rowcount > 0


def insert_set_aside(database: RegistryFile, query: SetAsideQuery) -> None:
    """Put one into a registry's file, inside a transaction of the caller."""
    database.execute(
        "INSERT INTO set_aside (name, sql, created_us, reads, since_us, reason) VALUES (?, ?, ?, ?, ?, ?)",
        (
            query.name,
            query.sql,
            query.created_us,
            names_as_text(query.reads),
            query.since_us,
            query.reason,
        ),
    )

"""Plan epochs: the immutable plan under which an engine runs from an exact position of its streams.

Adding or dropping a query makes a new plan with the next epoch number. A plan names, for each stream it reads, the
table version up to which the previous plan holds. So the beginning of a query does not depend on how the stream is
cut into micro-batches, and a replay after a crash finds the same plans at the same positions.

This is the logical plan of an epoch's queries, as the registry keeps it. The physical plan is in the epoch's file
(:mod:`cluster.physical.plan_files`); files of formats up to 4 have the queries, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cluster.operators import Node
from cluster.operators.walks import streams_of_all
from cluster.plan.stored_plans import read, written

FORMAT = 4
"""Format 1 had a whole plan in every file; 2 and 3 have expressions as texts."""

FORMATS_READ = (2, 3, FORMAT)
"""Formats that can be read; 3 is 2 with queries as lists of distinct nodes."""


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """The instant at which one plan of a query hands over to another (papers/pipes_migration.md section 3).

    Both run from the epoch with which the handover begins until the old one has answered all that is its own:

        old plan    ----------|           all rows that begin before the instant
        new plan              |--------   all rows that begin at it or later

    Parameters
    ----------
    at_us
        The instant, in application time: microseconds since 1970.
    opens_us
        Once its streams have come to this instant, the old plan has answered every row that begins before `at_us`, and
        may go. Until then the answers of the new one wait, so that those of both are in order.
    cut
        True if rows are cut at the instant; False if each belongs, whole, to the plan in whose time it begins.
    """

    at_us: int
    opens_us: int
    cut: bool = False


class PlannedQuery(msgspec.Struct, frozen=True):
    """A query as the operators run it.

    Parameters
    ----------
    name
        The query's name.
    since_epoch
        The epoch with which it began; distinguishes it from an earlier query of the same name.
    node
        The rewritten algebra.
    early
        True if its rows are published as soon as their beginning is certain (EMIT EARLY).
    since, until
        The handovers by which it follows another plan of the same query, and is followed by one.
    """

    name: str
    since_epoch: int
    node: Node
    early: bool = False
    since: Handover | None = None
    until: Handover | None = None

    @property
    def identity(self) -> str:
        """A name that no other query of this engine has, had or will have."""
        return f"{self.name}@{self.since_epoch}"


def name_of(identity: str) -> str:
    """Return the name of a query, given its identity."""
    return identity.rpartition("@")[0]


class Plan(msgspec.Struct, frozen=True, tag="Plan"):
    """All queries of an epoch.

    Parameters
    ----------
    epoch
        Number of the plan; 0 is the empty plan.
    queries
        The queries that run.
    positions
        By stream: the last table version that belongs to the previous epoch.
    format
        Version of the plan's own format.
    """

    epoch: int
    queries: tuple[PlannedQuery, ...] = ()
    positions: Mapping[str, int] = {}
    format: int = FORMAT

    @property
    def streams(self) -> frozenset[str]:
        """Streams that any of the queries reads."""
        return streams_of_all(query.node for query in self.queries)


class PlanChange(msgspec.Struct, frozen=True, tag="PlanChange"):
    """The difference between an epoch's plan and that of the previous epoch.

    Parameters
    ----------
    epoch
        The new epoch.
    added
        New queries, which come last in it.
    dropped
        Identities of the dropped queries.
    positions, format
        As in :class:`Plan`.
    """

    epoch: int
    added: tuple[PlannedQuery, ...] = ()
    dropped: tuple[str, ...] = ()
    positions: Mapping[str, int] = {}
    format: int = FORMAT

    def applied_to(self, before: Plan) -> Plan:
        """Return the plan after the change."""
        gone = set(self.dropped)
        kept = tuple(query for query in before.queries if query.identity not in gone)
        return Plan(self.epoch, kept + self.added, self.positions)


EMPTY = Plan(0)
"""The plan of an engine that has never had a query."""


class _StoredQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    since_epoch: int
    node: msgspec.Raw
    early: bool = False
    since: Handover | None = None
    until: Handover | None = None


class _StoredPlan(msgspec.Struct, frozen=True, tag="Plan"):
    epoch: int
    queries: tuple[_StoredQuery, ...] = ()
    positions: Mapping[str, int] = {}
    format: int = FORMAT


class _StoredChange(msgspec.Struct, frozen=True, tag="PlanChange"):
    epoch: int
    added: tuple[_StoredQuery, ...] = ()
    dropped: tuple[str, ...] = ()
    positions: Mapping[str, int] = {}
    format: int = FORMAT


_decoder = msgspec.json.Decoder(_StoredPlan | _StoredChange)


def encode_plan(plan: Plan | PlanChange) -> bytes:
    """Return a plan as JSON, no larger than its distinct nodes."""
    queries = plan.queries if isinstance(plan, Plan) else plan.added
    listed = tuple(
        _StoredQuery(
            query.name,
            query.since_epoch,
            msgspec.Raw(written(query.node)),
            query.early,
            query.since,
            query.until,
        )
        for query in queries
    )
    if isinstance(plan, Plan):
        return msgspec.json.encode(_StoredPlan(plan.epoch, listed, plan.positions, plan.format))
    return msgspec.json.encode(_StoredChange(plan.epoch, listed, plan.dropped, plan.positions, plan.format))


def decode_plan(text: bytes | str) -> Plan | PlanChange:
    """Return the plan that a JSON text describes.

    Raises
    ------
    msgspec.DecodeError
        If the text is not a plan.
    """
    try:
        found = _decoder.decode(text)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    listed = found.queries if isinstance(found, _StoredPlan) else found.added
    try:
        queries = tuple(
            PlannedQuery(query.name, query.since_epoch, read(query.node), query.early, query.since, query.until)
            for query in listed
        )
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error
    format_ = FORMAT if found.format in FORMATS_READ else found.format
    if isinstance(found, _StoredPlan):
        return Plan(found.epoch, queries, found.positions, format_)
    return PlanChange(found.epoch, queries, found.dropped, found.positions, format_)

"""Panes: windowed aggregates of one stream by the same keys are one, whatever their windows, conditions and aggregates.

    AVG(speed) over 5 minutes, every minute              panes of a minute: one partial row per key, pane and condition,
    MAX(speed) over 1 hour, every 10 minutes       ->    with what all aggregates need; each window is made of whole
    COUNT(*) WHERE lane = 1, 15 minutes, every 15        panes, and the rest of each query is made of its window's rows

A tuple stamped t lies in the pane that ends with the least multiple of the pane's width above t. Where that divides
slide and size of a window, all tuples of a pane enter and leave the window together (papers/pipes_algebra.md section 3,
with advance), so a window over panes holds exactly the tuples of a window over the stream: a coarser slide is answered
from a finer one's panes.

Queries with equal conditions share their tuples: such a *group* is known by a digest of its condition. A query that
comes later must not see what came before it; so partial rows carry the newest query's epoch at their arrival
(``SINCE``), and an answer says which queries it is for: those that began after ``AFTER``, up to ``SINCE``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from cluster.language.algebra import (
    MEMBER,
    SINCE,
    STAMP,
    Aggregate,
    AggregateCall,
    Column,
    Node,
    Output,
    Project,
    Scalar,
    Schema,
    identity_of,
)
from cluster.language.plans import column_scalar
from cluster.plan.completeness import count_form
from cluster.plan.epoch import PlannedQuery
from cluster.plan.expressions import columns_of
from cluster.plan.pane_query import PaneQuery, key_name
from cluster.plan.push_down import Pushed, pushed_of
from protocols.streams import FieldType

SIZE = Column("fjord_size_us", FieldType.INTEGER, "us")
SLIDE = Column("fjord_slide_us", FieldType.INTEGER, "us")
AFTER = Column("fjord_after", FieldType.INTEGER)
"""Queries that began up to this epoch get another row in the place of this one."""
MARKS: Schema = (MEMBER, SIZE, SLIDE, SINCE, AFTER)
"""What the rows of answers carry so that each query finds its own."""


@dataclass(frozen=True, slots=True)
class PaneMember:
    """A query of a fold; `group` is that of its condition, `pushed` what sensors do of it.

    `counted` is the form in which it is told how many samples are missing; None if it does not ask.
    """

    query: PlannedQuery
    pane_query: PaneQuery
    group: int
    pushed: Pushed | None = None
    counted: str | None = None

    @property
    def number(self) -> int:
        """The epoch with which it began."""
        return self.query.since_epoch

    @property
    def top(self) -> Node:
        """What is left to do to its window's rows."""
        return self.pane_query.top


@dataclass(frozen=True, slots=True)
class PaneFold:
    """Windowed aggregates that share panes.

    Parameters
    ----------
    name
        Identity of the fold.
    members
        Its queries, oldest first.
    """

    name: str
    members: tuple[PaneMember, ...]

    @property
    def calls(self) -> tuple[AggregateCall, ...]:
        """All their aggregates, by name."""
        found = {call.name: call for member in self.members for call in member.pane_query.calls}
        return tuple(found[name] for name in sorted(found))

    @property
    def keys(self) -> tuple[Output, ...]:
        """What they group by, with the names the partial rows have for it."""
        return tuple(Output(key_name(key), key) for key in self.members[0].pane_query.keys)

    @property
    def pane_us(self) -> int:
        """The width of their panes."""
        return math.gcd(*(member.pane_query.own_pane_us for member in self.members))

    @property
    def groups(self) -> tuple[tuple[int, Scalar | None], ...]:
        """The conditions, by number of their group."""
        return tuple({member.group: member.pane_query.predicate for member in self.members}.items())

    @property
    def told(self) -> Mapping[int, Pushed]:
        """What sensors do, by number of the group."""
        return {member.group: member.pushed for member in self.members if member.pushed is not None}

    @property
    def chain(self) -> Project:
        """What runs next to the scan: the stream's tuples with keys and what the aggregates read."""
        source, calls = self.members[0].pane_query.source, self.calls
        read = {name for call in calls for scalar in call.reads for name in columns_of(scalar)}
        columns = [*source.columns, *([STAMP] if STAMP.name in read else []), MEMBER, SINCE]
        kept = [column for column in columns if column.name in read or column in (MEMBER, SINCE)]
        outputs = (*self.keys, *(Output(column.name, column_scalar(column), column.unit) for column in kept))
        return Project(replace(source, columns=tuple(columns)), outputs)

    @property
    def aggregate(self) -> Aggregate:
        """The first half of which makes the panes."""
        return Aggregate(self.chain, (*(key.name for key in self.keys), MEMBER.name, SINCE.name), self.calls)


def fold_panes(queries: Mapping[PlannedQuery, PaneQuery]) -> tuple[PaneFold, ...]:
    """Return the folds of windowed aggregates."""
    families: dict[str, list[PaneMember]] = {}
    for query, pane_query in queries.items():
        pushed = pushed_of(pane_query)
        # Samples that sensors have aggregated already count for some and not for others, whatever their condition.
        marks = [pane_query.predicate, None if pushed is None else _Form(pushed.form)]
        counted = count_form(pane_query)
        if counted is not None:
            # What is told of missing samples is for those only who ask for it, in panes of their width.
            marks.append(_Form(counted))
        member = PaneMember(query, pane_query, group_of(tuple(marks)), pushed, counted)
        families.setdefault(pane_query.family, []).append(member)
    return tuple(PaneFold(name, tuple(members)) for name, members in families.items())


class _Form(msgspec.Struct, frozen=True):
    """The name of what sensors tell, beside conditions; written as it always has been."""

    sql: str
    type: FieldType = FieldType.TEXT


@lru_cache(maxsize=65_536)
def group_of(predicates: tuple[Scalar | _Form | None, ...]) -> int:
    """Return the number of conditions on sources: a digest of them, so that it is the same for ever; 0 for none."""
    if not any(predicates):
        return 0
    digest = hashlib.blake2b(identity_of(predicates), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1

"""Each rule: what it makes of a plan it is for, and that it leaves alone what does not meet its precondition."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cluster.operators import (
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Granularity,
    Held,
    Intersection,
    Istream,
    Join,
    Lookup,
    Node,
    PartitionedWindow,
    Ranked,
    Relation,
    SemiJoin,
    Sequence,
    SessionWindow,
    Source,
    StampJoin,
    TimeWindow,
    Union,
    UntilNext,
    Zip,
    ZipKind,
)
from cluster.operators.aggregate_functions import AGGREGATE_FUNCTIONS
from cluster.operators.columns import AggregateCall, Column, Ordering
from cluster.operators.extent import Coalescing
from cluster.operators.sequence import SequenceCall
from cluster.operators.walks import nodes_of
from cluster.operators.window_shapes import Grid, Session, Span
from cluster.plan.rewrite import RULES
from cluster.plan.rules import joins as j
from cluster.plan.rules import joins as t
from cluster.plan.rules import joins as x
from cluster.plan.rules import joins as z
from cluster.plan.rules import projection as p
from cluster.plan.rules import projection as w
from cluster.plan.rules import selection as d
from cluster.plan.rules import selection as e
from cluster.plan.rules import selection as h
from cluster.plan.rules import selection as s
from protocols.wire.streams import FieldType
from tests.cluster.plan.plans import ALSO_A, A, B, C, call, condition, grouped, pick, where, window

EQ = condition('"x" = "u"')
R = Relation("r", "r@1", B.columns)
S = Relation("s", "s@1", (Column("k", FieldType.INTEGER),))
REALS = Source("reals", (Column("r", FieldType.REAL),))
NARROW_A, NARROW_B = pick(A, x='"x"'), pick(B, u='"u"')
SESSION = Session(5, 60)
ON_GRID = TimeWindow(A, 9, 9, Grid(Span("day", 1), 7, "Europe/Berlin", Span("month", 1)))
LARGE = " AND ".join(f'"x" <> {number}' for number in range(700))
LARGE_SUM = " + ".join(f'"x" * {number}' for number in range(700))
"""With the sum in it, the condition would be larger than one may become."""


def renamed(function: str, column: str) -> AggregateCall:
    """An aggregate of a column that takes its place."""
    return replace(call(function, column), name=column)


RUNS = Coalescing(("y",), "x", ("x", "y"), ("since", "until"))
V = '"v" > 1'


def stamped(left: Node, right: Node, kind: ZipKind = "inner", *, latest: bool = False) -> StampJoin:
    """A join by stamps on x = u."""
    return StampJoin(left, right, (("x", "u"),), -1, 0, kind, None if latest else condition('"y" < "v"'), latest)


def zipped(left: Node, right: Node, kind: ZipKind = "inner") -> Zip:
    """A zipper join on x = u."""
    return Zip(left, right, (("x", "u"),), -1, 3, kind, "apart_us")


def in_order(node: Node) -> Sequence:
    """The value before, of each x."""
    before = SequenceCall("before", "lag", "y", FieldType.INTEGER, rows=1)
    return Sequence(node, ("x",), ("x", "y"), (before,))


NEVER = "CAST(NULL AS INTEGER) > 1"
BEFORE = '"before" > 1'
X, Y, U = '"x" > 1', '"y" > 1', '"u" > 1'

# (rule, plan, what the rule makes of it)
APPLIES = [
    # selection
    (s.merge_filters, where(where(A, X), Y), where(A, '"x" > 1 AND "y" > 1')),
    (s.merge_filters, where(where(A, '"x" = 1 OR "y" = 2'), Y), where(A, '("x" = 1 OR "y" = 2) AND "y" > 1')),
    (s.drop_repeated_conditions, where(A, '"x" > 1 AND "y" > 1 AND "x" > 1'), where(A, '"x" > 1 AND "y" > 1')),
    (
        s.filter_below_project,
        where(pick(A, s='"x" + "y"', t='"x"'), '"s" * 2 > "t"'),
        pick(where(A, '("x" + "y") * 2 > "x"'), s='"x" + "y"', t='"x"'),
    ),
    (s.filter_below_union, where(Union(A, ALSO_A), X), Union(where(A, X), where(ALSO_A, X))),
    (s.filter_below_time_window, where(window(A, 5, 2), X), window(where(A, X), 5, 2)),
    (s.filter_below_sequence, where(in_order(A), X), in_order(where(A, X))),
    (
        s.filter_below_sequence,
        where(in_order(A), '"x" > 1 AND "before" > 1'),
        where(in_order(where(A, X)), '"before" > 1'),
    ),
    (
        s.filter_below_partitioned_window,
        where(PartitionedWindow(A, ("x",), 3), '"x" > 1 AND "y" > 1'),
        where(PartitionedWindow(where(A, X), ("x",), 3), Y),
    ),
    (
        s.filter_below_partitioned_window,
        where(SessionWindow(A, ("x",), SESSION), '"x" > 1 AND "y" > 1'),
        where(SessionWindow(where(A, X), ("x",), SESSION), Y),
    ),
    (
        s.filter_below_partitioned_window,
        where(UntilNext(A, ("x",), 9, ("since", "until")), '"x" > 1 AND "until" > 1'),
        where(UntilNext(where(A, X), ("x",), 9, ("since", "until")), '"until" > 1'),
    ),
    (
        p.project_above_window,
        UntilNext(pick(A, k='"x"', z='"y" + 1'), ("k",)),
        pick(UntilNext(A, ("x",)), k='"x"', z='"y" + 1'),
    ),
    (
        p.project_below_partitioned_window,
        pick(UntilNext(Distinct(A), ("x",), 9), k='"x"'),
        UntilNext(pick(Distinct(A), k='"x"'), ("k",), 9),
    ),
    (s.filter_below_time_window, where(ON_GRID, X), replace(ON_GRID, input=where(A, X))),
    (s.filter_below_aggregate, where(grouped(A, "x", call("count")), X), grouped(where(A, X), "x", call("count"))),
    (
        s.filter_below_aggregate,
        where(grouped(A, "x", call("count")), '"count" > 2 AND "x" > 1'),
        where(grouped(where(A, X), "x", call("count")), '"count" > 2'),
    ),
    (
        s.filter_below_ranked,
        where(Ranked(A, ("x",), (Ordering("y"),), "rank", 0, 3, "place"), '"x" > 1 AND "y" > 1 AND "place" < 3'),
        where(Ranked(where(A, X), ("x",), (Ordering("y"),), "rank", 0, 3, "place"), '"y" > 1 AND "place" < 3'),
    ),
    (
        s.filter_below_extent,
        where(Extent(A, ("x",), RUNS), '"x" > 1 AND "y" > 1 AND "until" > 1'),
        where(Extent(where(A, X), ("x",), RUNS), '"y" > 1 AND "until" > 1'),
    ),
    (s.filter_below_distinct, where(Distinct(A), X), Distinct(where(A, X))),
    (s.filter_below_difference, where(Difference(A, ALSO_A), X), Difference(where(A, X), where(ALSO_A, X))),
    (s.filter_below_intersection, where(Intersection(A, ALSO_A), X), Intersection(where(A, X), where(ALSO_A, X))),
    (s.filter_below_granularity, where(Granularity(A, 2), X), Granularity(where(A, X), 2)),
    (s.filter_below_changes, where(Istream(A), X), Istream(where(A, X))),
    (s.filter_below_changes, where(Dstream(A), X), Dstream(where(A, X))),
    # joins
    (j.filter_into_join, where(Join(A, B, None), EQ.sql), Join(A, B, EQ)),
    (
        j.join_condition_to_sides,
        Join(A, B, condition('"x" = "u" AND "x" > 1 AND "u" > 1')),
        Join(where(A, X), where(B, U), EQ),
    ),
    (j.filter_below_existence, where(SemiJoin(A, B, EQ), X), SemiJoin(where(A, X), B, EQ)),
    (j.filter_below_existence, where(AntiJoin(A, B, EQ), X), AntiJoin(where(A, X), B, EQ)),
    (j.filter_below_lookup, where(Lookup(A, R, EQ, "left"), X), Lookup(where(A, X), R, EQ, "left")),
    (
        j.filter_below_lookup,
        where(Lookup(A, R, EQ, "left"), '"x" > 1 AND "u" > 1'),
        where(Lookup(where(A, X), R, EQ, "left"), U),
    ),
    (
        j.semijoin_condition_to_sides,
        SemiJoin(A, B, condition('"x" = "u" AND "x" > 1 AND "u" > 1')),
        SemiJoin(where(A, X), where(B, U), EQ),
    ),
    (
        j.antijoin_condition_to_right,
        AntiJoin(A, B, condition('"x" = "u" AND "x" > 1 AND "u" > 1')),
        AntiJoin(A, where(B, U), condition('"x" = "u" AND "x" > 1')),
    ),
    (
        j.split_antijoin,
        AntiJoin(A, B, condition('"y" = "v" AND ("x" = "u" OR "x" IS NULL)')),
        AntiJoin(AntiJoin(A, B, condition('"y" = "v" AND "x" = "u"')), B, condition('"y" = "v" AND "x" IS NULL')),
    ),
    (
        j.avoid_product,
        Join(Join(A, B, None), C, condition('"u" = "p" AND "x" = "q"')),
        Join(A, Join(B, C, condition('"u" = "p"')), condition('"x" = "q"')),
    ),
    (
        j.avoid_product,
        Join(Join(A, R, None), S, condition('"u" = "k" AND "x" = "k"')),
        Join(A, Join(R, S, condition('"u" = "k"')), condition('"x" = "k"')),
    ),
    (e.drop_empty_side, Union(A, where(ALSO_A, f'"x" = 1 AND {NEVER}')), A),
    (e.drop_empty_side, Union(where(A, NEVER), B), pick(B, x='"u"', y='"v"')),
    (e.drop_empty_side, Union(A, pick(window(AntiJoin(where(ALSO_A, NEVER), B, EQ), 5), x='"x"', y="1")), A),
    (e.drop_empty_side, Union(A, grouped(Join(ALSO_A, where(B, NEVER), EQ), "x", call("count"))), A),
    (j.drop_distinct_in_existence, SemiJoin(A, Distinct(B), EQ), SemiJoin(A, B, EQ)),
    (j.drop_distinct_in_existence, AntiJoin(A, Distinct(B), EQ), AntiJoin(A, B, EQ)),
    (
        x.existence_by_extreme,
        SemiJoin(A, B, condition('"x" < "v" AND "y" = "u"')),
        SemiJoin(A, grouped(B, "u", renamed("max", "v")), condition('"x" < "v" AND "y" = "u"')),
    ),
    (
        x.existence_by_extreme,
        AntiJoin(A, pick(B, u='"u"'), condition('"u" <= "x" + "y"')),
        AntiJoin(A, grouped(pick(B, u='"u"'), "", renamed("min", "u")), condition('"u" <= "x" + "y"')),
    ),
    (
        x.existence_by_extreme,
        AntiJoin(A, grouped(B, "u", call("count")), condition('"x" >= "count" AND "y" > 1')),
        AntiJoin(
            A,
            grouped(grouped(B, "u", call("count")), "", renamed("min", "count")),
            condition('"x" >= "count" AND "y" > 1'),
        ),
    ),
    (j.narrow_existence, SemiJoin(A, B, EQ), SemiJoin(A, pick(B, u='"u"'), EQ)),
    (j.narrow_existence, AntiJoin(A, B, None), AntiJoin(A, pick(B, u='"u"'), None)),
    (
        j.narrow_join,
        pick(Join(A, B, EQ), z='"y" + 1'),
        pick(Join(A, pick(B, u='"u"'), EQ), z='"y" + 1'),
    ),
    (
        j.narrow_existence_left,
        pick(SemiJoin(A, B, EQ), z='"x"'),
        pick(SemiJoin(pick(A, x='"x"'), B, EQ), z='"x"'),
    ),
    # projection
    (p.merge_projects, pick(pick(A, s='"x" + 1', t='"y"'), z='"s" * "t"'), pick(A, z='("x" + 1) * "y"')),
    (p.merge_projects, pick(pick(A, t='"y"'), z='"t" * "t"'), pick(A, z='"y" * "y"')),
    (p.drop_identity_project, pick(A, x='"x"', y='"y"'), A),
    (p.project_below_union, pick(Union(A, ALSO_A), z='"x"'), Union(pick(A, z='"x"'), pick(ALSO_A, z='"x"'))),
    (p.project_above_window, window(pick(A, z='"x"'), 5), pick(window(A, 5), z='"x"')),
    (p.project_above_window, CountWindow(pick(where(A, X), z='"x"'), 5), pick(CountWindow(where(A, X), 5), z='"x"')),
    (
        p.project_above_window,
        PartitionedWindow(pick(A, k='"x"', z='"y" + 1'), ("k",), 5),
        pick(PartitionedWindow(A, ("x",), 5), k='"x"', z='"y" + 1'),
    ),
    (
        p.project_above_window,
        SessionWindow(pick(A, k='"x"', z='"y" + 1'), ("k",), SESSION),
        pick(SessionWindow(A, ("x",), SESSION), k='"x"', z='"y" + 1'),
    ),
    (
        p.project_below_partitioned_window,
        pick(SessionWindow(Distinct(A), ("x",), SESSION), k='"x"'),
        SessionWindow(pick(Distinct(A), k='"x"'), ("k",), SESSION),
    ),
    (
        p.project_below_time_window,
        pick(window(Distinct(A), 5), z='"x"'),
        window(pick(Distinct(A), z='"x"'), 5),
    ),
    (
        p.project_below_count_window,
        pick(CountWindow(Distinct(A), 5), z='"x"'),
        CountWindow(pick(Distinct(A), z='"x"'), 5),
    ),
    (
        p.project_below_partitioned_window,
        pick(PartitionedWindow(Distinct(A), ("x",), 5), k='"x"'),
        PartitionedWindow(pick(Distinct(A), k='"x"'), ("k",), 5),
    ),
    (p.project_below_granularity, pick(Granularity(A, 2), z='"x"'), Granularity(pick(A, z='"x"'), 2)),
    (p.narrow_aggregate, grouped(A, "x", call("count")), grouped(pick(A, x='"x"'), "x", call("count"))),
    (p.narrow_aggregate, grouped(A, "", call("sum", "y")), grouped(pick(A, y='"y"'), "", call("sum", "y"))),
    (
        p.drop_unused_calls,
        pick(grouped(A, "x", call("count"), call("sum", "y")), z='"count"'),
        pick(grouped(A, "x", call("count")), z='"count"'),
    ),
    (p.groups_without_aggregates, grouped(A, "y"), Distinct(pick(A, y='"y"'))),
    # windows
    (w.drop_now_window, window(A, 1), A),
    (w.window_below_union, window(Union(A, ALSO_A), 5, 2), Union(window(A, 5, 2), window(ALSO_A, 5, 2))),
    (w.unbounded_count_window, CountWindow(A, None), TimeWindow(A, None)),
    (w.istream_of_unbounded_window, Istream(window(A, None)), A),
    (w.istream_of_unbounded_window, Istream(pick(where(window(A, None), X), z='"y"')), pick(where(A, X), z='"y"')),
    (w.merge_granularities, Granularity(Granularity(A, 4), 6), Granularity(A, 12)),
    (w.drop_finest_granularity, Granularity(A, 1), A),
    (w.merge_windows_below_distinct, Distinct(window(window(A, 3), 5)), Distinct(window(A, 7))),
    # duplicates
    (d.drop_needless_distinct, Distinct(Distinct(A)), Distinct(A)),
    (d.drop_needless_distinct, Distinct(grouped(A, "x", call("count"))), grouped(A, "x", call("count"))),
    (
        d.drop_needless_distinct,
        Distinct(pick(grouped(A, "x", call("count")), k='"x"')),
        pick(grouped(A, "x", call("count")), k='"x"'),
    ),
    (d.drop_needless_distinct, Distinct(SemiJoin(Distinct(A), B, EQ)), SemiJoin(Distinct(A), B, EQ)),
    (d.distinct_once_over_union, Distinct(Union(Distinct(A), ALSO_A)), Distinct(Union(A, ALSO_A))),
    (d.distinct_once_over_project, Distinct(pick(Distinct(A), z='"x"')), Distinct(pick(A, z='"x"'))),
    (d.distinct_once_over_window, Distinct(window(Distinct(A), 5, 2)), Distinct(window(A, 5, 2))),
    (
        d.drop_distinct_below_extremes,
        grouped(Distinct(A), "x", call("max", "y"), call("count", "y", distinct=True)),
        grouped(A, "x", call("max", "y"), call("count", "y", distinct=True)),
    ),
    (d.subtract_once, Difference(Difference(A, ALSO_A), A), Difference(A, Union(ALSO_A, A))),
    # zipper joins
    (z.filter_below_zip, where(zipped(A, B), X), zipped(where(A, X), where(B, U))),
    (z.filter_below_zip, where(zipped(A, B), U), zipped(where(A, X), where(B, U))),
    (z.filter_below_zip, where(zipped(A, B, "left"), X), zipped(where(A, X), where(B, U), "left")),
    (
        z.filter_below_zip,
        where(zipped(A, B, "left"), '"x" > 1 AND "y" > 1 AND "u" IS NULL'),
        where(zipped(where(A, X), where(B, U), "left"), '"y" > 1 AND "u" IS NULL'),
    ),
    # rows of relations that flow
    (h.filter_below_held, where(Held(A, R), U), Held(A, where(R, U))),
    (h.project_below_held, pick(Held(A, R, waits_us=5), z='"u"'), Held(A, pick(R, z='"u"'), waits_us=5)),
    # joins by stamps
    (t.filter_below_stamp_join, where(stamped(A, B), X), stamped(where(A, X), where(B, U))),
    (t.filter_below_stamp_join, where(stamped(A, B), U), stamped(where(A, X), where(B, U))),
    (t.filter_below_stamp_join, where(stamped(A, B), V), stamped(A, where(B, V))),
    (
        t.filter_below_stamp_join,
        where(stamped(A, B, "left"), '"y" > 1 AND "u" > 1'),
        where(stamped(where(A, Y), B, "left"), U),
    ),
    (
        t.filter_below_stamp_join,
        where(stamped(A, B, latest=True), '"u" > 1 AND "v" > 1 AND "y" > 1'),
        where(stamped(where(A, '"x" > 1 AND "y" > 1'), where(B, U), latest=True), V),
    ),
    (t.narrow_stamp_join, pick(stamped(A, B, latest=True), z='"v"'), pick(stamped(NARROW_A, B, latest=True), z='"v"')),
]

# (rule, plan that looks like one for it but is not)
HOLDS_BACK = [
    (j.filter_below_lookup, where(Lookup(A, R, EQ, "left"), U)),
    (j.avoid_product, Join(Join(A, C, None), R, condition('"q" = "u" AND "x" = "v"'))),
    (j.avoid_product, Join(Join(Join(window(A, 9), C, None), R, None), S, condition('"u" = "k" AND "k" = "q"'))),
    (j.split_antijoin, AntiJoin(A, R, condition('"x" = "u" OR "u" IS NULL'))),
    (s.filter_below_time_window, where(CountWindow(A, 3), X)),
    (s.filter_below_partitioned_window, where(PartitionedWindow(A, ("x",), 3), Y)),
    (s.filter_below_partitioned_window, where(SessionWindow(A, ("x",), SESSION), Y)),
    (s.filter_below_partitioned_window, where(SessionWindow(A, (), SESSION), X)),
    (s.filter_below_partitioned_window, where(UntilNext(A, ("x",), 9), Y)),
    (p.project_above_window, UntilNext(pick(A, k='"x"'), ("k",), 9, ("since", "until"))),
    (p.project_below_partitioned_window, pick(UntilNext(Distinct(A), ("x",), 9, ("since", "until")), x='"x"')),
    (w.drop_now_window, TimeWindow(A, 1, 1, Grid(Span("us", 5), 1))),
    (w.merge_windows_below_distinct, Distinct(TimeWindow(window(A, 4), 9, 1, Grid(Span("us", 9))))),
    (w.merge_windows_below_distinct, Distinct(window(TimeWindow(A, 9, 1, Grid(Span("us", 9))), 4))),
    (p.project_above_window, SessionWindow(pick(A, k='"x" % 2'), ("k",), SESSION)),
    (s.filter_below_ranked, where(Ranked(A, ("x",), (Ordering("y"),), name="place"), '"y" > 1 AND "place" < 3')),
    (s.filter_below_extent, where(Extent(A, ("x",), RUNS), '"y" > 1')),
    (s.filter_below_extent, where(Extent(A, (), RUNS), '"y" > 1 OR "since" > 1')),
    (s.filter_below_sequence, where(in_order(A), Y)),
    (s.filter_below_sequence, where(in_order(A), BEFORE)),
    (s.filter_below_sequence, where(in_order(A), "FALSE")),
    (s.filter_below_partitioned_window, where(CountWindow(A, 3), X)),
    (s.filter_below_aggregate, where(grouped(A, "x", call("count")), '"count" > 1')),
    (s.filter_below_aggregate, where(grouped(A, "", call("count")), "FALSE")),
    (s.drop_repeated_conditions, where(A, '"x" > 1 OR "x" > 1')),
    (j.antijoin_condition_to_right, AntiJoin(A, B, condition('"x" > 1'))),
    (j.split_antijoin, AntiJoin(A, B, condition('"x" < "u" OR "x" IS NULL'))),
    (j.avoid_product, Join(Join(A, B, EQ), C, condition('"u" = "p" AND "x" = "q"'))),
    (j.avoid_product, Join(Join(A, B, None), C, condition('"x" = "p"'))),
    (p.merge_projects, pick(pick(A, s='"x" + 1'), z='"s" * "s"')),
    (p.drop_identity_project, pick(A, y='"y"', x='"x"')),
    (p.project_above_window, PartitionedWindow(pick(A, k='"x" % 2'), ("k",), 5)),
    (p.project_below_partitioned_window, pick(PartitionedWindow(Distinct(A), ("x",), 5), z='"y"')),
    (p.project_below_partitioned_window, pick(PartitionedWindow(Distinct(A), ("x",), 5), x='"x" % 2')),
    (p.project_below_partitioned_window, pick(PartitionedWindow(Distinct(A), ("x",), 5), x='"x"', y='"y"', z='"y"')),
    (p.project_below_count_window, pick(CountWindow(Distinct(A), 5), x='"x"', y='"y"', z='"y"')),
    (p.project_below_count_window, pick(CountWindow(A, 5), z='"x"')),
    (p.project_below_partitioned_window, pick(PartitionedWindow(A, ("x",), 5), x='"x"')),
    (p.project_above_window, window(pick(Distinct(A), z='"x"'), 5)),
    (p.narrow_aggregate, grouped(A, "x", call("sum", "y"))),
    (p.drop_unused_calls, pick(grouped(A, "", call("count")), z="1")),
    (p.drop_unused_calls, pick(grouped(A, "x", call("count")), z='"count"')),
    (p.groups_without_aggregates, grouped(A, "", call("count"))),
    (p.groups_without_aggregates, grouped(A, "x", call("count"))),
    (e.drop_empty_side, Union(A, where(ALSO_A, 'CAST(NULL AS INTEGER) > 1 OR "x" = 1'))),
    (e.drop_empty_side, Union(A, AntiJoin(ALSO_A, where(B, 'CAST(NULL AS INTEGER) = "u"'), EQ))),
    (e.drop_empty_side, Union(A, zipped(where(ALSO_A, NEVER), B, "full"))),
    (j.join_condition_to_sides, Join(A, B, EQ)),
    (j.semijoin_condition_to_sides, SemiJoin(A, B, EQ)),
    (j.narrow_join, pick(Join(A, NARROW_B, EQ), z='"y" + 1')),
    (j.narrow_join, pick(Join(NARROW_A, B, EQ), z='"v" + 1')),
    (j.narrow_existence, SemiJoin(A, NARROW_B, EQ)),
    (j.narrow_existence_left, pick(SemiJoin(A, NARROW_B, EQ), z='"y"')),
    (j.narrow_existence_left, pick(AntiJoin(NARROW_A, B, EQ), z='"x"')),
    (s.filter_below_project, where(pick(A, x=LARGE_SUM), LARGE)),
    (p.project_below_time_window, pick(window(A, 5), z='"x"')),
    (w.drop_now_window, window(A, 2)),
    (w.drop_now_window, window(A, 1, 2)),
    (w.unbounded_count_window, CountWindow(A, None, 2)),
    (w.istream_of_unbounded_window, Istream(window(A, 5))),
    (w.istream_of_unbounded_window, Istream(window(A, None, 2))),
    (w.istream_of_unbounded_window, Istream(Distinct(window(A, None)))),
    (w.merge_windows_below_distinct, Distinct(window(window(A, 3, 2), 5))),
    (d.drop_needless_distinct, Distinct(window(Distinct(A), 5))),
    (d.drop_needless_distinct, Distinct(Union(Distinct(A), Distinct(ALSO_A)))),
    (d.drop_needless_distinct, Distinct(pick(grouped(A, "xy", call("count")), x='"x"'))),
    (d.drop_needless_distinct, Distinct(Join(Distinct(A), B, EQ))),
    (d.drop_distinct_below_extremes, grouped(Distinct(A), "x", call("sum", "y"))),
    (d.drop_distinct_below_extremes, grouped(Distinct(A), "x", call("count"))),
    (d.drop_distinct_below_extremes, grouped(Distinct(A), "x", call("max", "y"), call("avg", "y"))),
    (d.drop_distinct_below_extremes, grouped(Distinct(A), "x", call("median", "y"))),
    (z.filter_below_zip, where(zipped(A, B), Y)),
    (z.filter_below_zip, where(zipped(A, B), '"apart_us" > 1')),
    (z.filter_below_zip, where(zipped(A, B), "FALSE")),
    (z.filter_below_zip, where(zipped(A, B, "left"), U)),
    (z.filter_below_zip, where(zipped(A, B, "full"), X)),
    (z.filter_below_zip, where(Zip(REALS, B, (("r", "u"),), 0, 0, "inner", "apart_us"), '"r" > 1')),
    (x.existence_by_extreme, SemiJoin(A, B, EQ)),
    (x.existence_by_extreme, SemiJoin(A, B, None)),
    (x.existence_by_extreme, SemiJoin(A, R, condition('"x" < "u"'))),
    (x.existence_by_extreme, SemiJoin(A, B, condition('"x" < "u" AND "y" < "v"'))),
    (x.existence_by_extreme, SemiJoin(A, B, condition('"x" < "u" AND "x" = "u"'))),
    (x.existence_by_extreme, SemiJoin(A, B, condition('"x" < "u" OR "x" IS NULL'))),
    (x.existence_by_extreme, SemiJoin(A, B, condition('"x" < "u" + "v"'))),
    (x.existence_by_extreme, SemiJoin(A, B, condition('"x" < "u" AND "x" = "u" + "v"'))),
    (x.existence_by_extreme, SemiJoin(A, B, condition('"x" <> "u"'))),
    (x.existence_by_extreme, SemiJoin(A, grouped(B, "", renamed("max", "v")), condition('"x" < "v"'))),
    (
        x.existence_by_extreme,
        SemiJoin(A, where(grouped(B, "u", call("count")), U), condition('"x" < "count" AND "y" = "u"')),
    ),
    (h.filter_below_held, where(Lookup(A, R, None), U)),
    (h.project_below_held, pick(Lookup(A, R, None), z='"u"')),
    (t.filter_below_stamp_join, where(stamped(A, B, "left"), V)),
    (t.filter_below_stamp_join, where(stamped(A, B, "full"), X)),
    (t.filter_below_stamp_join, where(stamped(A, B, latest=True), V)),
    (t.filter_below_stamp_join, where(stamped(A, B), '"y" > "v"')),
    (t.filter_below_stamp_join, where(stamped(A, B), "FALSE")),
    (t.filter_below_stamp_join, where(StampJoin(REALS, B, (("r", "u"),), -1, 0, latest=True), '"u" = 1')),
    (t.narrow_stamp_join, pick(stamped(A, B), z='"x"')),
    (t.narrow_stamp_join, pick(stamped(NARROW_A, B, latest=True), z='"x"')),
]


def _names(cases):
    return [f"{case[0].__name__}-{number}" for number, case in enumerate(cases)]


@pytest.mark.parametrize(("rule", "plan", "expected"), APPLIES, ids=_names(APPLIES))
def test_each_rule_rewrites_its_plan_and_keeps_the_columns(rule, plan, expected):
    assert rule(plan) == expected
    assert [c.type for c in expected.schema] == [c.type for c in plan.schema]
    assert [c.name for c in expected.schema] == [c.name for c in plan.schema]


@pytest.mark.parametrize(("rule", "plan"), HOLDS_BACK, ids=_names(HOLDS_BACK))
def test_no_rule_applies_without_its_precondition(rule, plan):
    assert rule(plan) is None


@pytest.mark.parametrize("function", sorted(name for name, row in AGGREGATE_FUNCTIONS.items() if row.ignores_copies))
def test_no_distinct_is_needed_below_what_ignores_copies(function):
    above = grouped(Distinct(A), "x", call(function, "y"))
    assert d.drop_distinct_below_extremes(above) == grouped(A, "x", call(function, "y"))
    assert above.multiplicity_sensitive(above=True) == (False,)


def test_every_rule_is_tried():
    assert {rule for rule, *_ in APPLIES} == set(RULES)


def test_rules_do_not_mind_any_other_plan():
    plans = [plan for _, plan, _ in APPLIES] + [plan for _, plan in HOLDS_BACK]
    for rule in RULES:
        for plan in plans:
            assert rule(plan) != plan


def test_a_condition_is_taken_apart_into_so_many_lookups_and_no_more() -> None:
    def either(count: int) -> AntiJoin:
        return AntiJoin(A, B, condition(" OR ".join(f'"x" + {number} = "u"' for number in range(count))))

    apart = j.split_antijoin(either(16))
    assert apart is not None
    assert len([each for each in nodes_of(apart) if isinstance(each, AntiJoin)]) == 16
    assert j.split_antijoin(either(17)) is None

"""Random plans, and random streams for them.

Plans are drawn by Hypothesis, which shrinks them; streams come from a drawn seed, because hundreds of tuples would
exhaust Hypothesis' entropy (:mod:`tests.cluster.oracle.proving` makes them small).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.operators import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    Node,
    PartitionedWindow,
    Project,
    Ranked,
    SemiJoin,
    Sequence,
    SessionWindow,
    Source,
    TimeWindow,
    Union,
    UntilNext,
    WindowBounds,
)
from cluster.operators.columns import STAMP, AggregateCall, Column, Joining, Ordering, Output, Scalar, Schema
from cluster.operators.extent import Coalescing, Link
from cluster.operators.sequence import SequenceCall
from cluster.operators.unbounded import unbounded_operator
from cluster.operators.window_shapes import Grid, Session, Span
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.aggregate_rows import AGGREGATE_ROWS, AggregateRow
from tests.cluster.oracle.definition import Streams
from tests.cluster.published_tuples import with_publishers

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT

LAST = 20
"""No stamp is above this."""

COLUMNS: dict[str, Schema] = {
    "alpha": (Column("k", INTEGER), Column("count", INTEGER), Column("s", TEXT)),
    "beta": (Column("before", INTEGER), Column("w", REAL)),
}
VALUES: dict[FieldType, tuple[Any, ...]] = {
    INTEGER: (0, 1, 2, 3, None),
    REAL: (0.0, 0.5, 1.5, -2.0, None),
    TEXT: ("", "x", "y", "xy", None),
    BOOLEAN: (True, False, None),
}
KINDS: tuple[type[Node], ...] = (
    Source,
    TimeWindow,
    CountWindow,
    PartitionedWindow,
    SessionWindow,
    UntilNext,
    Filter,
    Project,
    Union,
    Join,
    SemiJoin,
    AntiJoin,
    Distinct,
    Difference,
    Intersection,
    Aggregate,
    Extent,
    Ranked,
    WindowBounds,
    Granularity,
    Istream,
    Dstream,
    Sequence,
)
MOST_COLUMNS = 5


def random_streams(dice: random.Random, *, sampled: bool = False) -> Streams:
    """Streams in order of arrival: disordered, with duplicates, equal stamps and empty stretches (or without).

    Some have rows that devices published, unless all are to be samples.
    """
    found = {}
    for name, schema in COLUMNS.items():
        count = dice.choice((0, 1, 3, 6, 9, 12))
        tied = dice.random() < 0.5
        gap = dice.choice((0, 0, 8))
        stamps = [dice.randint(0, LAST) for _ in range(count)]
        stamps = [stamp for stamp in stamps if not gap or not 6 <= stamp < 6 + gap]
        if not tied:
            stamps = list(dict.fromkeys(stamps))
        values = {column: VALUES[column.type][: dice.choice((2, 3, 5))] for column in schema}
        rows = [(stamp, tuple(dice.choice(values[column]) for column in schema)) for stamp in stamps]
        if tied and rows:
            rows += [dice.choice(rows) for _ in range(dice.choice((0, 0, 1, 3)))]
        late = dice.choice((0, 2, 6))
        arrival = [(stamp + late * dice.random(), dice.random(), (stamp, row)) for stamp, row in rows]
        found[name] = [stamped for _, _, stamped in sorted(arrival, key=lambda each: each[:2])]
    return found if sampled else with_publishers(dice, found)


@dataclass
class _Names:
    """Fresh column names; the first are words that operators themselves might use."""

    LIKELY = ("known", "enters", "value", "leaves_at", "start", "end", "row", "stamp", "left", "from")

    given: int = field(default=0)

    def fresh(self) -> str:
        self.given += 1
        return self.LIKELY[self.given - 1] if self.given <= len(self.LIKELY) else f"c{self.given}"


def _scalar(sql: str, kind: FieldType) -> Scalar:
    return read_scalar(sql, kind)


def _of_type(schema: Schema, kind: FieldType) -> list[str]:
    return [f'"{column.name}"' for column in schema if column.type is kind]


LITERALS = {INTEGER: "0123", REAL: ("0.5", "1.5", "0.0"), TEXT: ("'x'", "''", "'xy'"), BOOLEAN: ("TRUE", "FALSE")}


@st.composite
def values(draw: Any, schema: Schema, kind: FieldType, depth: int = 2) -> str:
    """SQL text of a type."""
    columns = _of_type(schema, kind)
    leaf = st.sampled_from([*columns, *columns, *LITERALS[kind]])
    if depth == 0 or draw(st.integers(0, 2)) > 0:
        return draw(leaf)

    def inner(other: FieldType = kind) -> str:
        return draw(values(schema, other, depth - 1))

    if kind is INTEGER:
        form = draw(st.sampled_from(("({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} % {1})", "ABS({0} - {1})",
                                     "COALESCE({0}, {1})", "NULLIF({0}, {1})", "LEAST({0}, {1})",
                                     "GREATEST({0}, {1})", "CASE", "LENGTH")))  # fmt: skip
        if form == "LENGTH":
            return f"LENGTH({inner(TEXT)})"
    elif kind is REAL:
        form = draw(st.sampled_from(("({0} + {1})", "({0} - {1})", "({0} * 2)", "/", "COALESCE({0}, {1})", "CASE")))
        if form == "/":
            return f"({inner(INTEGER)} / {inner(INTEGER)})"
    elif kind is TEXT:
        form = draw(
            st.sampled_from(("({0} || {1})", "UPPER({0})", "COALESCE({0}, {1})", "SUBSTRING({0}, 1, 1)", "CASE"))
        )
    else:
        return draw(conditions(schema, depth - 1))
    if form == "CASE":
        return f"CASE WHEN {draw(conditions(schema, 0))} THEN {inner()} ELSE {inner()} END"
    return form.format(inner(), inner())


@st.composite
def conditions(draw: Any, schema: Schema, depth: int = 1) -> str:
    """SQL text of a condition."""
    if depth and draw(st.integers(0, 2)) == 0:
        one, other = draw(conditions(schema, depth - 1)), draw(conditions(schema, depth - 1))
        return draw(st.sampled_from((f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})")))
    kind = draw(st.sampled_from(sorted({column.type for column in schema})))
    column = draw(st.sampled_from(_of_type(schema, kind)))
    other = draw(values(schema, kind, 1))
    forms = [f"{column} {sign} {other}" for sign in ("=", "<>", "<", "<=", ">", ">=")] if kind is not BOOLEAN else []
    forms += [f"{column} IS NULL", f"NOT {column} IS NULL"]
    if kind is BOOLEAN:
        forms += [column, f"NOT {column}"]
    if kind is INTEGER:
        forms += [f"{column} IN (1, 2)", f"{column} BETWEEN 1 AND 2"]
    if kind is TEXT:
        forms += [f"{column} LIKE 'x%'"]
    return draw(st.sampled_from(forms))


@st.composite
def join_conditions(draw: Any, left: Schema, right: Schema) -> Scalar | None:
    """Equalities, inequalities, both, or none."""
    parts = []
    for _ in range(draw(st.integers(0, 2))):
        kinds = sorted({column.type for column in left} & {column.type for column in right} - {BOOLEAN})
        if not kinds:
            break
        kind = draw(st.sampled_from(kinds))
        one, other = draw(st.sampled_from(_of_type(left, kind))), draw(st.sampled_from(_of_type(right, kind)))
        parts.append(f"{one} {draw(st.sampled_from(('=', '=', '=', '<', '>=', '<>')))} {other}")
    if draw(st.integers(0, 3)) == 0:
        parts.append(f"({draw(conditions(left + right, 1))})")
    return _scalar(" AND ".join(parts), BOOLEAN) if parts else None


@st.composite
def plans(draw: Any, depth: int = 4) -> Node:
    """A plan that may be translated from a query; some cannot be run (see UnsupportedPlanError)."""
    names = _Names()
    return draw(_over_groups(names) if draw(st.integers(0, 4)) == 0 else _nodes(depth, names))


def sensible(node: Node) -> bool:
    """Return whether a plan needs bounded state only, and has a granularity nowhere but where time stays as it is."""
    return unbounded_operator(node) is None and _granules_last(node)


def _granules_last(node: Node) -> bool:
    # Above a granularity "the instant before" is the granule before; windows and changes there are of another domain.
    if isinstance(
        node, TimeWindow | CountWindow | PartitionedWindow | SessionWindow | UntilNext | Istream | Dstream
    ) and any(isinstance(each, Granularity) for each in below(node)):
        return False
    return all(_granules_last(each) for each in node.inputs)


def below(node: Node) -> list[Node]:
    """Return a plan's nodes."""
    found = [node]
    for each in node.inputs:
        found += below(each)
    return found


@st.composite
def _nodes(draw: Any, depth: int, names: _Names) -> Node:
    if depth == 0:
        return draw(_leaves(names))
    kind = draw(st.sampled_from(_CHOICES))
    if kind in (Union, Difference, Intersection):
        return draw(_set_operations(kind, depth, names))
    node = draw(_nodes(depth - 1, names))
    schema = node.schema
    if kind in (Join, SemiJoin, AntiJoin):
        right = _renamed(draw(_nodes(draw(st.integers(0, depth - 1)), names)), names)
        if kind is Join and len(schema) + len(right.schema) > MOST_COLUMNS:
            right = _narrowed(right)
            node = node if len(schema) < MOST_COLUMNS else _narrowed(node)
        predicate = draw(join_conditions(node.schema, right.schema))
        return kind(node, right, predicate)
    if kind is UntilNext:
        return draw(_until_next(node if node.is_instantaneous else draw(_chronons(node)), names))
    if kind in (TimeWindow, CountWindow, PartitionedWindow, SessionWindow):
        # A window counts what lasts once per instant: often wanted, but not by every plan that goes on above.
        lasting = draw(st.integers(0, 2)) == 0
        return draw(_windows(kind, node if lasting or node.is_instantaneous else draw(_chronons(node))))
    if kind is Filter:
        return Filter(node, _scalar(draw(conditions(schema)), BOOLEAN))
    if kind is Project:
        return draw(_projections(node, names))
    if kind is Aggregate:
        return draw(_aggregates(node, names))
    if kind is Extent:
        return draw(_extents(node, names))
    if kind is Ranked:
        return draw(_ranks(node, names))
    if kind is WindowBounds:
        # What holds for ever has the bounds of too many windows.
        return draw(_with_bounds(draw(_chronons(node)) if node.longest_validity_us is None else node, names))
    if kind is Sequence:
        return draw(_sequences(node if node.is_instantaneous else draw(_chronons(node)), names))
    if kind is Granularity:
        return Granularity(node, draw(st.sampled_from((2, 3, 4))))
    return kind(node)


_CHOICES = (
    TimeWindow, TimeWindow, TimeWindow, CountWindow, PartitionedWindow, SessionWindow, Filter, Filter, Project, Union,
    WindowBounds, Join, Join, SemiJoin, AntiJoin, Distinct, Difference, Intersection, Aggregate, Aggregate, Granularity,
    Istream, Dstream, Ranked, Ranked, Sequence, Sequence, UntilNext, UntilNext, Extent, Extent,
)  # fmt: skip


@st.composite
def _leaves(draw: Any, names: _Names) -> Node:
    stream = draw(st.sampled_from(sorted(COLUMNS)))
    period = draw(st.sampled_from((None, None, None, None, 2)))
    stamp = (STAMP,) if draw(st.integers(0, 3)) == 0 else ()
    return Source(stream, COLUMNS[stream] + stamp, period)


@st.composite
def _chronons(draw: Any, node: Node) -> Node:
    return draw(st.sampled_from((Istream, Dstream)))(node)


@st.composite
def _windows(draw: Any, kind: Any, node: Node) -> Node:
    size, slide = draw(st.integers(1, 7)), draw(st.sampled_from((1, 1, 1, 2, 3, 5)))
    if kind is TimeWindow:
        if draw(st.integers(0, 4)) == 0:
            return draw(_on_grids(node, size))
        return TimeWindow(node, draw(st.sampled_from((size, size, size, size, None))), slide)
    if kind is SessionWindow:
        columns = [column.name for column in node.schema]
        keys = draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))
        longest = size + draw(st.sampled_from((0, 2, 5, 30)))
        return SessionWindow(node, tuple(keys), Session(size, longest, draw(st.booleans())))
    rows = draw(st.integers(1, 4))
    if kind is CountWindow:
        return CountWindow(node, draw(st.sampled_from((rows, rows, rows, rows, None))), min(slide, 3))
    columns = [column.name for column in node.schema]
    keys = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    return PartitionedWindow(node, tuple(keys), rows, min(slide, 3))


@st.composite
def _until_next(draw: Any, node: Node, names: _Names) -> Node:
    columns = [column.name for column in node.schema]
    keys = tuple(draw(st.lists(st.sampled_from(columns), max_size=2, unique=True)))
    longest = draw(st.sampled_from((None, 1, 3, 7)))
    if longest is None or len(columns) + 2 > MOST_COLUMNS or draw(st.booleans()):
        return UntilNext(node, keys, longest)
    return UntilNext(node, keys, longest, (names.fresh(), names.fresh()), draw(st.booleans()))


@st.composite
def _on_grids(draw: Any, node: Node, size: int) -> Node:
    """Return a window that is moved by an offset, or that is reset."""
    step = draw(st.integers(2, 8))
    grid = Grid(Span("us", step), draw(st.integers(0, step - 1)))
    if draw(st.booleans()):
        return TimeWindow(node, step, draw(st.integers(1, step)), grid)
    return TimeWindow(node, size, step, replace(grid, size=Span("us", size)))


@st.composite
def _with_bounds(draw: Any, node: Node, names: _Names) -> Node:
    step = draw(st.integers(2, 8))
    size = Span("us", draw(st.integers(1, 12)))
    grid = Grid(Span("us", step), draw(st.integers(0, step - 1)), size=size)
    return WindowBounds(node, grid, names.fresh(), names.fresh())


@st.composite
def _over_groups(draw: Any, names: _Names) -> Node:
    """What remembers tuples, over the rows of groups: these end, and so come, in another order than they begin."""
    kind = draw(st.sampled_from((Distinct, Distinct, Difference, Intersection, SemiJoin, Join, PartitionedWindow)))
    left = draw(_counted(draw(_nodes(draw(st.integers(0, 1)), names)), names))
    if kind is Distinct:
        return Distinct(left)
    if kind is PartitionedWindow:
        return PartitionedWindow(Istream(left), (left.schema[0].name,), draw(st.integers(1, 3)))
    right = draw(_counted(draw(_nodes(draw(st.integers(0, 1)), names)), names))
    if kind in (Difference, Intersection):
        once = draw(st.booleans())
        return kind(Distinct(left), Distinct(right)) if once else kind(left, right)
    return kind(left, right, draw(join_conditions(left.schema, right.schema)))


@st.composite
def _counted(draw: Any, node: Node, names: _Names) -> Node:
    """Return how many rows groups have, without saying of which group."""
    if node.is_instantaneous:
        node = TimeWindow(node, draw(st.integers(2, 12)))
    key = draw(st.sampled_from([column.name for column in node.schema]))
    count = AggregateCall(names.fresh(), "count", None, INTEGER)
    return Project(Aggregate(node, (key,), (count,)), (Output(names.fresh(), read_scalar(f'"{count.name}"', INTEGER)),))


@st.composite
def _ranks(draw: Any, node: Node, names: _Names) -> Node:
    columns = [column.name for column in node.schema]
    keys = draw(st.lists(st.sampled_from(columns), max_size=1))
    first = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    function = draw(st.sampled_from(("row_number", "row_number", "rank", "dense_rank")))
    # Without an order of all columns, it is ambiguous which row is the first.
    rest = [each for each in columns if each not in first] if function == "row_number" else []
    order = [Ordering(each, draw(st.booleans()), draw(st.integers(0, 3)) == 0) for each in first]
    above = draw(st.sampled_from((0, 0, 0, 1, 2)))
    most = draw(st.sampled_from((1, 1, 2, 3, None)))
    name = draw(st.sampled_from((None, names.fresh())))
    places = above, None if most is None else above + most
    return Ranked(node, tuple(keys), (*order, *map(Ordering, rest)), function, *places, name)


@st.composite
def _projections(draw: Any, node: Node, names: _Names) -> Node:
    outputs = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from((INTEGER, INTEGER, REAL, TEXT, BOOLEAN)))
        outputs.append(Output(names.fresh(), _scalar(draw(values(node.schema, kind)), kind)))
    return Project(node, tuple(outputs))


@st.composite
def _extents(draw: Any, node: Node, names: _Names) -> Node:
    """Return coalesced rows of samples with stamps, in a window that slides or counts, or whatever there is."""
    if STAMP not in node.schema:
        stream = draw(st.sampled_from(sorted(COLUMNS)))
        node = Source(stream, (*COLUMNS[stream], STAMP))
    if node.is_instantaneous and draw(st.integers(0, 5)):
        node = draw(_windows(draw(st.sampled_from((TimeWindow, TimeWindow, CountWindow, PartitionedWindow))), node))
    columns = [column for column in node.schema if column != STAMP]
    if not columns:
        node, columns = Source("alpha", (*COLUMNS["alpha"], STAMP)), list(COLUMNS["alpha"])
    shown = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    keys = [column.name for column in columns if column not in shown][: draw(st.integers(0, 2))]
    link = None
    if draw(st.booleans()):
        before = [Column(names.fresh(), column.type) for column in columns[:2]]
        pairs = tuple((one.name, column.name) for one, column in zip(before, columns, strict=False))
        link = Link(_scalar(draw(conditions((*columns, *before), 1)), BOOLEAN), pairs)
    ties = tuple(column.name for column in columns)
    bounds = (names.fresh(), names.fresh())
    kept = draw(st.sampled_from(("eager", "lazy")))
    return Extent(
        node, tuple(keys), Coalescing(tuple(each.name for each in shown), STAMP.name, ties, bounds, link, kept)
    )


@st.composite
def _set_operations(draw: Any, kind: Any, depth: int, names: _Names) -> Node:
    sides = [draw(_nodes(draw(st.integers(0, depth - 1)), names)) for _ in range(2)]
    kinds = draw(st.lists(st.sampled_from((INTEGER, INTEGER, TEXT)), min_size=1, max_size=2))
    shared = [names.fresh() for _ in kinds]
    # EXCEPT and INTERSECT without ALL are those of distinct tuples.
    once = kind is not Union and draw(st.booleans())
    aligned: list[Node] = []
    for side in sides:
        sql = [draw(values(side.schema, each, 1)) for each in kinds]
        outputs = [Output(n, _scalar(text, each)) for n, text, each in zip(shared, sql, kinds, strict=True)]
        projected = Project(side, tuple(outputs))
        aligned.append(Distinct(projected) if once else projected)
    return kind(*aligned)


@st.composite
def _aggregates(draw: Any, node: Node, names: _Names) -> Node:
    schema = node.schema
    columns = [column.name for column in schema]
    keys = draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))
    calls = [draw(_calls(schema, names)) for _ in range(draw(st.integers(1, 2)))]
    return Aggregate(node, tuple(keys), tuple(calls))


@st.composite
def _sequences(draw: Any, node: Node, names: _Names) -> Node:
    schema = node.schema
    keys = draw(st.lists(st.sampled_from([column.name for column in schema]), max_size=2, unique=True))
    calls = [draw(_sequence_calls(schema, names)) for _ in range(draw(st.integers(1, 2)))]
    return Sequence(node, tuple(keys), tuple(column.name for column in schema), tuple(calls))


@st.composite
def _sequence_calls(draw: Any, schema: Schema, names: _Names) -> SequenceCall:
    column = draw(st.sampled_from(schema))
    numbers = [each for each in schema if each.type in (INTEGER, REAL)]
    function = draw(st.sampled_from(("lag", "lag", "lead", "first", "last", "count", "sum", "avg", "min", "max")))
    if function in ("sum", "avg"):
        if not numbers:
            return SequenceCall(names.fresh(), "count", None, INTEGER, rows=2)
        column = draw(st.sampled_from(numbers))
    far = draw(st.integers(0, 6))
    if function in ("lag", "lead"):
        within = far if function == "lead" or draw(st.booleans()) else None
        rows = draw(st.integers(1, 2))
        default = column.name if function == "lag" and draw(st.integers(0, 2)) == 0 else None
        return SequenceCall(
            names.fresh(), function, column.name, column.type, rows=rows, default=default, within_us=within
        )
    kind = INTEGER if function == "count" else REAL if function == "avg" else column.type
    rows, range_us, peers = draw(
        st.sampled_from(((far + 1, None, False), (None, far + 1, True), (None, None, True), (None, None, False)))
    )
    known = function in ("first", "last") and draw(st.booleans())
    until = draw(st.integers(0, min(each for each in (rows, range_us, 6) if each is not None)))
    return SequenceCall(
        names.fresh(), function, column.name, kind, rows=rows, range_us=range_us, peers=peers, known=known,
        until_rows=0 if peers else until, until_us=until if peers else 0,
    )  # fmt: skip


RANKED = ("arg_min", "arg_max")
_NO_ROW = AggregateRow("", "", ())


@st.composite
def _calls(draw: Any, schema: Schema, names: _Names) -> AggregateCall:
    function = draw(st.sampled_from(("*", "count", "sum", "sum", "min", "max", *AGGREGATE_ROWS, "quantile",
                                     "percentile_disc", "mode", "string_agg", *RANKED)))  # fmt: skip
    if function == "*":
        return AggregateCall(names.fresh(), "count", None, INTEGER)
    order = STAMP.name if STAMP in schema and draw(st.booleans()) else None
    if order is not None:
        function = draw(st.sampled_from(("first", "last")))
    if function == "string_agg":
        argument = _scalar(draw(values(schema, TEXT, 1)), TEXT)
        joining = Joining(draw(st.sampled_from((", ", "'", ""))), draw(st.booleans()))
        return AggregateCall(names.fresh(), function, argument, TEXT, draw(st.booleans()), joining=joining)
    any_type = function in ("count", "min", "max", "first", "last", "percentile_disc", "mode", *RANKED)
    kind = draw(st.sampled_from((INTEGER, INTEGER, REAL, TEXT) if any_type else (INTEGER, INTEGER, REAL)))
    argument = _scalar(draw(values(schema, kind, 1)), kind)
    result = INTEGER if function == "count" else kind if any_type or function == "sum" else REAL
    takes_distinct = function in ("count", "sum", "min", "max") or AGGREGATE_ROWS.get(function, _NO_ROW).distinct
    distinct = takes_distinct and draw(st.integers(0, 3)) == 0
    share = 0.25 if function in ("quantile", "percentile_disc") else None
    if function in RANKED:
        by = _scalar(draw(values(schema, kind, 1)), kind)
        return AggregateCall(names.fresh(), function, argument, result, by=by)
    return AggregateCall(names.fresh(), function, argument, result, distinct, share, order=order)


def _renamed(node: Node, names: _Names) -> Node:
    """Give every column a name that nothing else has."""
    return Project(
        node,
        tuple(Output(names.fresh(), read_scalar(f'"{column.name}"', column.type)) for column in node.schema),
    )


def _narrowed(node: Node) -> Node:
    schema = node.schema[:2]
    return Project(node, tuple(Output(column.name, read_scalar(f'"{column.name}"', column.type)) for column in schema))

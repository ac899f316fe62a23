"""Rewritten plans mean the same: at every instant, on random plans over random streams."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from cluster.operators import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    Node,
    PartitionedWindow,
    PatternMatch,
    Ranked,
    SemiJoin,
    Sequence,
    StampJoin,
    TimeWindow,
    Union,
    Zip,
)
from cluster.operators.columns import Ordering, Output
from cluster.operators.pattern_match import Definition, PatternElement, Reach, RowPattern, Skip
from cluster.operators.sequence import SequenceCall
from cluster.plan.explain import explain
from cluster.plan.rewrite import RULES, rewrite
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.oracle.definition import evaluate
from tests.cluster.plan.plans import INTEGER, call, condition, pick, source
from tests.cluster.plan.test_rules import APPLIES

INSTANTS = 20
MARGIN = 6
"""Instants at the end that are not compared: each Dstream looks one instant ahead."""

VALUES = st.one_of(st.integers(0, 2), st.none())
ROWS = st.tuples(VALUES, VALUES)
STREAMS = st.fixed_dictionaries(
    {
        name: st.dictionaries(st.integers(0, INSTANTS - 1), ROWS, max_size=7).map(lambda d: sorted(d.items()))
        for name in "ab"
    }
    | {"c": st.lists(st.tuples(st.integers(0, INSTANTS - 1), ROWS), max_size=7)}
)
"""Streams a and b have one tuple an instant, as count windows ask for; c has any number."""

SOURCES = {name: source(name, "x", "y") for name in "abc"}


@st.composite
def scalars(draw, columns):
    column = st.sampled_from(columns).map('"{}"'.format)
    leaf = st.one_of(column, column, st.integers(0, 2).map(str))
    if draw(st.booleans()):
        return draw(leaf)
    return f"{draw(leaf)} {draw(st.sampled_from('+-*%'))} {draw(leaf)}"


@st.composite
def predicates(draw, columns, depth=2):
    kind = draw(st.sampled_from(["compare", "compare", "compare", "null", "and", "and", "or", "not"]))
    if depth == 0 or kind == "compare":
        return f"{draw(scalars(columns))} {draw(st.sampled_from(['=', '=', '<', '<=', '<>']))} {draw(scalars(columns))}"
    if kind == "null":
        return f'"{draw(st.sampled_from(columns))}" IS NULL'
    one = draw(predicates(columns, depth - 1))
    if kind == "not":
        return f"NOT ({one})"
    other = draw(predicates(columns, depth - 1))
    return f"{one} AND {other}" if kind == "and" and " OR " not in one + other else f"({one}) {kind.upper()} ({other})"


def _names(node: Node) -> list[str]:
    return [column.name for column in node.schema]


@st.composite
def projections(draw, node):
    names = draw(st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=3, unique=True))
    outputs = {}
    for name in names:
        plain = st.sampled_from(_names(node)).map('"{}"'.format)
        outputs[name] = draw(st.one_of(plain, plain, scalars(_names(node))))
    return pick(node, **outputs)


@st.composite
def aggregates(draw, node):
    keys = draw(st.lists(st.sampled_from(_names(node)), max_size=2, unique=True))
    calls = draw(
        st.lists(
            st.builds(
                call,
                st.sampled_from(["count", "sum", "min", "max"]),
                st.sampled_from(_names(node)),
                distinct=st.booleans(),
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda each: each.name,
        )
    )
    return Aggregate(node, tuple(keys), tuple(each for each in calls if each.name not in keys) or (call("count"),))


@st.composite
def ranks(draw, node):
    names = _names(node)
    keys = draw(st.lists(st.sampled_from(names), max_size=1))
    order = [Ordering(each, draw(st.booleans())) for each in draw(st.permutations(names))]
    above, many = draw(st.integers(0, 1)), draw(st.sampled_from([1, 2, None]))
    function = draw(st.sampled_from(["row_number", "rank", "dense_rank"]))
    name = draw(st.sampled_from([None, "place"])) if "place" not in names else None
    order = order if function == "row_number" else order[:1]
    return Ranked(node, tuple(keys), tuple(order), function, above, None if many is None else above + many, name)


@st.composite
def counted(draw):
    node: Node = SOURCES[draw(st.sampled_from("ab"))]
    if draw(st.booleans()):
        node = Filter(node, condition(draw(predicates(_names(node)))))
    if draw(st.booleans()):
        node = draw(projections(node))
    rows, slide = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    if draw(st.booleans()):
        return CountWindow(node, draw(st.sampled_from([rows, rows, None])), slide)
    keys = draw(st.lists(st.sampled_from(_names(node)), min_size=1, max_size=2, unique=True))
    return PartitionedWindow(node, tuple(keys), rows, slide)


@st.composite
def zips(draw):
    """A zipper join of streams with one tuple an instant: which of several is the first depends on the columns left."""
    sides: list[Node] = []
    for name in "ab":
        node: Node = SOURCES[name]
        if draw(st.booleans()):
            node = Filter(node, condition(draw(predicates(_names(node)))))
        sides.append(draw(projections(node)) if draw(st.booleans()) else node)
    left, right = sides[0], _apart(sides[1], _names(sides[0]))
    pairs = st.tuples(st.sampled_from(_names(left)), st.sampled_from(_names(right)))
    low, high = sorted(draw(st.tuples(st.integers(-4, 4), st.integers(-4, 4))))
    kind = draw(st.sampled_from(["inner", "inner", "left", "full"]))
    return Zip(left, right, tuple(draw(st.lists(pairs, max_size=2, unique=True))), low, high, kind, "apart_us")


@st.composite
def matched(draw):
    """A pattern of rows: which row is before another one of equal stamp depends on all columns, so none may go."""
    node: Node = SOURCES[draw(st.sampled_from("abc"))]
    if draw(st.booleans()):
        node = Filter(node, condition(draw(predicates(_names(node)))))
    first, second = PatternElement("A"), PatternElement("B", draw(st.integers(0, 1)), draw(st.sampled_from([1, None])))
    definitions = (Definition("B", condition(draw(predicates(["x", "y"]))), condition('"y" >= "last"')),)
    last = Reach("last", "last", "A", read_scalar('"y"', FieldType.INTEGER))
    measures = (Output("z", read_scalar('"last"', FieldType.INTEGER)),)
    skip = Skip(draw(st.sampled_from(["past last row", "to next row"])))
    pattern = RowPattern((first, second), definitions, measures, (), (last,), ("x", "y"), 9, skip)
    return PatternMatch(node, tuple(draw(st.lists(st.just("x"), max_size=1))), pattern)


@st.composite
def stamp_joins(draw):
    """An ASOF join or interval join of such streams."""
    zipped = draw(zips())
    latest = draw(st.booleans())
    low, high = (-abs(zipped.low_us), min(zipped.high_us, 0)) if latest else (zipped.low_us, zipped.high_us)
    kind = "left" if latest and zipped.kind != "inner" else zipped.kind
    also = (
        draw(predicates([*_names(zipped.left), *_names(zipped.right)])) if not latest and draw(st.booleans()) else None
    )
    predicate = None if also is None else condition(also)
    return StampJoin(zipped.left, zipped.right, zipped.keys, min(low, high), high, kind, predicate, latest)


@st.composite
def in_order(draw):
    node: Node = SOURCES[draw(st.sampled_from("ab"))]
    if draw(st.booleans()):
        node = Filter(node, condition(draw(predicates(_names(node)))))
    names = _names(node)
    keys = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    column = draw(st.sampled_from(names))
    calls = {
        "lag": SequenceCall("made", "lag", column, INTEGER, rows=draw(st.integers(1, 2))),
        "lead": SequenceCall("made", "lead", column, INTEGER, rows=1, within_us=draw(st.integers(0, 4))),
        "sum": SequenceCall("made", "sum", column, INTEGER, peers=True),
        "earlier": SequenceCall("made", "max", column, INTEGER, rows=2, until_rows=draw(st.integers(0, 2))),
    }
    made = Sequence(node, tuple(keys), tuple(names), (calls[draw(st.sampled_from(sorted(calls)))],))
    return Filter(made, condition(draw(predicates(_names(made))))) if draw(st.booleans()) else made


def _apart(node: Node, taken: list[str]) -> Node:
    fresh = {f"{name}_{len(taken)}": f'"{name}"' for name in _names(node)}
    return pick(node, **fresh)


def _shaped(node: Node, like: Node) -> Node:
    names = _names(node)
    return pick(node, **{name: f'"{names[place % len(names)]}"' for place, name in enumerate(_names(like))})


@st.composite
def plans(draw, depth=None):
    depth = draw(st.integers(1, 5)) if depth is None else depth
    if depth <= 0:
        return draw(
            st.one_of(st.sampled_from(list(SOURCES.values())), counted(), zips(), stamp_joins(), matched(), in_order())
        )
    kind = draw(
        st.sampled_from(
            ["filter"] * 4 + ["project", "window"] * 3 + ["join", "any", "none", "distinct", "aggregate"] * 2
            + ["union", "ranked", "difference", "intersection", "granularity", "istream", "dstream", "leaf"]
        )
    )  # fmt: skip
    if kind == "leaf":
        return draw(plans(0))
    node = draw(plans(depth - 1))
    match kind:
        case "filter":
            return Filter(node, condition(draw(predicates(_names(node)))))
        case "project":
            return draw(projections(node))
        case "window":
            size = draw(st.sampled_from([1, 2, 3, 5, None]))
            return TimeWindow(node, size, draw(st.sampled_from([1, 1, 2, 3])))
        case "distinct":
            return Distinct(node)
        case "aggregate":
            return draw(aggregates(node))
        case "ranked":
            return draw(ranks(node))
        case "granularity":
            return Granularity(node, draw(st.integers(1, 3)))
        case "istream":
            return Istream(node)
        case "dstream":
            return Dstream(node)
    other = draw(plans(draw(st.integers(0, max(depth - 3, 0)))))
    if kind in ("union", "difference", "intersection"):
        combine = {"union": Union, "difference": Difference, "intersection": Intersection}[kind]
        return combine(node, _shaped(other, node))
    other = _apart(other, _names(node))
    both = _names(node) + _names(other)
    predicate = draw(st.one_of(st.none(), predicates(both).map(condition), predicates(both, 3).map(condition)))
    return {"join": Join, "any": SemiJoin, "none": AntiJoin}[kind](node, other, predicate)


def _same(plan: Node, other: Node, runs) -> None:
    before, after = (evaluate(each, runs, INSTANTS) for each in (plan, other))
    assert not before.ambiguous | after.ambiguous
    for one, two in zip(before.snapshots, after.snapshots, strict=True):
        assert two[: INSTANTS - MARGIN] == one[: INSTANTS - MARGIN]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans(), STREAMS)
def test_rewritten_plan_means_the_same(plan, streams):
    rewritten = rewrite(plan)
    note(f"{explain(plan)}\n{rewritten.applied}\n{explain(rewritten.node)}")
    assert rewritten.node.schema == plan.schema
    _same(plan, rewritten.node, [streams])


ABC = st.fixed_dictionaries(
    {
        name: st.dictionaries(st.integers(0, INSTANTS - 1), ROWS, max_size=9).map(lambda d: sorted(d.items()))
        for name in ("a", "b", "c", "also_a")
    }
)


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ABC, min_size=20, max_size=20))
def test_every_rule_alone_means_the_same(runs):
    for _, plan, expected in APPLIES:
        if not plan.relations:  # tests/cluster/oracle says what those with relations mean
            _same(plan, expected, runs)


def test_random_plans_exercise_the_rules():
    fired: Counter[str] = Counter()

    @settings(max_examples=500, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(plans())
    def collect(plan):
        fired.update(set(rewrite(plan).applied))

    collect()
    assert len(fired) >= len(RULES) * 2 // 3

"""Queries that share extents over windows by count answer what they mean, whichever begin and end in between.

The window of each is the last of the tuples that it sees, in the order of their stamps, and of arrival where these are
equal.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from cluster.fjord.measured_plans import logical_kind
from cluster.fjord.upper_estimates import kept_by
from cluster.language.translation import translate
from cluster.operators import CountWindow, Extent, Filter, Node, PartitionedWindow, Source
from cluster.operators.columns import STAMP, Output, Scalar
from cluster.operators.extent import Coalescing
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.walks import nodes_of, rebuilt
from cluster.physical.lowering import begins_with_others, lower, lower_alone, with_query, without_query
from cluster.physical.nodes import Fragment
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.extents import common_part, with_counted_extents, with_keeping
from cluster.plan.rewrite import rewrite
from cluster.plan.scalar_texts import read_scalar
from cluster.plan.stored_plans import read, written
from protocols.wire.streams import FieldType
from tests.cluster.local.changing_queries import LAST, Query, run
from tests.cluster.local.extent_plans import STAMPED, extent, with_top
from tests.cluster.local.host_cases import CATALOG
from tests.cluster.local.migrating import Stamped, random_batches, random_streams
from tests.cluster.oracle.definition import rows_as_they_are, snapshots_of_plan
from tests.cluster.plan.plans import condition
from tests.examples import seeds

Window = CountWindow | PartitionedWindow


def counted(dice: random.Random, size: tuple[int, int], *, keyed: bool, apart: bool) -> Node:
    """Return an extent over a window by count with some columns, link, and conditions on samples and on keys."""
    found = extent(dice, (1, 1), "eager", keyed=keyed)
    below: Node = Filter(STAMPED, condition("x < 2")) if dice.random() < 0.3 else STAMPED
    window: Node = PartitionedWindow(below, ("x",), *size) if apart else CountWindow(below, *size)
    if keyed and dice.random() < 0.3:
        window = Filter(window, condition(dice.choice(("x > 0", "x = 1"))))
    names = {each.name for each in found.input.schema}
    return replace(found, input=project(window, passed_on(each for each in window.schema if each.name in names)))


def random_queries(dice: random.Random, batches: int) -> list[Query]:
    """Return queries of which many have the same window, and few anything else in common."""
    size, keyed = (dice.choice((1, 2, 3, 5, 8)), dice.choice((1, 1, 1, 2, 3))), dice.random() < 0.7
    apart = keyed and dice.random() < 0.5
    plans = [counted(dice, size, keyed=keyed, apart=apart) for _ in range(2)]
    found = []
    for number in range(dice.randint(2, 7)):
        plan = with_counted_extents(with_top(dice, dice.choice(plans)))
        begins = dice.choice((0, dice.randrange(batches), dice.randrange(batches)))
        ends = dice.choice((None, None, dice.randrange(begins + 1, batches + 1)))
        found.append(Query(f"q{number}", plan, begins, ends, dice.random() < 0.2))
    found[0].begins, found[0].ends = 0, dice.choice((None, dice.randrange(1, batches + 1)))
    return found


def there(window: Window, seen: list[Stamped], scale: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return, for each instant, the tuples that are in a window by count over a stream that came in this order."""
    names = [each.name for each in window.schema]
    source = next(each for each in nodes_of(window) if isinstance(each, Source))
    ordered = [(at, (*values, at * scale)) for at, values in sorted(seen, key=lambda each: each[0])]
    if window.input != source:  # the only condition on samples that there is
        ordered = [(at, row) for at, row in ordered if row[0] < 2]
    keys = [names.index(key) for key in window.keys] if isinstance(window, PartitionedWindow) else []
    of_key: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for at, row in ordered:
        of_key.setdefault(tuple(row[key] for key in keys), []).append((at, row))
    found = []
    assert window.rows is not None
    for rows in of_key.values():
        for instant in range(LAST):
            count = sum(at <= instant for at, _ in rows)
            last = count - count % window.slide_rows
            found += [(instant, row) for _, row in rows[max(last - window.rows, 0) : last]]
    return found


def meant(plan: Node, seen: list[Stamped], scale: int) -> list[Counter[object]]:
    """Return the snapshots of a plan, given the tuples that it sees in the order in which they came."""
    window = next(each for each in nodes_of(plan) if isinstance(each, Window))
    held = rows_as_they_are("held", window.schema)
    above = rebuilt(plan, lambda each: held if each == window else each)
    return list(snapshots_of_plan(above, {"held": there(window, seen, scale)}, LAST))


@seeds(100)
def test_queries_answer_what_they_would_alone(seed: int) -> None:
    dice = random.Random(f"counted extents/{seed}")
    batches = random_batches(dice, {"a": random_streams(dice)["a"]})
    queries = random_queries(dice, len(batches) - 1)
    scale = dice.choice((1, 300_000))  # in long ones, samples that stay are cut after a second
    run(dice, queries, batches, scale)
    for each in queries:
        if each.ends is None:
            assert each.snapshots(scale) == meant(each.plan, each.seen(batches), scale), each


LANES = "traffic WINDOW(ROWS 9) COALESCE(lane BY sensor) AS s"
SAME = (
    f"SELECT sensor, VALID(s) AS held FROM {LANES}",
    f"SELECT lane FROM {LANES} WHERE lane > 1",
    f"SELECT lane FROM {LANES} WHERE sensor = 'a' AND DURATION(VALID(s)) > INTERVAL '1' SECOND",
    f"SELECT lane FROM {LANES} WHERE sensor <> 'a' OR sensor IS NULL",
    f"SELECT lane FROM {LANES} WHERE UPPER(sensor) || 'x' > 'B'",
)


def fragments(*texts: str) -> tuple[Fragment, ...]:
    """Return the fragments of queries that begin one after the other."""
    plans = [rewrite(translate(text, CATALOG).node).node for text in texts]
    return lower(Plan(9, tuple(PlannedQuery(f"q{n}", n + 1, each) for n, each in enumerate(plans)))).fragments


def test_queries_share_an_extent_whatever_they_show() -> None:
    (fragment,) = fragments(*SAME)
    assert fragment.identity.startswith("extent-")
    assert len(fragment.subscribers) == len(SAME)
    assert fragment.groups == {0}  # samples are kept once
    (other, *_) = fragments(SAME[0])
    assert other.nodes == fragment.nodes


def test_conditions_on_samples_are_other_groups_of_the_same_extent() -> None:
    some = LANES.replace("traffic", "(SELECT * FROM traffic WHERE speed > 2)")
    (fragment,) = fragments(SAME[0], f"SELECT lane FROM {some}", f"SELECT sensor FROM {some} WHERE sensor > 'a'")
    assert len(fragment.groups) == 2


def test_computed_keys_are_shared_whatever_the_condition_on_them() -> None:
    fast = "(SELECT lane, speed > 2 AS fast, sensor FROM traffic) WINDOW(ROWS 9) COALESCE(lane BY fast, sensor) AS s"
    conditions = ("", " WHERE fast", " WHERE sensor = 'a' AND NOT fast")
    texts = [f"SELECT lane FROM {fast}{condition}" for condition in conditions]
    (fragment,) = fragments(*texts)
    assert fragment.groups == {0}


@pytest.mark.parametrize(
    "other",
    [
        "traffic WINDOW(ROWS 8) COALESCE(lane BY sensor) AS s",
        "traffic WINDOW(ROWS 9 SLIDE 3) COALESCE(lane BY sensor) AS s",
        "traffic WINDOW(PARTITION BY sensor ROWS 9) COALESCE(lane BY sensor) AS s",
        "traffic WINDOW(ROWS 9) COALESCE(lane BY segment) AS s",
        "traffic WINDOW(ROWS 9) COALESCE(open, lane BY sensor) AS s",
        "traffic WINDOW(ROWS 9) COALESCE(lane TOLERANCE 1 BY sensor) AS s",
        "traffic WINDOW(RANGE 9 US) COALESCE(lane BY sensor) AS s",
        "traffic WINDOW(ROWS 9) COALESCE(lane BY sensor) KEEP 5 TUPLES AS s",
    ],
)
def test_other_windows_and_other_ways_to_coalesce_are_other_extents(other: str) -> None:
    assert len(fragments(SAME[0], f"SELECT lane FROM {other}")) == 2


def test_conditions_on_keys_are_lifted_and_others_are_not() -> None:
    how = Coalescing(("y",), STAMP.name, ("x", "y"), ("since", "until"))
    one, same = Output("one", read_scalar("1", FieldType.INTEGER)), passed_on(STAMPED.schema)

    def lifted(sql: str) -> Scalar | None:
        window = Filter(CountWindow(STAMPED, 5), condition(sql))
        found = common_part(Extent(project(window, (one, *same)), ("one", "x"), how))
        return None if found is None else found[1]

    assert lifted("x = 1 OR x > 3") == condition("x = 1 OR x > 3")  # and not x = one
    assert lifted("x = 1 AND y > 0") is None


def test_windows_that_slide_share_samples_where_queries_began_together() -> None:
    slides = "traffic WINDOW(ROWS 9 SLIDE 3) COALESCE(lane BY sensor) AS s"
    texts = (f"SELECT lane FROM {slides}", f"SELECT sensor FROM {slides} WHERE sensor = 'a'")
    (fragment,) = fragments(*texts)
    assert len(fragment.groups) == 2
    plans = [rewrite(translate(text, CATALOG).node).node for text in texts]
    (together,) = lower(Plan(9, tuple(PlannedQuery(f"q{n}", 1, each) for n, each in enumerate(plans)))).fragments
    assert len(together.groups) == 1
    assert all(map(begins_with_others, plans))


def test_lazy_extents_and_what_aggregates_them_keep_their_samples_for_themselves() -> None:
    plan = rewrite(translate(SAME[0], CATALOG).node).node
    lazy = with_keeping(plan, "lazy")
    alone = [
        lower_alone(each).identity
        for each in (
            lazy,
            rewrite(translate(f"SELECT sensor, COUNT(*) AS n FROM {LANES} GROUP BY sensor", CATALOG).node).node,
        )
    ]
    assert all(each.startswith("fold-") for each in alone)


def test_queries_of_earlier_versions_go_on_with_the_state_that_they_have() -> None:
    """Their plans have no mark: so names of state, and what it is, are those of the version that stored them."""
    text = "SELECT sensor, VALID(s) AS m FROM traffic WINDOW(ROWS 100) COALESCE(lane BY sensor) AS s"
    plan = rewrite(translate(text, CATALOG).node).node
    old = read(written(plan).replace(b',"counted":true', b""))
    assert old != plan
    before = lower(Plan(1, (PlannedQuery("q", 1, old), PlannedQuery("r", 1, old))))
    (fragment,) = before.fragments
    assert fragment.identity == "fold-96aea718a44afa81@0"
    assert [each.id.removeprefix(fragment.identity) for each in fragment.behind] == [
        "/0 Reorder",
        "/1 CountWindow",
        "/2 Project",
        "/3 Extent",
        "/4 Project",
    ]
    left = without_query(before, PlannedQuery("q", 1, old), {})
    assert left.by_identity[fragment.identity].nodes == fragment.nodes
    both = with_query(left, PlannedQuery("s", 2, plan))
    assert [each.identity for each in both.fragments] == [fragment.identity, lower_alone(plan).identity]
    assert rewrite(old).node == plan  # what is planned anew is shared


def test_what_a_second_query_adds_to_the_state_is_nothing() -> None:
    def size(*texts: str) -> float:
        plans = [rewrite(translate(text, CATALOG).node).node for text in texts]
        planned = tuple(PlannedQuery(f"q{n}", n + 1, each) for n, each in enumerate(plans))
        return sum(each.rows for each in kept_by(lower(Plan(9, planned)), {"traffic": 10.0}))

    assert size(SAME[0]) == 18  # the samples of the window, and those of the extent
    assert size(*SAME) == size(SAME[0])
    each = LANES.replace("ROWS", "PARTITION BY sensor ROWS")
    assert size(f"SELECT lane FROM {each}") == size(f"SELECT lane FROM {each}", f"SELECT sensor FROM {each}")


def test_what_runs_is_measured_as_the_window_and_the_extent_of_the_plan() -> None:
    for text in (SAME[0], SAME[0].replace("ROWS", "PARTITION BY sensor ROWS")):
        kinds = [logical_kind(each.operation) for each in fragments(text)[0].behind]
        window = "PartitionedWindow" if "PARTITION" in text else "CountWindow"
        assert kinds == ["Source", window, "Extent"]

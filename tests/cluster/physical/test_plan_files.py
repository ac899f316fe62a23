"""Plan files: every epoch is read as it was lowered, from any process, however queries came and went.

plans     1    2    3    4    5    6      lowered, each of what its queries mean
files     all  +    -    +    all  +      the whole plan now and then, else what has changed
upgraded  old  old  old  +    all  +      formats up to 4 have what queries mean
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.errors import PlanError
from cluster.operators import Node, Relation, Union
from cluster.operators.columns import Column
from cluster.physical import plan_files, plan_json
from cluster.physical.lowering import lower
from cluster.physical.nodes import PhysicalPlan
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import FORMAT, Plan, PlanChange, PlannedQuery, encode_plan
from protocols.wire.streams import FieldType
from tests.cluster.physical import test_text
from tests.cluster.physical.test_text import GOLDEN, LINE

WHOLE_EVERY = 5
"""In these tests, so that short histories have both kinds of files."""
TEXTS = [
    *(text.strip() for path in GOLDEN for text in path.read_text().partition(LINE)[0].split(";") if text.strip()),
    *(f"SELECT sensor, speed FROM traffic WHERE speed < {number}" for number in range(3)),
    *(
        f"SELECT sensor, {call} AS v FROM traffic {since}WINDOW(RANGE {size} MINUTES SLIDE 1 MINUTE) GROUP BY sensor"
        for call in ("MAX(speed)", "SUM(speed + 1)", "COUNT(DISTINCT lane)", "COMPLETENESS()")
        for size in (5, 6)
        for since in ("", "SINCE 1 HOUR AGO ")
    ),
]
EACH = st.integers(0, len(TEXTS) - 1)
planned = cache(test_text.planned)


def history(steps: list[int | None], dice: random.Random) -> list[Plan]:
    """Yield plans each of which has one query more or less."""
    plans = [Plan(1)]
    for step in steps:
        before, epoch = plans[-1], plans[-1].epoch + 1
        queries = before.queries
        if step is not None:
            queries = (*queries, planned(TEXTS[step], epoch))
        elif queries:
            gone = dice.randrange(len(queries))
            queries = queries[:gone] + queries[gone + 1 :]
        plans.append(Plan(epoch, queries, {"traffic": 3 * epoch}))
    return plans


def change_between(before: Plan, after: Plan) -> PlanChange:
    """Return the change from one plan to another, as that version wrote it."""
    old, new = ({query.identity for query in plan.queries} for plan in (before, after))
    return PlanChange(
        after.epoch,
        tuple(query for query in after.queries if query.identity not in old),
        tuple(query.identity for query in before.queries if query.identity not in new),
        after.positions,
    )


def write_as_before(files: PlanFiles, plans: list[Plan]) -> None:
    """Write files as the version with logical plans did."""
    files.folder.mkdir(exist_ok=True)
    for before, plan in zip([None, *plans], plans, strict=False):
        whole = before is None or plan.epoch % WHOLE_EVERY == 0
        content = plan if whole or before is None else change_between(before, plan)
        files.path(plan.epoch).write_bytes(msgspec.json.format(encode_plan(content)))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.one_of(EACH, EACH, st.none()), min_size=1, max_size=14),
    st.integers(0, 8),
    st.randoms(use_true_random=False),
)
def test_every_epoch_is_read_as_it_was_lowered(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | None], old: int, dice: random.Random
) -> None:
    files, plans = PlanFiles(tmp_path_factory.mktemp("plans")), history(steps, dice)
    write_as_before(files, plans[:old])
    follower, lowered = PlanFiles(files.folder), {plan.epoch: lower(plan) for plan in plans}
    with patch.object(plan_files, "WHOLE_EVERY", WHOLE_EVERY):
        running = plan_files.NOTHING
        for plan in plans:
            running = lower(plan, running)
            if plan.epoch > old:
                files.write(running)
            assert follower.read(plan.epoch) == lowered[plan.epoch]
            if not dice.randrange(4):
                files = PlanFiles(files.folder)  # the cluster was restarted
    for epoch in dice.sample(list(lowered), len(lowered)):
        assert follower.read(epoch) == lowered[epoch]
        assert PlanFiles(files.folder).read(epoch) == lowered[epoch]


def test_workers_lower_nothing(tmp_path: Path) -> None:
    plans = history([0, 1, None, 5, 6, 7, None], random.Random(7))
    files = PlanFiles(tmp_path)
    for plan in plans:
        files.write(lower(plan))
    with patch.object(plan_files, "lower", side_effect=AssertionError):
        assert [len(PlanFiles(tmp_path).read(plan.epoch).subscribers) for plan in plans] == [0, 1, 2, 1, 2, 3, 4, 3]


def test_unchanged_fragments_are_the_same_objects(tmp_path: Path) -> None:
    plans = history([0, 5, 9, 11, 0], random.Random(7))
    files = PlanFiles(tmp_path)
    with patch.object(plan_files, "WHOLE_EVERY", 3):
        for plan in plans:
            files.write(lower(plan))
    reader = PlanFiles(tmp_path)
    before, after = reader.read(5), reader.read(6)
    assert "PhysicalPlan" in files.path(6).read_text()
    assert sum(each is before.by_identity.get(each.identity) for each in after.fragments) == len(before.fragments) - 1


GROWING = [
    "SELECT sensor, speed FROM traffic WHERE speed < {}",
    "SELECT sensor, MAX(speed) AS v FROM traffic WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE) WHERE lane={} GROUP BY sensor",
    "SELECT sensor, SUM(speed + {}) AS v FROM traffic WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE) GROUP BY sensor",
    "SELECT a.speed FROM traffic a WINDOW(RANGE 1 MINUTE), traffic b WHERE a.lane = b.lane AND b.speed > {}",
    "SELECT sensor, speed * {} AS v FROM traffic",
]


@pytest.mark.parametrize("text", GROWING)
def test_the_thousandth_query_costs_no_more_than_the_tenth(tmp_path: Path, text: str) -> None:
    files, running = PlanFiles(tmp_path), plan_files.NOTHING
    queries: tuple[PlannedQuery, ...] = ()
    for epoch in range(1, 140):
        queries = (*queries, planned(text.format(epoch + 100), epoch))
        running = lower(Plan(epoch, queries, {"traffic": 100 + epoch}), running)
        files.write(running)
    running = lower(Plan(140, queries[1:], {"traffic": 240}), running)
    files.write(running)
    sizes = {epoch: files.path(epoch).stat().st_size for epoch in range(2, 141) if epoch % plan_files.WHOLE_EVERY}
    assert max(sizes.values()) < 1.1 * sizes[10]
    assert PlanFiles(tmp_path).read(140) == lower(Plan(140, queries[1:], {"traffic": 240}))


def test_a_table_of_shared_parts_is_written_once(tmp_path: Path) -> None:
    table: Node = Relation("places", "places@1", (Column("segment", FieldType.INTEGER),))
    for _ in range(40):
        table = Union(table, table)
    plan = lower(Plan(1, (planned("SELECT t.speed FROM traffic t JOIN places p ON p.sensor = t.sensor", 1),)))
    (fragment,) = plan.fragments
    doubled = tuple(
        replace(each, operation=replace(each.operation, table=replace(each.operation.table, table=table)))
        if hasattr(each.operation, "table")
        else each
        for each in fragment.nodes
    )
    assert doubled != fragment.nodes
    plan = replace(plan, fragments=(replace(fragment, nodes=doubled),))
    files = PlanFiles(tmp_path)
    files.write(plan)
    assert files.path(1).stat().st_size < 50_000
    assert PlanFiles(tmp_path).read(1) == plan


def test_a_file_of_another_format_is_refused_with_a_way_out(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    files.write(PhysicalPlan(1))
    newest = plan_json.FORMAT
    old = files.path(1).read_text().replace(f'"format": {newest}', f'"format": {newest + 1}')
    files.path(1).write_text(old)
    with pytest.raises(PlanError, match=f"format {newest + 1}") as caught:
        PlanFiles(tmp_path).read(1)
    assert "new data folder" in str(caught.value.hint)
    files.path(1).write_text('{"epoch": 1, "queries": [], "positions": {}, "format": 1}')
    with pytest.raises(PlanError, match="has format 1, this program reads formats 2, 3, 4 and 5"):
        PlanFiles(tmp_path).read(1)


SUMS = "SELECT sensor, SUM(speed) AS v FROM traffic WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE) GROUP BY sensor"
DAMAGE = [
    ('"type": "Panes"', '"type": "Teleport"', "Teleport"),
    ('"host": "stateful"', '"host": "nowhere"', "nowhere"),
    ('/0 PaneAggregate"', '/0 Teleport"', "PaneAggregate keeps state under the name 'panes-.*/0 Teleport'"),
    ("/0 PaneAggregate", "PaneAggregate", "keeps state under the name"),
    ('"id": "panes-13fc8146e861eb8e/0/7 ', '"id": "panes-13fc8146e861eb8e/0/9 ', "does not come after its input"),
    ("/0/6 Panes", "/0/7 PartialAggregate", "kind Panes keeps state under the name"),
    ('"type": "Sink"', '"type": "Filter"', "predicate"),
    ('"subscribers"', '"unknown"', "subscribers"),
    ('"conditions"', '"nothing"', "conditions"),
    ('"epoch": 1', '"epoch": 3', "is that of epoch 3"),
]


@pytest.mark.parametrize(("found", "wrong", "named"), DAMAGE)
def test_unknown_content_is_named(tmp_path: Path, found: str, wrong: str, named: str) -> None:
    files = PlanFiles(tmp_path)
    files.write(lower(Plan(1, (planned(SUMS, 1),))))
    text = files.path(1).read_text()
    assert found in text
    files.path(1).write_text(text.replace(found, wrong))
    with pytest.raises(PlanError, match=named) as caught:
        PlanFiles(tmp_path).read(1)
    assert "plan of epoch 1" in caught.value.message
    assert str(files.path(1)) in caught.value.message


@pytest.mark.parametrize(
    ("found", "wrong", "named"),
    [
        ('"change": [', '"change": [{"identity": "fold-1@0", "subscribers": {"at": 0, "out": 0}},', "no 'fold-1@0'"),
        ('"go": []', '"go": ["fold-1@0"]', "no 'fold-1@0'"),
        ('"at": 1', '"at": 4', "0 values at 4 are not among 1"),
        ('"at": 1,', '"at": -1,', "0 values at -1"),
        ('"conditions": [', '"conditions": [], "other": [', "lacks a condition"),
    ],
)
def test_a_change_of_another_plan_is_refused(tmp_path: Path, found: str, wrong: str, named: str) -> None:
    files = PlanFiles(tmp_path)
    queries = (planned(SUMS, 1), planned(SUMS, 2))
    for epoch in (1, 2):
        files.write(lower(Plan(epoch, queries[:epoch])))
    text = files.path(2).read_text()
    assert found in text
    files.path(2).write_text(text.replace(found, wrong))
    with pytest.raises(PlanError, match=named) as caught:
        PlanFiles(tmp_path).read(2)
    assert str(files.path(2)) in caught.value.message


def test_the_file_before_an_old_change_is_an_old_one(tmp_path: Path) -> None:
    files, queries = PlanFiles(tmp_path), (planned(SUMS, 1),)
    files.write(lower(Plan(1, queries)))
    files.path(2).write_bytes(encode_plan(PlanChange(2, (), ("q1@1",))))
    with pytest.raises(PlanError, match=r"plan of epoch 2 at .* change of another kind of plan"):
        PlanFiles(tmp_path).read(2)


def test_all_epochs_that_are_there_are_checked(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    for plan in history([0, 1, 2, 3], random.Random(1)):
        files.write(lower(plan))
    files.path(2).write_text(files.path(2).read_text().replace('"host": "state', '"host": "nowhere'))
    files.check(6, 8)
    with pytest.raises(PlanError, match=r"plan of epoch 2 .*nowhere"):
        PlanFiles(tmp_path).check(1, 5)


def test_formats_have_different_numbers() -> None:
    assert plan_json.FORMAT not in plan_files.logical.FORMATS_READ
    assert FORMAT < plan_json.FORMAT

"""Plans as JSON: trees if they are small as trees, else lists of their distinct nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.errors import PlanError
from cluster.operators import Node, Union
from cluster.operators.columns import identity_of
from cluster.operators.walks import written_out
from cluster.physical.lowering import lower
from cluster.physical.plan_files import PlanFiles
from cluster.plan import stored_plans
from cluster.plan.epoch import FORMAT, Plan, PlanChange, PlannedQuery, decode_plan, encode_plan
from cluster.plan.stored_plans import LARGEST_TREE, Numbered, as_nodes, encoded, read, stored, written
from tests.cluster.plan.plans import A, where, window


def shared(times: int = 60) -> Node:
    node: Node = window(A, 10)
    for number in range(times):
        node = Union(where(node, f'"x" > {number}'), node)
    return node


def test_a_small_plan_is_a_tree() -> None:
    node = shared(3)
    assert written_out(node) <= LARGEST_TREE
    assert stored(node) is node
    assert read(written(node)) == node
    assert encoded(node) == identity_of(node)


def test_a_plan_of_shared_parts_is_a_list_of_them() -> None:
    node = shared()
    listed = stored(node)
    assert isinstance(listed, tuple)
    assert len(listed) == 122
    again = read(written(node))
    assert again == node
    assert stored(again) == listed


def test_names_are_made_of_what_a_plan_is_not_of_which_objects_it_consists() -> None:
    assert encoded(shared()) == encoded(shared())
    assert encoded(shared()) != encoded(shared(59))


@pytest.mark.parametrize("listed", [(), (Numbered(Union(A, A), (0, 0)),), (Numbered(A, ()), Numbered(A, (-1,)))])
def test_a_list_that_is_no_plan_is_refused(listed: tuple[Numbered, ...]) -> None:
    with pytest.raises(ValueError, match="plan"):
        read(msgspec.json.encode(listed, enc_hook=as_nodes))


def test_what_is_stored_of_it_is_small() -> None:
    plan = Plan(2, (PlannedQuery("q", 2, shared()),))
    written = encode_plan(plan)
    assert len(written) < 100_000
    assert decode_plan(written) == plan
    assert f'"format":{FORMAT}' in written.decode()


def test_what_runs_of_it_is_small(tmp_path: Path) -> None:
    files, plan = PlanFiles(tmp_path), lower(Plan(2, (PlannedQuery("q", 2, shared()),)))
    files.write(plan)
    assert files.path(2).stat().st_size < 200_000
    assert PlanFiles(tmp_path).read(2) == plan


def test_changes_are_read_as_they_were_written() -> None:
    change = PlanChange(3, (PlannedQuery("q", 3, shared()),), ("p@1",), {"a": 4})
    assert decode_plan(encode_plan(change)) == change


def test_a_damaged_list_is_no_plan(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    text = msgspec.json.decode(encode_plan(Plan(1, (PlannedQuery("q", 1, shared()),))))
    text["queries"][0]["node"] = text["queries"][0]["node"][1:]
    files.path(1).write_bytes(msgspec.json.encode(text))
    with pytest.raises(PlanError, match="is not a plan"):
        PlanFiles(tmp_path).read(1)


CONDITION = (
    """CASE WHEN "x" > -1.50 THEN 'it''s' ELSE UPPER("x y") END LIKE 'a!%%' ESCAPE '!' AND NOT "x" IN (1, NULL)"""
)


def filtered() -> Node:
    return where(where(A, CONDITION), '("x" + 1) * 2 BETWEEN "x" AND ROUND(2.5, 1) OR CAST("x" AS TEXT) IS NULL')


def as_before(node: Node, form: int) -> dict[str, Any]:
    """A plan as the versions before wrote it, with expressions that are texts."""
    written = identity_of(node if form == 2 else stored(node))
    query = {"name": "q", "since_epoch": 1, "node": msgspec.json.decode(written)}
    return {"type": "Plan", "epoch": 1, "queries": [query], "positions": {}, "format": form}


@pytest.mark.parametrize(("form", "node"), [(2, filtered()), (2, shared(3)), (3, shared())])
def test_a_plan_with_expressions_that_are_texts_is_read(tmp_path: Path, form: int, node: Node) -> None:
    files = PlanFiles(tmp_path)
    written = msgspec.json.encode(as_before(node, form))
    files.path(1).write_bytes(written)
    found = decode_plan(written)
    assert isinstance(found, Plan)
    assert found == Plan(1, (PlannedQuery("q", 1, node),))
    assert files.read(1) == lower(found)
    assert encoded(found.queries[0].node) == encoded(node)
    assert decode_plan(encode_plan(found)) == found


def test_expressions_are_written_as_their_nodes() -> None:
    text = stored_plans.written(where(A, '"x" + 1 > "x"'))
    assert b"sql" not in text
    assert msgspec.json.decode(text)["predicate"] == {
        "expression": [["column", "x"], ["integer", "1"], ["+", 0, 1], [">", 2, 0]],
        "type": "boolean",
    }
    assert stored_plans.read(text) == where(A, '"x" + 1 > "x"')


@pytest.mark.parametrize(
    "predicate",
    [
        {"sql": "ASINH(x)", "type": "boolean"}, {"sql": "((", "type": "boolean"}, {"sql": 3, "type": "boolean"},
        {"expression": [], "type": "boolean"}, {"expression": [["column"]], "type": "boolean"},
        {"expression": [["column", "x"], ["+", 0, 2]], "type": "boolean"}, {"expression": [["+", 0, 0]]},
        {"expression": [["column", "x"], ["case", False, 2, 0]], "type": "boolean"}, [], None, "x",
        {"expression": [[]], "type": "boolean"}, {"expression": [["column", "x"], ["not", True]], "type": "boolean"},
    ],
)  # fmt: skip
def test_a_damaged_expression_is_no_plan(tmp_path: Path, predicate: object) -> None:
    files = PlanFiles(tmp_path)
    text = msgspec.json.decode(encode_plan(Plan(1, (PlannedQuery("q", 1, where(A, '"x" > 1')),))))
    text["queries"][0]["node"]["predicate"] = predicate
    files.path(1).write_bytes(msgspec.json.encode(text))
    with pytest.raises(PlanError, match="is not a plan"):
        PlanFiles(tmp_path).read(1)

"""The registry survives restarts and refuses what it cannot read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

from cluster.errors import PlanError, StorageError, UnwritableError
from cluster.operators import Source
from cluster.operators.columns import Column
from cluster.physical import plan_json
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, encode_plan
from cluster.service.registry.query_names import QueryExistsError, UnknownQueryError
from cluster.service.registry.registry import Registry
from cluster.service.registry.registry_file import MIGRATIONS, RegistryFile
from cluster.service.registry.registry_tables import MOST_BYTES, MOST_ROWS, Quarantine
from protocols.errors import FjordError
from protocols.wire.streams import FieldType

NODE = Source("traffic", (Column("speed", FieldType.REAL),))


def open_registry(folder: Path) -> Registry:
    return Registry(folder / "registry.sqlite", PlanFiles(folder / "plans"))


def test_queries_and_plans_survive(tmp_path: Path) -> None:
    first = open_registry(tmp_path)
    engine, buckets = first.engine_id, first.fix("buckets", 4)
    query = first.add("a", "SELECT 1", NODE, {"traffic": 7})
    first.close()
    again = open_registry(tmp_path)
    assert (again.engine_id, again.fix("buckets", 9)) == (engine, buckets)
    assert again.queries() == [query]
    assert again.plan.positions == {"traffic": 7}


def test_queries_of_an_earlier_version_whose_names_differ_in_case_only_go_on(tmp_path: Path) -> None:
    first = open_registry(tmp_path)
    for name in ("Warm", "warm"):
        first.add(name, "SELECT 1", NODE, {"traffic": 7}, waited=True)  # which looks at no other name
    first.close()
    again = open_registry(tmp_path)
    assert [each.name for each in again.queries()] == ["Warm", "warm"]
    with pytest.raises(QueryExistsError, match="'WARM' differs from it in case only"):
        again.add("WARM", "SELECT 1", NODE, {})
    again.drop("warm", {})
    assert again.query("Warm").name == "Warm"
    with pytest.raises(QueryExistsError, match="there is a query 'Warm' already, and 'warm' differs"):
        again.add("warm", "SELECT 1", NODE, {})
    with pytest.raises(UnknownQueryError, match="no query 'warm'"):
        again.query("warm")
    again.drop("Warm", {})
    assert again.add("warm", "SELECT 1", NODE, {}).name == "warm"


def test_a_waiting_query_keeps_others_from_its_name_in_any_case_and_begins_with_it(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    registry.wait("Warm", "SELECT 1", frozenset(), frozenset())
    with pytest.raises(QueryExistsError, match="there is a query 'Warm' already"):
        registry.add("warm", "SELECT 1", NODE, {})
    assert registry.add("Warm", "SELECT 1", NODE, {}, waited=True).name == "Warm"


def test_a_query_stays_early_or_final_with_its_plan(tmp_path: Path) -> None:
    first = open_registry(tmp_path)
    first.add("a", "SELECT 1", NODE, {}, early=True)
    first.add("b", "SELECT 1", NODE, {})
    first.close()
    again = open_registry(tmp_path)
    assert {each.name: each.early for each in again.queries()} == {"a": True, "b": False}
    for plan in (again.physical, PlanFiles(tmp_path / "plans").read(3)):
        assert {each.query: each.early for each in plan.subscribers.values()} == {"a": True, "b": False}


def test_a_new_registry_has_a_first_plan_that_lets_the_engine_run_once(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    assert registry.plan == Plan(1)
    assert PlanFiles(tmp_path / "plans").read(1) == PhysicalPlan(1)


def test_a_plan_file_lost_in_a_crash_is_written_again(tmp_path: Path) -> None:
    first = open_registry(tmp_path)
    first.add("a", "SELECT 1", NODE, {})
    first.close()
    files = PlanFiles(tmp_path / "plans")
    files.path(2).unlink()
    open_registry(tmp_path)
    assert list(files.read(2).subscribers) == ["a@2"]


def test_threads_see_the_previous_plan_while_a_new_one_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Retention reads the plan in a thread of its own, and must not find it without queries.
    registry = open_registry(tmp_path)
    registry.add("a", "SELECT 1", NODE, {})
    seen: list[int] = []

    def encode(plan: Plan) -> bytes:
        seen.append(registry.plan.epoch)
        return encode_plan(plan)

    monkeypatch.setattr("cluster.service.registry.registry.encode_plan", encode)
    registry.add("b", "SELECT 1", NODE, {})
    assert seen == [2]
    assert registry.plan.epoch == 3


def test_the_previous_plan_remains_if_a_new_one_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = open_registry(tmp_path)
    registry.add("a", "SELECT 1", NODE, {})

    def encode(plan: Plan) -> bytes:
        assert registry.plan.epoch == plan.epoch - 1
        raise UnwritableError("the registry", OSError("no room"))

    with monkeypatch.context() as failing:
        failing.setattr("cluster.service.registry.registry.encode_plan", encode)
        with pytest.raises(UnwritableError, match="no room"):
            registry.add("b", "SELECT 1", NODE, {})
    registry.add("c", "SELECT 1", NODE, {})
    assert [query.name for query in registry.plan.queries] == ["a", "c"]


def test_a_plan_that_was_committed_though_the_commit_failed_has_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = open_registry(tmp_path)
    commit = RegistryFile.__exit__

    def commit_and_fail(database: RegistryFile, *error: Any) -> Literal[False]:
        commit(database, *error)
        raise UnwritableError("the registry", OSError("no answer"))

    with monkeypatch.context() as patched:
        patched.setattr(RegistryFile, "__exit__", commit_and_fail)
        with pytest.raises(UnwritableError):
            registry.add("a", "SELECT 1", NODE, {})
    registry.add("b", "SELECT 1", NODE, {})
    assert [each.name for each in registry.queries()] == ["a", "b"]
    plans = PlanFiles(tmp_path / "plans")
    assert [plans.exists(epoch) for epoch in range(1, registry.epoch + 1)] == [True] * registry.epoch
    assert len(plans.read(registry.epoch).subscribers) == 2


def test_newer_schema_and_damaged_file_are_refused(tmp_path: Path) -> None:
    open_registry(tmp_path).close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StorageError, match="schema version 99"):
        open_registry(tmp_path)
    (tmp_path / "registry.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError, match="cannot be opened"):
        open_registry(tmp_path)


def test_quarantine_is_bounded_and_newest_first(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    for number in range(MOST_ROWS + 5):
        registry.quarantine.keep("batch", f"reason {number}", "p", b"x")
    kept = registry.quarantine.newest(limit=MOST_ROWS + 5)
    assert len(kept) == MOST_ROWS
    assert kept[0].reason == f"reason {MOST_ROWS + 4}"


def test_of_a_long_message_or_row_quarantine_keeps_the_beginning(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    registry.quarantine.keep("late sample", "late", "p", b"x" * (MOST_BYTES + 1))
    assert registry.quarantine.newest()[0].content == b"x" * MOST_BYTES


def test_a_storm_of_rejections_is_one_transaction_a_second(tmp_path: Path) -> None:
    registry, now = open_registry(tmp_path), [100.0]
    database = registry._database
    begun: list[str] = []
    database.set_trace_callback(lambda text: begun.append(text) if text.startswith("BEGIN") else None)
    quarantine = Quarantine(database, registry.troubles, clock=lambda: now[0])
    for number in range(500):
        quarantine.keep("late sample", f"reason {number}", "p", b"x")
        now[0] += 0.005
    assert len(begun) == 3
    registry.quarantine = quarantine
    registry.close()
    assert [each.reason for each in open_registry(tmp_path).quarantine.newest(2)] == ["reason 499", "reason 498"]


def test_plan_files_are_never_changed(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    files.write(PhysicalPlan(1, (), {"traffic": 1}))
    files.write(PhysicalPlan(1, (), {"traffic": 1}))
    with pytest.raises(PlanError, match="epoch 1 already has another plan"):
        files.write(PhysicalPlan(1, (), {"traffic": 2}))
    assert files.read(0) == NOTHING
    with pytest.raises(PlanError, match="epoch 5 cannot be read"):
        files.read(5)
    files.path(6).write_text('{"epoch": 6, "format": 99}')
    with pytest.raises(PlanError, match="format 99"):
        files.read(6)
    files.path(7).write_text("{")
    with pytest.raises(PlanError, match="is not a plan"):
        files.read(7)


def test_the_physical_plan_is_that_of_the_file(tmp_path: Path) -> None:
    # Another version may have lowered it to other operators.
    first = open_registry(tmp_path)
    first.add("a", "SELECT 1", NODE, {"traffic": 1})
    first.close()
    files = PlanFiles(tmp_path / "plans")
    text = files.path(2).read_text()
    written = plan_json.decode(text.replace('"name": "speed"', '"name": "velocity"', 1).encode())
    files.path(2).write_bytes(plan_json.encode(written))
    again = open_registry(tmp_path)
    assert "velocity" in str(again.physical)
    assert again.physical == PlanFiles(tmp_path / "plans").read(2)
    again.add("b", "SELECT 1", NODE, {"traffic": 2})
    assert "velocity" not in str(again.physical), "its queries have changed, so it is lowered again"
    assert again.physical == PlanFiles(tmp_path / "plans").read(3)


def test_a_file_for_other_queries_is_another_plan(tmp_path: Path) -> None:
    first = open_registry(tmp_path)
    first.add("a", "SELECT 1", NODE, {"traffic": 1})
    first.close()
    files = PlanFiles(tmp_path / "plans")
    written = plan_json.decode(files.path(2).read_text().replace('"query": "a"', '"query": "b"').encode())
    files.path(2).write_bytes(plan_json.encode(written))
    with pytest.raises(PlanError, match="epoch 2 already has another plan"):
        open_registry(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b'{"type":"Plan","epoch":1,"queries":[{"name":"\xff","since_epoch":1,"node":null}]}',
        b'{"type":"Plan\xff","epoch":1}',
        b'{"type":"Plan","epoch":1,"format":"\xff"}',
        b'{"type":"Plan","epoch":1,"x":' + b"[" * 100_000,
        b'{"type":"Plan","epoch":1,"queries":[{"name":"\\ud800"}]}',
        b'{"type":"Plan","epoch":2}',
        b'{"type":"Plan","epoch":999999999999999999999999}',
    ],
)
def test_garbled_plan_files_are_refused_with_their_name(tmp_path: Path, content: bytes) -> None:
    files = PlanFiles(tmp_path)
    files.path(1).write_bytes(content)
    with pytest.raises(PlanError, match=r"plan of epoch 1 at .*000001.json"):
        files.read(1)


def test_a_registry_from_before_relations_is_migrated(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as database:
        for script in MIGRATIONS[:2]:
            database.executescript(script)
        database.execute("PRAGMA user_version = 2")
    registry = open_registry(tmp_path)
    assert (registry.queries(), registry.relations.relations(), registry.relations.waiting()) == ([], [], [])


def test_relations_and_waiting_queries_survive_and_numbers_never_come_back(tmp_path: Path) -> None:
    first = open_registry(tmp_path)
    columns = (Column("segment", FieldType.TEXT, "km"),)
    roads = first.relations.create("roads", "CREATE ...", columns)
    first.relations.set_fresh("roads", 7)
    waiting = first.wait(None, "SELECT 1", frozenset({"traffic"}), frozenset({roads.identity}))
    first.close()
    again = open_registry(tmp_path)
    assert again.relations.waiting() == [waiting]
    (found,) = again.relations.relations()
    assert (found.identity, found.columns, found.fresh_us) == ("roads@1", columns, 7)
    again.relations.drop("ROADS")
    assert again.relations.create("roads", "CREATE ...", columns).identity == "roads@2"
    again.add(waiting.name, waiting.sql, NODE, {}, waited=True)
    assert again.relations.waiting() == []


def test_a_registry_that_kept_queries_in_the_plan_is_read_and_moved(tmp_path: Path) -> None:
    first = open_registry(tmp_path)
    added = [first.add(name, "SELECT 1", NODE, {"traffic": 7}) for name in ("a", "b")]
    plan, physical = first.plan, first.physical
    first.close()
    path = tmp_path / "registry.sqlite"
    with closing(sqlite3.connect(path)) as database:  # as earlier versions have it
        database.execute("UPDATE plans SET plan = ?", (encode_plan(plan),))
        database.execute("UPDATE queries SET node = '{}'")
        database.execute("ALTER TABLE queries DROP COLUMN early")
        database.execute("ALTER TABLE waiting DROP COLUMN functions")
        database.execute("DROP TABLE functions")
        database.execute("DROP TABLE migrations")
        database.execute("DROP TABLE set_aside")
        database.execute("PRAGMA user_version = 4")
        database.commit()
    for _ in range(2):
        again = open_registry(tmp_path)
        assert again.queries() == added
        assert (again.plan, again.physical) == (plan, physical)
        again.close()
    with closing(sqlite3.connect(path)) as database:
        (stored,) = database.execute("SELECT plan FROM plans").fetchone()
        assert b"SELECT" not in stored
        assert len(stored) < 100
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


def test_what_is_written_for_a_query_does_not_grow_with_the_others(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    written: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        execute = type(registry._plan_database).execute

        def counted(database: Any, sql: str, parameters: Any = ()) -> Any:
            written[-1] += sum(len(each) for each in parameters if isinstance(each, str | bytes))
            return execute(database, sql, parameters)

        patch.setattr(type(registry._plan_database), "execute", counted)
        for number in range(50):
            written.append(0)
            registry.add(f"q{number:02}", "SELECT 1", NODE, {"traffic": 7})
    assert max(written) <= written[0] + 10


def test_queries_that_begin_together_are_all_registered_or_none(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    registry.add("a", "SELECT 1", NODE, {"traffic": 1})
    none = frozenset[str]()
    for names in (("b", "a"), ("b", "b"), ("b", "c/d")):
        with pytest.raises(FjordError):
            registry.add_many([(name, "SELECT 1", NODE, none) for name in names], {"traffic": 2})
    assert [each.name for each in registry.queries()] == ["a"]
    registry.add_many([(name, "SELECT 1", NODE, none) for name in ("b", "c")], {"traffic": 2})
    assert [each.identity for each in registry.queries()] == ["a@2", "b@3", "c@3"]
    registry.close()
    assert [each.identity for each in open_registry(tmp_path).physical.oldest_first] == ["a@2", "b@3", "c@3"]


def test_a_name_that_was_made_up_is_used_up_only_with_its_query(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cluster.service.registry.registry.insert_queries", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            registry.add(None, "SELECT 1", NODE, {})
    assert [registry.add(None, "SELECT 1", NODE, {}).name for _ in range(2)] == ["q1", "q2"]
    registry.drop("q2", {})
    assert registry.add(None, "SELECT 1", NODE, {}).name == "q3"

"""Lost versions: nothing waits for them, no other rows get their numbers, and they are counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.ingest.writer import StreamWriter
from cluster.operators import Source
from cluster.operators.columns import Column
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.service.publishing.publication import Publication, rewind
from cluster.service.publishing.published import Position
from cluster.service.registry.registry import newest_known_versions, replace_lost_versions
from cluster.storage.archived_log import LOG
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamTable
from protocols.wire.batches import Ack
from protocols.wire.streams import FieldType
from tests.cluster.service.test_publisher import FlakyLink, Publishing, sequences
from tests.cluster.storage.test_tables import TRAFFIC, answers, at, rows


def lose(root: str, versions: int) -> None:
    for commit in sorted(Path(root, LOG).glob("*.json"), reverse=True)[:versions]:
        commit.unlink()


def log_offset(checkpoint: Path, number: int, versions: dict[str, int]) -> None:
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / str(number)).write_text(f"v1\n{{}}\n{json.dumps({'epoch': 1, 'versions': versions})}")


async def acknowledge(_: Ack) -> None: ...


def test_known_versions_come_from_plans_and_both_logs_of_offsets(tmp_path: Path) -> None:
    queries = tuple(PlannedQuery(name, 1, Source(name, (Column("speed", FieldType.REAL),))) for name in "ab")
    plan = Plan(1, queries, {"a": 7, "b": 1, "dropped": 500})
    assert newest_known_versions(plan, tmp_path / "none") == {"a": 7, "b": 1}
    log_offset(tmp_path / "stateful" / "offsets", 9, {"b": 99})
    log_offset(tmp_path / "stateful" / "offsets", 10, {"a": 5, "b": 4})
    log_offset(tmp_path / "stateless" / "offsets", 3, {"b": 6, "dropped": 501})
    assert newest_known_versions(plan, tmp_path) == {"a": 7, "b": 6}


def test_a_stream_goes_on_after_its_lost_versions(tmp_path: Path) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    for number in range(1, 6):
        table.append([rows(number)], at(number), {("p", "e"): number})
    lose(table.root, 2)
    table = StreamTable(table.root)
    writer = StreamWriter(table, acknowledge=acknowledge, quarantine=lambda *_: None)
    replace_lost_versions({"traffic": writer}, {"traffic": 5})
    assert writer.admission.counters.lost_versions == 2
    assert (table.version, table.position(), table.last_sequence("p", "e")) == (5, at(3), 3)
    assert table.append([rows(4)], at(4), {("p", "e"): 4}) == 6
    replace_lost_versions({"traffic": writer}, {"traffic": 5})
    assert writer.admission.counters.lost_versions == 2


async def test_the_publisher_goes_on_with_the_results_that_remain(tmp_path: Path) -> None:
    results, link = ResultsTable(str(tmp_path / "results"), "f"), FlakyLink()
    for micro_batch in range(3):
        results.append(answers(("q", micro_batch)), micro_batch)
    Publication(tmp_path).note(Position(3))
    lose(results.root, 2)
    for _ in range(2):
        rewind(tmp_path, ResultsTable(results.root, "f").version)
    assert Publication(tmp_path).now.lost.commits == 2
    it = Publishing(tmp_path, link)
    it.table.append(answers(("q", 1)), 1)
    assert await it.publish()
    assert not await it.publish()
    assert sequences(link) == [2]


@pytest.mark.parametrize("named", [{}, {"traffic": 0}, {"traffic": 1}, {"other": 9}])
def test_nothing_changes_if_no_version_is_lost(tmp_path: Path, named: dict[str, int]) -> None:
    table = StreamTable(str(tmp_path / "traffic"), TRAFFIC)
    table.append([rows(1)], at(1), {("p", "e"): 1})
    writer = StreamWriter(table, acknowledge=acknowledge, quarantine=lambda *_: None)
    replace_lost_versions({"traffic": writer}, named)
    assert table.version == 1

"""The publisher: every stored row, in order, numbered. A broker that goes away may repeat rows, but loses none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from cluster.fjord.batch import instant_text
from cluster.physical.plan_files import PlanFiles
from cluster.service.publishing.publisher import IN_FLIGHT, Publisher
from cluster.service.publishing.result_messages import result_message
from cluster.service.registry.registry import Registry
from cluster.storage import archived_log, delta_tables, retention
from cluster.storage.appending import OutcomeUnknownError
from cluster.storage.compaction import Compaction
from cluster.storage.results_table import ResultsTable
from protocols.mqtt.link import LinkError, Message
from protocols.wire import topics


class FlakyLink:
    """Fails once, after so many messages."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.published: list[Message] = []
        self._fails_after = fails_after

    async def publish(self, message: Message) -> None:
        if self._fails_after is not None and len(self.published) >= self._fails_after:
            self._fails_after = None
            raise LinkError("the broker went away")
        self.published.append(message)


def make(tmp_path: Path, link: FlakyLink) -> tuple[Publisher, ResultsTable]:
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    table = ResultsTable(str(tmp_path / "results"), "f")
    return Publisher(table, registry, link), table  # type: ignore[arg-type]


def answers(count: int, *, kind: str = "row", row: str = '{"x":1}') -> pl.DataFrame:
    starts = list(range(count))
    return pl.DataFrame(
        {"query": ["q"] * count, "start_us": starts, "end_us": [at + 1 for at in starts], "kind": [kind] * count,
         "row": [row] * count}
    )  # fmt: skip


def sequences(link: FlakyLink) -> list[int]:
    return [msgspec.json.decode(message.payload)["sequence"] for message in link.published]


async def test_rows_are_published_once_in_order(tmp_path: Path) -> None:
    link = FlakyLink()
    publisher, table = make(tmp_path, link)
    assert not await publisher.publish_next()
    table.append(answers(3), 0)
    table.append(answers(2), 1)
    assert await publisher.publish_next()
    assert await publisher.publish_next()
    assert not await publisher.publish_next()
    assert sequences(link) == [1, 2, 3, 4, 5]
    assert {message.topic for message in link.published} == {topics.results("q")}


async def test_after_a_failure_it_goes_on_where_the_broker_had_acknowledged(tmp_path: Path) -> None:
    link = FlakyLink(fails_after=IN_FLIGHT + 7)
    publisher, table = make(tmp_path, link)
    table.append(answers(2 * IN_FLIGHT), 0)
    with pytest.raises(LinkError):
        await publisher.publish_next()
    while await publisher.publish_next():
        pass
    assert set(sequences(link)) == set(range(1, 2 * IN_FLIGHT + 1))
    assert sequences(link).count(1) == 1, "what was acknowledged is not published again"


async def test_errors_go_to_the_errors_topic(tmp_path: Path) -> None:
    link = FlakyLink()
    publisher, table = make(tmp_path, link)
    table.append(answers(1, kind="error", row='"division went wrong"'), 0)
    await publisher.publish_next()
    (message,) = link.published
    assert message.topic == topics.query_errors("q")
    assert msgspec.json.decode(message.payload)["error"] == "division went wrong"


@pytest.mark.parametrize(
    ("instant_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_330_561_799_999_999, "2012-03-01T00:29:59.999999Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (2**62, None),
        (2**61, f"{2**61}us"),
    ],
)
def test_instants_as_text(instant_us: int, text: str | None) -> None:
    assert instant_text(instant_us) == text


def test_a_row_is_json_as_documented() -> None:
    payload = result_message("q1", 17, 0, 2**62, '{"sensor":"7","speed":66.5}')
    assert msgspec.json.decode(payload) == {
        "query": "q1",
        "sequence": 17,
        "start": "1970-01-01T00:00:00.000000Z",
        "end": None,
        "row": {"sensor": "7", "speed": 66.5},
    }


async def test_rows_say_which_relations_were_stale(tmp_path: Path) -> None:
    link = FlakyLink()
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    table = ResultsTable(str(tmp_path / "results"), "f")
    ages = [{"roads": 72.5}, None]
    publisher = Publisher(table, registry, link, stale=lambda queries: dict.fromkeys(queries, ages.pop(0)))  # type: ignore[arg-type]
    table.append(answers(1), 0)
    table.append(answers(1), 1)
    while await publisher.publish_next():
        pass
    assert [msgspec.json.decode(message.payload).get("stale") for message in link.published] == [{"roads": 72.5}, None]


@pytest.fixture
def days_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make logs short, folders small, and let a day pass at once."""
    monkeypatch.setattr(retention, "KEEP_HOURS", 0)
    monkeypatch.setattr(archived_log, "COMMITS_KEPT", 5)
    monkeypatch.setattr(archived_log, "COMMITS_A_FOLDER", 4)
    monkeypatch.setattr(delta_tables, "COMMITS_BETWEEN_CHECKPOINTS", 10)


@pytest.mark.usefixtures("days_pass")
async def test_no_row_is_lost_while_the_broker_is_away_for_days(tmp_path: Path) -> None:
    #  results    1 2 3 | 4 ... 40, compacted again and again
    #  broker     takes | away for days                       | takes
    link = FlakyLink()
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    compaction = Compaction(8, needed=registry.publication.version)
    table = ResultsTable(str(tmp_path / "results"), "f", compaction=compaction)
    publisher = Publisher(table, registry, link)  # type: ignore[arg-type]
    for number in range(3):
        table.append(answers(1), number)
    while await publisher.publish_next():
        pass
    for number in range(3, 40):
        table.append(answers(1), number)
    assert publisher.unpublished_commits >= 37
    while await publisher.publish_next():
        pass
    assert sequences(link) == list(range(1, 41))
    assert publisher.status() == {
        "published_version": table.version,
        "unpublished_commits": 0,
        "lost": {"commits": 0, "rows": 0, "last": None},
    }


async def test_publication_goes_on_after_commits_that_are_lost(tmp_path: Path) -> None:
    link = FlakyLink()
    publisher, table = make(tmp_path, link)
    for number in range(6):
        table.append(answers(2), number)
    await publisher.publish_next()
    for version in (2, 3, 4):
        (tmp_path / "results" / archived_log.LOG / f"{version:020d}.json").unlink()
    while await publisher.publish_next():
        pass
    assert sequences(link) == [1, 2, 9, 10, 11, 12]
    assert publisher.status()["lost"]["commits"] == 3
    again = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    assert (again.publication.lost().commits, again.publication.position()) == (3, (6, 0)), "it is stored"


async def test_rows_of_lost_files_are_counted(tmp_path: Path) -> None:
    link = FlakyLink(fails_after=IN_FLIGHT + 3)
    publisher, table = make(tmp_path, link)
    table.append(answers(2 * IN_FLIGHT), 0)
    table.append(answers(1), 1)
    with pytest.raises(LinkError):
        await publisher.publish_next()
    (file,) = table.log.read(1).files
    (tmp_path / "results" / file.path).unlink()
    link.published.clear()
    while await publisher.publish_next():
        pass
    assert sequences(link) == [2 * IN_FLIGHT + 1]
    lost = publisher.status()["lost"]
    assert (lost["commits"], lost["rows"]) == (1, IN_FLIGHT), "those that the broker had acknowledged are not lost"


async def test_the_publisher_waits_for_results_that_cannot_be_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = FlakyLink()
    publisher, table = make(tmp_path, link)
    table.append(answers(1), 0)
    link.connected = asyncio.Event()  # type: ignore[attr-defined]
    link.connected.set()  # type: ignore[attr-defined]
    readable, tried = pl.read_parquet, 0

    def fails_once(files: list[str]) -> pl.DataFrame:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise OSError(5, "input/output error")
        return readable(files)

    monkeypatch.setattr(pl, "read_parquet", fails_once)
    monkeypatch.setattr("cluster.service.publishing.publisher.PAUSE_SECONDS", 0.0)
    running = asyncio.create_task(publisher.run())
    async with asyncio.timeout(20):
        while not link.published:  # noqa: ASYNC110 - what is waited for comes from a thread
            await asyncio.sleep(0)
    running.cancel()
    assert sequences(link) == [1]
    assert publisher.status()["lost"]["commits"] == 0


@pytest.mark.usefixtures("days_pass")
@pytest.mark.parametrize(("backlog", "all_there"), [(0, False), (10**9, True)])
async def test_rows_given_up_for_lack_of_room_are_counted(tmp_path: Path, backlog: int, all_there: bool) -> None:
    link = FlakyLink()
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    compaction = Compaction(8, needed=registry.publication.version, backlog_bytes=backlog)
    table = ResultsTable(str(tmp_path / "results"), "f", compaction=compaction)
    publisher = Publisher(table, registry, link)  # type: ignore[arg-type]
    table.append(answers(2), 0)
    await publisher.publish_next()
    for number in range(1, 40):
        table.append(answers(2), number)
    while await publisher.publish_next():
        pass
    published = sequences(link)
    assert (len(published) == 80) is all_there
    assert published == sorted(set(published))
    assert published[-1] == 80, "publication goes on"
    assert publisher.status()["lost"]["rows"] == 80 - len(published)
    assert table.rows_after("q", 0, 100)["sequence"].to_list() == list(range(1, 81)), "the API still has them"
    assert table.use is not None
    assert (table.use.replaced_bytes > 0) is all_there


async def test_nothing_is_published_that_is_not_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == f"{1:020d}.json":
            raise OSError("the disk is broken")

    link = FlakyLink()
    publisher, table = make(tmp_path, link)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing)
        with pytest.raises(OutcomeUnknownError):
            table.append(answers(1), 0)
        assert table.log.exists(1)
        assert not await publisher.publish_next()
    assert table.committed(0)
    assert await publisher.publish_next()
    assert sequences(link) == [1]


async def test_notes_are_made_once_for_all_queries_of_a_commit(tmp_path: Path) -> None:
    """Making them one by one would read the whole registry and catalog for each of five hundred queries."""
    link, calls = FlakyLink(), []
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    table = ResultsTable(str(tmp_path / "results"), "f")

    def notes(queries: Collection[str]) -> Mapping[str, dict[str, Any] | None]:
        calls.append(sorted(queries))
        return {"q7": {"slower": 2, "too_short_lived": 0}}

    publisher = Publisher(table, registry, link, notes=notes)  # type: ignore[arg-type]
    names = [f"q{number}" for number in range(500)]
    table.append(answers(500).with_columns(pl.Series("query", names)), 0)
    await publisher.publish_next()
    assert calls == [sorted(names)]
    found = {each["query"]: each.get("sensors") for each in (msgspec.json.decode(m.payload) for m in link.published)}
    assert (found["q7"], found["q8"], len(found)) == ({"slower": 2, "too_short_lived": 0}, None, 500)

"""The publisher: every stored row, in order, numbered. A broker that goes away may repeat rows, but loses none."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import polars as pl
import pytest
from pyarrow import parquet

from cluster.errors import StorageError
from cluster.fjord.batch import instant_text
from cluster.service.publishing import result_chunks, turns
from cluster.service.publishing.publication import FILE, Publication, published_of
from cluster.service.publishing.published import ALL_SHARDS, Position, Published, shard_of
from cluster.service.publishing.publisher import Publisher
from cluster.service.publishing.result_messages import Extras, stored_results
from cluster.storage import archived_log, committed_results, delta_tables
from cluster.storage.appending import OutcomeUnknownError
from cluster.storage.committed_results import CommittedResults
from cluster.storage.compaction import Compaction
from cluster.storage.results_table import ResultsTable
from protocols.mqtt.frames import take_messages
from protocols.mqtt.link import BrokenOffError, Message
from protocols.mqtt.publish_frames import PublishFrames
from protocols.wire import topics

CHUNK = 200
TIME_LIMIT_SECONDS = 20


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_chunks, "CHUNK_ROWS", CHUNK)


def messages_of(frames: PublishFrames) -> list[Message]:
    """Return what a broker reads in frames."""
    messages: list[Message] = []
    take_messages(bytes(frames.numbered(0, len(frames), 0)) if len(frames) else b"", 0, messages, [])
    assert len(messages) == len(frames)
    return messages


class FlakyLink:
    """Breaks once, after so many messages; from the first that it does not take on it takes none of that chunk."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.published: list[Message] = []
        self.connected = asyncio.Event()
        self.connected.set()
        self._fails_after = fails_after

    async def publish_frames(self, frames: PublishFrames) -> None:
        messages = messages_of(frames)
        if self._fails_after is not None and len(self.published) + len(messages) > self._fails_after:
            taken = self._fails_after - len(self.published)
            self._fails_after = None
            self.published += messages[:taken]
            raise BrokenOffError("the broker went away", taken)
        self.published += messages


class Publishing:
    """A publisher and its table in a folder; the link is asked for what was published."""

    def __init__(
        self, folder: Path, link: FlakyLink, *, compaction: Compaction | None = None, extras: Extras = lambda _: {}
    ) -> None:
        self.table = ResultsTable(str(folder / "results"), "f", compaction=compaction)
        self.publication = Publication(folder)
        self.troubles: list[str] = []
        self.publisher = Publisher(
            CommittedResults(self.table.root),
            self.publication,
            link,
            extras=extras,
            trouble=lambda what, _: self.troubles.append(what),
        )

    async def publish(self) -> bool:
        """Publish what the table knows to be on disk."""
        self.publisher.announce(self.table.version)
        return await self.publisher.publish()


def answers(count: int, *, kind: str = "row", row: str = '{"x":1}') -> pl.DataFrame:
    starts = list(range(count))
    return pl.DataFrame(
        {"query": ["q"] * count, "start_us": starts, "end_us": [at + 1 for at in starts], "kind": [kind] * count,
         "row": [row] * count}
    )  # fmt: skip


def decoded(link: FlakyLink) -> list[dict[str, Any]]:
    return [msgspec.json.decode(message.payload) for message in link.published]


def sequences(link: FlakyLink) -> list[int]:
    return [message["sequence"] for message in decoded(link)]


async def test_rows_are_published_once_in_order(tmp_path: Path) -> None:
    link = FlakyLink()
    it = Publishing(tmp_path, link)
    assert not await it.publish()
    it.table.append(answers(3), 0)
    it.table.append(answers(2), 1)
    assert await it.publish()
    assert not await it.publish()
    assert sequences(link) == [1, 2, 3, 4, 5]
    assert {message.topic for message in link.published} == {topics.results("q")}
    assert Publication(tmp_path).now.version == 2


async def test_after_a_failure_it_goes_on_where_the_broker_had_acknowledged(tmp_path: Path) -> None:
    link = FlakyLink(fails_after=CHUNK + 7)
    it = Publishing(tmp_path, link)
    it.table.append(answers(3 * CHUNK), 0)
    it.table.append(answers(5), 1)
    with pytest.raises(BrokenOffError):
        await it.publish()
    assert it.publication.now.version == 0, "not before its last row is acknowledged"
    while await it.publish():
        pass
    found = sequences(link)
    assert sorted(set(found)) == list(range(1, 3 * CHUNK + 6))
    assert [found.count(number) for number in (1, CHUNK, CHUNK + 7)] == [1, 1, 1], (
        "what was acknowledged is not sent again"
    )


async def test_the_position_is_never_ahead_of_the_acknowledgements(tmp_path: Path) -> None:
    #  commits   [ 1 ][ 2 ][ 3 ]     one chunk each
    #  link       sent sent sent     acknowledges one after the other, when the test lets it
    class SlowLink(FlakyLink):
        def __init__(self) -> None:
            super().__init__()
            self.waiting: list[asyncio.Future[None]] = []

        async def publish_frames(self, frames: PublishFrames) -> None:
            await super().publish_frames(frames)
            self.waiting.append(asyncio.get_running_loop().create_future())
            await self.waiting[-1]

    async def until(reached: Any) -> None:
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            while not reached():  # noqa: ASYNC110 - rows are read in a thread
                await asyncio.sleep(0)

    link = SlowLink()
    it = Publishing(tmp_path, link)
    for number in range(3):
        it.table.append(answers(CHUNK), number)
    publishing = asyncio.create_task(it.publish())
    await until(lambda: len(link.waiting) == 3)
    assert len(link.published) == 3 * CHUNK, "rows are sent before the first are acknowledged"
    for number in range(3):
        assert Publication(tmp_path).now.version == number
        assert it.publisher.position.version == number
        link.waiting[number].set_result(None)
        await until(lambda number=number: it.publication.now.version == number + 1)
    assert await publishing


async def test_what_is_in_flight_when_it_is_stopped_is_waited_for(tmp_path: Path) -> None:
    link = FlakyLink()
    it = Publishing(tmp_path, link)
    it.table.append(answers(2), 0)
    it.publisher.announce(it.table.version)
    running = asyncio.create_task(it.publisher.run())
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        while not link.published:  # noqa: ASYNC110 - rows are read in a thread
            await asyncio.sleep(0)
        it.publisher.stop()
        await running
    assert it.publication.now.version == 1


async def test_errors_go_to_the_errors_topic(tmp_path: Path) -> None:
    link = FlakyLink()
    it = Publishing(tmp_path, link, extras=lambda _: {"sensors": {"slower": 2}})
    it.table.append(answers(1, kind="error", row='"division went wrong"'), 0)
    await it.publish()
    (message,) = link.published
    assert message.topic == topics.query_errors("q")
    assert msgspec.json.decode(message.payload) == {
        "query": "q", "sequence": 1, "at": instant_text(0), "end": instant_text(1), "error": "division went wrong"
    }  # fmt: skip


async def test_an_open_row_has_no_end_and_is_closed_by_its_number(tmp_path: Path) -> None:
    link = FlakyLink()
    it = Publishing(tmp_path, link)
    it.table.append(answers(2, kind="open"), 0)
    it.table.append(answers(1, kind="closes"), 1)
    await it.publish()
    start, row = "1970-01-01T00:00:00.000000Z", {"x": 1}
    expected = [
        {"query": "q", "sequence": 1, "start": start, "open": True, "row": row},
        {"query": "q", "sequence": 2, "start": "1970-01-01T00:00:00.000001Z", "open": True, "row": row},
        {"query": "q", "sequence": 3, "closes": 1, "end": "1970-01-01T00:00:00.000001Z"},
    ]
    assert decoded(link) == expected
    assert msgspec.json.decode(stored_results(it.table, "q", 0, 10)) == expected


async def test_rows_say_which_relations_were_stale(tmp_path: Path) -> None:
    link = FlakyLink()
    ages: list[Mapping[str, Any]] = [{"stale": {"roads": 72.5}}, {}]
    it = Publishing(tmp_path, link, extras=lambda _: ages.pop(0))
    for number in range(2):
        it.table.append(answers(1), number)
        await it.publish()
    assert [message.get("stale") for message in decoded(link)] == [{"roads": 72.5}, None]


async def test_extras_are_asked_for_once_a_query(tmp_path: Path) -> None:
    link, calls = FlakyLink(), []

    def extras(query: str) -> Mapping[str, Any]:
        calls.append(query)
        return {"sensors": {"slower": 2, "too_short_lived": 0}} if query == "q7" else {}

    it = Publishing(tmp_path, link, extras=extras)
    names = [f"q{number}" for number in range(500)]
    it.table.append(answers(500).with_columns(pl.Series("query", names)), 0)
    it.table.append(answers(500).with_columns(pl.Series("query", names)), 1)
    await it.publish()
    assert sorted(calls) == sorted(names)
    found = {each["query"]: each.get("sensors") for each in decoded(link)}
    assert (found["q7"], found["q8"], len(found)) == ({"slower": 2, "too_short_lived": 0}, None, 500)


@pytest.fixture
def days_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make logs short, folders small, and let a day pass at once."""
    monkeypatch.setattr(archived_log, "KEEP_HOURS", 0)
    monkeypatch.setattr(archived_log, "COMMITS_KEPT", 5)
    monkeypatch.setattr(archived_log, "COMMITS_A_FOLDER", 4)
    monkeypatch.setattr(delta_tables, "COMMITS_BETWEEN_CHECKPOINTS", 10)


@pytest.mark.usefixtures("days_pass")
async def test_no_row_is_lost_while_the_broker_is_away_for_days(tmp_path: Path) -> None:
    #  results    1 2 3 | 4 ... 40, compacted again and again
    #  broker     takes | away for days                       | takes
    link = FlakyLink()
    compaction = Compaction(8, needed=lambda: Publication(tmp_path).now.version)
    it = Publishing(tmp_path, link, compaction=compaction)
    for number in range(3):
        it.table.append(answers(1), number)
    await it.publish()
    for number in range(3, 40):
        it.table.append(answers(1), number)
    assert it.table.version - it.publication.now.version >= 37
    await it.publish()
    assert sequences(link) == list(range(1, 41))
    assert it.publication.now.version == it.table.version
    assert it.publication.now.lost.commits == 0


async def test_publication_goes_on_after_commits_that_are_lost(tmp_path: Path) -> None:
    link = FlakyLink()
    it = Publishing(tmp_path, link)
    it.table.append(answers(2), 0)
    await it.publish()
    for number in range(1, 6):
        it.table.append(answers(2), number)
    for version in (3, 4):
        (tmp_path / "results" / archived_log.LOG / f"{version:020d}.json").unlink()
    while await it.publish():
        pass
    assert sequences(link) == [1, 2, 3, 4, 9, 10, 11, 12]
    again = Publication(tmp_path).now
    assert (again.lost.commits, again.version) == (2, 6), "it is stored"


async def test_rows_of_lost_files_are_counted(tmp_path: Path) -> None:
    link = FlakyLink(fails_after=CHUNK + 3)
    it = Publishing(tmp_path, link)
    it.table.append(answers(2 * CHUNK), 0)
    it.table.append(answers(1), 1)
    with pytest.raises(BrokenOffError):
        await it.publish()
    (file,) = CommittedResults(it.table.root).log.read(1).files
    (tmp_path / "results" / file.path).unlink()
    link.published.clear()
    while await it.publish():
        pass
    assert sequences(link) == [2 * CHUNK + 1]
    lost = it.publication.now.lost
    assert (lost.commits, lost.rows) == (1, CHUNK - 3), "those that the broker had acknowledged are not lost"


async def test_the_publisher_waits_for_results_that_cannot_be_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = FlakyLink()
    it = Publishing(tmp_path, link)
    it.table.append(answers(1), 0)
    readable, tried = parquet.ParquetFile, 0

    def fails_once(*arguments: Any, **options: Any) -> parquet.ParquetFile:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise OSError(5, "input/output error")
        return readable(*arguments, **options)

    monkeypatch.setattr(parquet, "ParquetFile", fails_once)
    monkeypatch.setattr("cluster.service.publishing.publisher.PAUSE_SECONDS", 0.0)
    it.publisher.announce(it.table.version)
    running = asyncio.create_task(it.publisher.run())
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        while not link.published:  # noqa: ASYNC110 - what is waited for comes from a thread
            await asyncio.sleep(0)
    running.cancel()
    assert sequences(link) == [1]
    assert it.troubles == ["results"]
    assert it.publication.now.lost.commits == 0


@pytest.mark.usefixtures("days_pass")
@pytest.mark.parametrize(("backlog", "all_there"), [(0, False), (10**9, True)])
async def test_rows_given_up_for_lack_of_room_are_counted(tmp_path: Path, backlog: int, all_there: bool) -> None:
    link = FlakyLink()
    compaction = Compaction(8, needed=lambda: Publication(tmp_path).now.version, backlog_bytes=backlog)
    it = Publishing(tmp_path, link, compaction=compaction)
    it.table.append(answers(2), 0)
    await it.publish()
    for number in range(1, 40):
        it.table.append(answers(2), number)
    while await it.publish():
        pass
    published = sequences(link)
    assert (len(published) == 80) is all_there
    assert published == sorted(set(published))
    assert published[-1] == 80, "publication goes on"
    assert it.publication.now.lost.rows == 80 - len(published)
    assert it.table.rows_after("q", 0, 100)["sequence"].to_list() == list(range(1, 81)), "the API still has them"
    assert it.table.use is not None
    assert (it.table.use.replaced_bytes > 0) is all_there


async def test_nothing_is_published_that_is_not_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == f"{1:020d}.json":
            raise OSError("the disk is broken")

    link = FlakyLink()
    it = Publishing(tmp_path, link)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing)
        with pytest.raises(OutcomeUnknownError):
            it.table.append(answers(1), 0)
        assert CommittedResults(it.table.root).log.exists(1)
        assert not await it.publish()
    assert it.table.committed(0)
    assert await it.publish()
    assert sequences(link) == [1]


TURN = 2 * CHUNK
HEAVY = 20 * TURN


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_ROWS", TURN)
    monkeypatch.setattr(turns, "TURNS_ALONE", 1)
    monkeypatch.setattr(committed_results, "ROWS_AT_ONCE", CHUNK)


def answers_of(**counts: int) -> pl.DataFrame:
    """Return rows of queries, one query after the other."""
    return pl.concat([answers(count).with_columns(pl.lit(name).alias("query")) for name, count in counts.items()])


def numbers_of(link: FlakyLink, query: str) -> list[int]:
    return [message["sequence"] for message in decoded(link) if message["query"] == query]


@pytest.mark.usefixtures("short_turns")
async def test_a_query_with_very_many_rows_keeps_no_other_waiting(tmp_path: Path) -> None:
    #  commits   [ q q q q q ... q a a b ][ a b ][ q a b ]
    #  link      [ q q | a a b | a b | a b ][ q q ][ q q ] ...
    link = FlakyLink()
    it = Publishing(tmp_path, link)
    it.table.append(answers_of(q=HEAVY, a=2, b=1), 0)
    it.table.append(answers_of(a=1, b=1), 1)
    it.table.append(answers_of(q=1, a=1, b=1), 2)
    assert await it.publish()
    assert (numbers_of(link, "a"), numbers_of(link, "b")) == ([1, 2, 3, 4], [1, 2, 3])
    assert len(numbers_of(link, "q")) <= 2 * TURN + 2 * CHUNK, "what was published in front, and a turn behind"
    assert it.publisher.position == (3, 0)
    assert it.publisher.turns.behind().keys() == {"q"}
    found = published_of(tmp_path).versions(ALL_SHARDS)
    assert found == {shard: 0 if shard == shard_of("q") else 3 for shard in ALL_SHARDS}
    it.table.append(answers_of(a=5, q=3), 3)
    while await it.publish():
        pass
    assert numbers_of(link, "q") == list(range(1, HEAVY + 5))
    assert numbers_of(link, "a") == list(range(1, 10))
    assert published_of(tmp_path).versions(ALL_SHARDS) == dict.fromkeys(ALL_SHARDS, 4)
    it.table.append(answers_of(q=3, a=1), 4)
    assert await it.publish()
    assert not it.publisher.turns.behind(), "it goes on with the others"
    assert numbers_of(link, "q")[-1] == HEAVY + 7


@pytest.mark.usefixtures("short_turns")
async def test_front_and_queries_behind_publish_at_the_same_time(tmp_path: Path) -> None:
    #  link   acknowledges no row of q's after its first turn behind; those of a go on
    class Holding(FlakyLink):
        counts: ClassVar[Counter[str]] = Counter()
        go_on = asyncio.Event()

        async def publish_frames(self, frames: PublishFrames) -> None:
            await super().publish_frames(frames)
            found = Counter(message.topic for message in messages_of(frames))
            self.counts.update(found)
            if topics.results("q") in found and self.counts[topics.results("q")] > 2 * TURN:
                await self.go_on.wait()

    async def until(reached: Callable[[], bool]) -> None:
        while not reached():  # noqa: ASYNC110 - rows are read in a thread
            await asyncio.sleep(0)

    link = Holding()
    it = Publishing(tmp_path, link)
    it.table.append(answers_of(q=HEAVY, a=1), 0)
    it.publisher.announce(it.table.version)
    running = asyncio.create_task(it.publisher.run())
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        await until(lambda: link.counts[topics.results("q")] > 2 * TURN)
        for number in range(1, 4):
            it.table.append(answers_of(a=1), number)
            it.publisher.announce(it.table.version)
            await until(lambda number=number: link.counts[topics.results("a")] == number + 1)
        assert "q" in it.publisher.turns.behind()
        link.go_on.set()
        await until(lambda: it.publication.now == Published(4))
        it.publisher.stop()
        await running
    assert numbers_of(link, "q") == list(range(1, HEAVY + 1))
    assert it.publisher.published_rows == HEAVY + 4


@pytest.mark.usefixtures("short_turns")
async def test_queries_that_are_behind_take_turns(tmp_path: Path) -> None:
    link = FlakyLink()
    it = Publishing(tmp_path, link)
    it.table.append(answers_of(p=10 * TURN, q=10 * TURN), 0)
    for _ in range(4):
        await it.publish()
    assert min(len(numbers_of(link, name)) for name in "pq") >= 3 * TURN - CHUNK
    assert max(len(numbers_of(link, name)) for name in "pq") <= 3 * TURN + CHUNK


@pytest.mark.usefixtures("short_turns")
async def test_few_rows_come_again_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    #  q in one commit, noted every so many rows of it; killed in the middle
    monkeypatch.setattr("cluster.service.publishing.publication.ROWS_BETWEEN_NOTES", TURN)
    link = FlakyLink(fails_after=HEAVY // 2)
    it = Publishing(tmp_path, link)
    it.table.append(answers_of(q=HEAVY, a=1), 0)

    async def publish_all() -> None:
        while await it.publish():
            pass

    with pytest.raises(BrokenOffError):
        await publish_all()
    before = len(numbers_of(link, "q"))
    on_disk = msgspec.json.decode((tmp_path / FILE).read_bytes(), type=Published)
    assert before - TURN - 3 * CHUNK <= on_disk.row <= before
    assert on_disk.version == 0
    assert on_disk.ahead == dict.fromkeys(ALL_SHARDS - {shard_of("q")}, 1), "others are not published again"
    again = Publishing(tmp_path, link)
    while await again.publish():
        pass
    assert numbers_of(link, "a") == [1]
    found = numbers_of(link, "q")
    assert found[before] == on_disk.row + 1
    assert found[before:] == list(range(on_disk.row + 1, HEAVY + 1))


@pytest.mark.usefixtures("short_turns")
async def test_commits_that_are_gone_behind_count_once(tmp_path: Path) -> None:
    #  commits   [ 1: q ... ][ 2 ][ 3: gone ][ 4 ]     the front loses 3, then q does, and 2, which is gone by then
    link = FlakyLink()
    it = Publishing(tmp_path, link)
    it.table.append(answers_of(q=HEAVY, a=1), 0)
    for number in range(1, 4):
        it.table.append(answers_of(q=1, a=1), number)
    log = tmp_path / "results" / archived_log.LOG
    (log / f"{3:020d}.json").unlink()
    while it.publisher.position != Position(4):
        await it.publish()
    assert (it.publication.now.lost.commits, numbers_of(link, "a")) == (1, [1, 2, 4])
    (log / f"{2:020d}.json").unlink()
    while await it.publish():
        pass
    assert numbers_of(link, "q") == [*range(1, HEAVY + 1), HEAVY + 3]
    assert it.publication.now.lost.commits == 2
    assert it.publication.now.versions(ALL_SHARDS) == dict.fromkeys(ALL_SHARDS, 4)


@pytest.mark.usefixtures("short_turns")
async def test_what_cannot_be_read_behind_keeps_no_other_waiting(tmp_path: Path) -> None:
    #  q's rest cannot be read for a time; others go on
    class Unreadable(CommittedResults):
        broken = False

        def read(self, version: int, newest: int, passes_over: Any = lambda *_: False) -> Any:
            if self.broken and version == 1:
                raise StorageError("it cannot be read")
            return super().read(version, newest, passes_over)

    link = FlakyLink()
    it = Publishing(tmp_path, link)
    it.table.append(answers_of(q=HEAVY, a=1), 0)
    results = Unreadable(it.table.root)
    it.publisher = Publisher(results, it.publication, link)
    await it.publish()
    results.broken = True
    it.table.append(answers_of(a=1), 1)
    with pytest.raises(StorageError):
        await it.publish()
    assert numbers_of(link, "a") == [1, 2]
    results.broken = False
    while await it.publish():
        pass
    assert numbers_of(link, "q") == list(range(1, HEAVY + 1))

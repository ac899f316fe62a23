"""Several publishers, killed at any point and started in any number: no row is left out, none goes back in its topic.

Queries with many rows in a commit fall behind, in each of them.

life             1                   2             3
publishers       2: 0 ....X  1 ...   3: 0 ..  1X   1: 0 .............      X is a kill, at any step of its process
broker           [1 2 1 2 3 .....    [3 4 ....     [4 5 6 .............
positions        of shards           as they were  as they were
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.service.publishing import publication, result_chunks, turns
from cluster.service.publishing.publication import Publication, divide, published_of
from cluster.service.publishing.published import ALL_SHARDS, SHARDS, Share, shard_of, shares_of
from cluster.service.publishing.publisher import Publisher
from cluster.storage.committed_results import RESULT_SCHEMA, PassesOver
from protocols.mqtt.link import BrokenOffError
from protocols.mqtt.publish_frames import PublishFrames
from tests.cluster.service.test_publisher import messages_of

NAMES = [f"q{number}" for number in range(6)]
BATCH_ROWS = 3


class KilledError(Exception):
    """The process is killed."""


@dataclass
class Life:
    """How long a process lives: so many steps, or for ever."""

    steps: int | None
    dead: bool = False

    def step(self) -> None:
        """Go on, or be killed here."""
        if self.steps == 0:
            self.dead = True
        if self.dead:
            raise KilledError
        if self.steps is not None:
            self.steps -= 1


@dataclass
class Table:
    """Commits, as lists of queries' names; a row is numbered among those of its query."""

    commits: list[list[str]]
    version_of: dict[tuple[str, int], int] = field(default_factory=dict)
    """The version that has a row, by query and number."""
    _rows: list[list[dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        last: Counter[str] = Counter()
        for version, names in enumerate(self.commits, 1):
            rows = []
            for name in names:
                last[name] += 1
                self.version_of[name, last[name]] = version
                rows.append(
                    {"query": name, "sequence": last[name], "start_us": 0, "end_us": 1, "kind": "row", "row": "{}",
                     "closes": None}
                )  # fmt: skip
            self._rows.append(rows)

    def read(self, version: int, newest: int, passes_over: PassesOver) -> Iterator[pa.RecordBatch | int]:
        assert version <= newest <= len(self.commits)
        rows = self._rows[version - 1]
        for start in range(0, len(rows), BATCH_ROWS):
            yield pa.RecordBatch.from_pylist(rows[start : start + BATCH_ROWS], RESULT_SCHEMA)


class Broker:
    """Takes messages one by one; checks their order."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.last: Counter[str] = Counter()
        self.repeats = 0
        self.may_not_repeat: dict[int, int] = {}
        """The version of each shard that is on disk."""

    def take(self, payload: bytes) -> None:
        row = msgspec.json.decode(payload)
        query, number = row["query"], row["sequence"]
        assert number <= self.last[query] + 1, "a row came before the one in front of it"
        assert self.table.version_of[query, number] > self.may_not_repeat[shard_of(query)], "it had been published"
        self.repeats += number <= self.last[query]
        self.last[query] = max(number, self.last[query])


class Link:
    """A process's connection."""

    def __init__(self, broker: Broker, life: Life) -> None:
        self.connected = asyncio.Event()
        self.connected.set()
        self._broker = broker
        self._life = life
        self._writing = asyncio.Lock()

    async def publish_frames(self, frames: PublishFrames) -> None:
        async with self._writing:
            for message in messages_of(frames):
                self._life.step()
                self._broker.take(message.payload)
                await asyncio.sleep(0)  # what does not wait for the acknowledgement goes on here
        self._life.step()  # acknowledged from here on


async def live(folder: Path, share: Share, broker: Broker, life: Life, newest: int, *, at_once: bool = False) -> None:
    """Run a publisher until it has published everything, or is killed; front and queries behind in turn, or at once."""

    def write(path: Path, content: bytes) -> None:
        life.step()
        path.write_bytes(content)
        life.step()

    async def here(call: Any, *arguments: Any) -> Any:
        """Call, in this thread: a run is the same each time."""
        if at_once:
            await asyncio.sleep(0)
        return call(*arguments)

    with patch.object(publication, "write_whole", write), patch.object(asyncio, "to_thread", here):
        try:
            it = Publisher(broker.table, Publication(folder, share), Link(broker, life))  # type: ignore[arg-type] # it only reads
            it.announce(newest)
            if at_once:
                await _run(it, newest)
            while await it.publish():
                pass
        except* KilledError:
            pass


async def _run(it: Publisher, newest: int) -> None:
    running = asyncio.create_task(it.run())
    while not running.done() and (it.position != (newest, 0) or it.turns.behind()):  # noqa: ASYNC110 - it does not say
        await asyncio.sleep(0)
    it.stop()
    await running


@given(
    st.lists(st.lists(st.sampled_from(NAMES), max_size=8), min_size=1, max_size=8),
    st.lists(
        st.tuples(
            st.one_of(st.integers(1, 4), st.just(SHARDS)),
            st.lists(st.one_of(st.none(), st.integers(0, 40)), min_size=SHARDS, max_size=SHARDS),
            st.integers(0, 8),
        ),
        max_size=5,
    ),
    st.integers(1, 6),
    st.integers(1, 9),
    st.booleans(),
)
def test_rows_are_published_in_order_through_kills_and_any_number_of_publishers(
    commits: list[list[str]],
    lives: list[tuple[int, list[int | None], int]],
    chunk_rows: int,
    turn_rows: int,
    at_once: bool,
) -> None:
    table = Table(commits)
    broker, done = Broker(table), 0
    with (
        tempfile.TemporaryDirectory() as name,
        patch.object(result_chunks, "CHUNK_ROWS", chunk_rows),
        patch.object(turns, "TURN_ROWS", turn_rows),
        patch.object(turns, "TURNS_ALONE", 2),
        patch.object(publication, "write_whole", Path.write_bytes),
    ):
        folder = Path(name)
        for publishers, deaths, to in [*lives, (2, [None] * SHARDS, len(commits)), (1, [None], len(commits))]:
            newest = max(done, min(to, len(commits)))
            divide(folder, publishers)
            for share, steps in zip(shares_of(publishers), deaths, strict=False):
                broker.may_not_repeat = published_of(folder).versions(ALL_SHARDS)
                asyncio.run(live(folder, share, broker, Life(steps), newest, at_once=at_once))
            done = newest
            on_disk = published_of(folder).versions(ALL_SHARDS)
            for (query, number), version in table.version_of.items():
                assert version > on_disk[shard_of(query)] or number <= broker.last[query], "a position was ahead"
        assert set(published_of(folder).versions(ALL_SHARDS).values()) == {len(commits)}
    assert broker.last == Counter(query for rows in commits for query in rows)
    if all(steps is None for _, deaths, _ in lives for steps in deaths):
        assert broker.repeats == 0


@pytest.mark.parametrize("sent_before", range(5))
async def test_a_row_that_was_acknowledged_is_not_sent_again_after_the_broker_was_away(
    tmp_path: Path, sent_before: int
) -> None:
    #  rows of the commit      b a b a b a b a     a and b have different publishers
    #  publisher of a            1   2 X           the broker goes away, here after two of its rows
    #                                  3   4       no row before the third is sent again
    mine, other = next((a, b) for a in NAMES for b in NAMES if shard_of(a) % 2 == 1 and shard_of(b) % 2 == 0)
    table = Table([[other, mine] * 4])
    sent: defaultdict[str, list[int]] = defaultdict(list)

    class AwayOnce:
        connected = asyncio.Event()
        away = True

        async def publish_frames(self, frames: PublishFrames) -> None:
            for taken, message in enumerate(messages_of(frames)):
                if self.away and taken == sent_before:
                    self.away = False
                    raise BrokenOffError("the broker went away", taken)
                row = msgspec.json.decode(message.payload)
                sent[row["query"]].append(row["sequence"])

    divide(tmp_path, 2)
    it = Publisher(table, Publication(tmp_path, Share(1, 2)), AwayOnce())  # type: ignore[arg-type] # it only reads
    it.announce(1)
    if sent_before < len(table.commits[0]) // 2:
        with pytest.raises(BrokenOffError):
            await it.publish()
        assert it.position == (0, 2 * sent_before), "rows of others count"
    while await it.publish():
        pass
    assert dict(sent) == {mine: [1, 2, 3, 4]}

"""Turns between queries: one with very many rows in a commit falls behind alone, without a broker, a disk and a clock.

Random lives: the front and queries behind it read, send and are acknowledged in any order; the link breaks, and the
publisher is killed. Each query's rows come in order, none is left out, and the front waits for no query.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.service.publishing import result_chunks, turns
from cluster.service.publishing.published import ALL_SHARDS, EVERYTHING, Position, Published, shard_of
from cluster.service.publishing.result_chunks import Chunk, Segment, Which, chunks
from cluster.service.publishing.result_messages import no_frames
from cluster.service.publishing.turns import Behind, GoneCommits, InFront, OfQuery, PublishingPosition, Turns, by_shard
from tests.cluster.service.test_publisher import messages_of
from tests.cluster.service.test_several_publishers import BATCH_ROWS, NAMES, Table

if TYPE_CHECKING:
    from cluster.storage.committed_results import PassesOver

TURN = 3
COMMITS = st.lists(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 9)), max_size=4).map(
        lambda runs: [name for name, count in runs for _ in range(count)]
    ),
    min_size=1,
    max_size=7,
)
STEPS = st.lists(
    st.one_of(
        st.sampled_from(["front", "behind", "front", "behind", "acknowledge", "announce"]).map(lambda kind: (kind, 0)),
        st.tuples(st.just("take"), st.integers(1, 6)),
        st.tuples(st.just("break"), st.integers(0, 6)),
        st.just(("kill", 0)),
    ),
    max_size=120,
)


@dataclass
class Sender:
    """Publishes in front, or behind."""

    progress: PublishingPosition
    which: Which
    behind: Behind | None = None
    ahead: Iterator[Chunk] | None = None
    done: bool = False
    """Whether it reads no more before everything is acknowledged."""
    rows: int = 0


@dataclass
class OnItsWay:
    """A chunk, and how many of its rows the broker has taken."""

    sender: Sender
    chunk: Chunk
    numbers: list[tuple[str, int]]
    taken: int = 0


@dataclass
class Life:
    """A publisher over such a table, its link, and what the broker has."""

    table: Table
    newest: int = 0
    noted: Published = field(default_factory=Published)
    last: Counter[str] = field(default_factory=Counter)
    """The last number of each query that the broker has taken."""
    repeats: int = 0
    link: deque[OnItsWay] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin as what is noted says."""
        self.link.clear()
        self.turns = Turns()
        at = PublishingPosition(Position(self.noted.version, self.noted.row))
        noted = self.noted
        self.front = Sender(at, InFront(self.turns, lambda version: noted.unpublished(version, EVERYTHING)))
        self.behind: Sender | None = None

    def read(self, version: int, newest: int, passes_over: PassesOver) -> Iterator[pa.RecordBatch | int]:
        """Yield a commit in groups, as a file has them."""
        first = 0
        for rows in self.table.read(version, newest, passes_over):
            assert not isinstance(rows, int)
            names = rows.column("query").to_pylist()
            yield rows.num_rows if passes_over(first, rows.num_rows, lambda names=names: set(names)) else rows
            first += rows.num_rows

    def step(self, kind: str, count: int) -> None:
        """Do something, if it can be done."""
        match kind:
            case "announce":
                self.newest = min(self.newest + 1, len(self.table.commits))
            case "front":
                self._send(self.front)
            case "behind":
                self._send_behind()
            case "take":
                for _ in range(count):
                    self._take()
            case "acknowledge":
                if self.link and self.link[0].taken == len(self.link[0].numbers):
                    found = self.link.popleft()
                    found.sender.progress.received()
                    self._acknowledged(found.sender)
            case "break":
                self._break(count)
            case "kill":
                self.begin()
        self._check()

    def _send_behind(self) -> None:
        if self.behind is None:
            each = self.turns.next_turn(self.front.progress.acknowledged)
            if each is None:
                return
            self.behind = Sender(each.progress, OfQuery(each.query), each)
        if not self.behind.done:
            self._send(self.behind)

    def _send(self, sender: Sender) -> None:
        if sender.progress.full or sender.done:
            return
        if sender.ahead is None:
            if not sender.progress.idle:
                return
            sender.ahead = chunks(self.read, sender.progress.acknowledged, self.newest, lambda _: {}, sender.which)
        chunk = next(sender.ahead, None)
        if chunk is None:
            sender.ahead = None
        else:
            sender.progress.sent(chunk)
            rows = [msgspec.json.decode(each.payload) for each in messages_of(chunk.frames)]
            self.link.append(OnItsWay(sender, chunk, [(row["query"], row["sequence"]) for row in rows]))
        if sender.behind is not None:
            front = self.front.progress.acknowledged
            sender.rows += 0 if chunk is None else len(chunk.frames)
            sender.done = (
                chunk is None
                or sender.rows >= self.turns.rows_of_turn(sender.behind, front)
                or self.turns.is_level(chunk.after(len(chunk.frames)))
            )
            self._end_turn(sender)

    def _end_turn(self, sender: Sender) -> None:
        if sender.behind is not None and sender.done and sender.progress.idle:
            self.turns.rejoin(sender.behind)
            self.turns.settle(self.front.progress.acknowledged)
            self.behind = None

    def _take(self) -> None:
        found = next((each for each in self.link if each.taken < len(each.numbers)), None)
        if found is not None:
            query, number = found.numbers[found.taken]
            assert number <= self.last[query] + 1, "a row came before the one in front of it"
            self.repeats += number <= self.last[query]
            self.last[query] = max(number, self.last[query])
            found.taken += 1

    def _break(self, acknowledged: int) -> None:
        """Both lose what is on its way: the broker has acknowledged some of the oldest chunk."""
        if self.link:
            oldest = self.link.popleft()
            oldest.sender.progress.received(min(acknowledged, oldest.taken))
            self._acknowledged(oldest.sender)
        self.link.clear()
        for sender in (self.front, self.behind):
            if sender is not None:
                sender.progress.broken_off()
                sender.ahead = None
        self.behind = None

    def _acknowledged(self, sender: Sender) -> None:
        self.turns.settle(self.front.progress.acknowledged)
        self._end_turn(sender)
        self.noted = self.noted.reached(self.front.progress.acknowledged, by_shard(self.turns.behind()), EVERYTHING)

    def _check(self) -> None:
        """The broker has everything up to what is noted, on disk and in memory."""
        noted, front, behind = self.noted, self.front.progress.acknowledged, self.turns.behind()
        versions = noted.versions(ALL_SHARDS)
        for query, has in self.rows_by_query.items():
            published = min(behind.get(query, front), front)
            least = Position(versions[shard_of(query)])
            if least.version == noted.version:
                least = Position(noted.version, noted.row)
            assert least <= published or versions[shard_of(query)] > front.version
            assert self.last[query] >= self.rows_before(has, published), "a row counts that the broker lacks"
            assert self.last[query] >= self.rows_before(has, least), "a row is noted that the broker lacks"

    @cached_property
    def rows_by_query(self) -> dict[str, list[Position]]:
        """The positions of each query's rows."""
        found: dict[str, list[Position]] = {}
        for version, names in enumerate(self.table.commits):
            for row, name in enumerate(names):
                found.setdefault(name, []).append(Position(version, row))
        return found

    @staticmethod
    def rows_before(rows: list[Position], end: Position) -> int:
        """Return how many rows lie before a position."""
        return bisect_left(rows, end)

    def finish(self) -> None:
        """Let it publish everything."""
        for _ in range(20 * sum(map(len, self.table.commits)) + 20 * len(self.table.commits) + 20):
            for kind, count in (("announce", 0), ("front", 0), ("behind", 0), ("take", 9), ("acknowledge", 0)):
                self.step(kind, count)


@given(COMMITS, STEPS, st.integers(1, 4))
@example([[NAMES[0]] * 9 + [NAMES[1]], [NAMES[1]], [NAMES[0]]], [], 1)
def test_rows_come_in_order_and_none_is_left_out(
    commits: list[list[str]], steps: list[tuple[str, int]], at_once: int
) -> None:
    with patch.object(result_chunks, "CHUNK_ROWS", at_once), patch.object(turns, "TURN_ROWS", TURN):
        life = Life(Table(commits))
        for kind, count in steps:
            life.step(kind, count)
        life.finish()
    assert life.last == Counter(name for names in commits for name in names)
    assert (life.noted.version, life.noted.row, life.noted.ahead) == (len(commits), 0, {})
    assert not life.turns.behind()
    if not any(kind in {"break", "kill"} for kind, _ in steps):
        assert life.repeats == 0, "nothing is published twice without a cause"


@given(COMMITS, st.integers(1, 4))
def test_the_front_waits_for_no_query_behind(commits: list[list[str]], at_once: int) -> None:
    #  no query ever gets a turn behind
    with patch.object(result_chunks, "CHUNK_ROWS", at_once), patch.object(turns, "TURN_ROWS", TURN):
        life = Life(Table(commits), newest=len(commits))
        for _ in range(3 * sum(map(len, commits)) + 3 * len(commits) + 3):
            for kind in ("front", "take", "acknowledge"):
                life.step(kind, 9)
    assert life.front.progress.acknowledged == Position(len(commits))
    behind = life.turns.behind()
    assert behind.keys() <= {name for names in commits for name, count in Counter(names).items() if count >= TURN}
    for name, rows in life.rows_by_query.items():
        assert life.last[name] == life.rows_before(rows, behind.get(name, Position(len(commits))))
        in_a_commit = Counter(at.version for at in rows[: life.last[name]])
        assert name not in behind or in_a_commit[behind[name].version] < TURN + BATCH_ROWS, "a turn has an end"
    others = ALL_SHARDS - {shard_of(name) for name in behind}
    assert set(life.noted.versions(others).values()) == {len(commits)}, "what is behind keeps the position of no other"


def test_turns_go_round() -> None:
    all_turns = Turns()
    for name in "abc":
        assert all_turns.fall_behind(name, Position(0, 5))
    assert not all_turns.fall_behind("b", Position(1)), "it is behind"
    assert all_turns.next_turn(Position(0, 4)) is None, "its rows before are not acknowledged"
    found = [all_turns.next_turn(Position(0, 5)) for _ in range(5)]
    assert [each.query for each in found if each is not None] == list("abcab")
    assert found[0] is not None
    assert all_turns.rows_of_turn(found[0], Position(0, 5)) == turns.TURN_ROWS
    assert all_turns.falls == 3


def test_a_query_that_is_behind_alone_has_longer_turns() -> None:
    all_turns = Turns()
    all_turns.fall_behind("q", Position(0, 5))
    all_turns.fall_behind("p", Position(0, 9))
    each = all_turns.next_turn(Position(0, 5))
    assert each is not None
    alone = turns.TURN_ROWS * turns.TURNS_ALONE
    assert [all_turns.rows_of_turn(each, front) for front in (Position(0, 5), Position(0, 9))] == [
        alone,
        turns.TURN_ROWS,
    ]


def test_only_so_many_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_BEHIND", 2)
    all_turns = Turns()
    assert [all_turns.fall_behind(name, Position(0, 5)) for name in "abc"] == [True, True, False]


def test_a_query_goes_on_in_front_behind_what_the_front_has_begun_to_read() -> None:
    #  front   reads 6 ...                  leaves out q up to 6, and takes it from 7 on
    #  behind          has 5, then has 6
    all_turns = Turns()
    all_turns.fall_behind("q", Position(4, 9))
    assert (all_turns.begin(4), all_turns.begin(5), all_turns.begin(6)) == ({}, {"q": 9}, {"q": 0})
    each = all_turns.next_turn(Position(5))
    assert each is not None
    each.progress = PublishingPosition(Position(5))
    assert not all_turns.rejoin(each)
    each.progress = PublishingPosition(Position(5, 3))
    assert not all_turns.rejoin(each)
    each.progress = PublishingPosition(Position(6))
    each.progress.sent(Chunk(no_frames(), Position(6), (Segment(7, 0, 0, last=True),)))
    assert not all_turns.rejoin(each), "something is on its way"
    each.progress.broken_off()
    assert all_turns.rejoin(each)
    assert (all_turns.begin(6), all_turns.begin(7)) == ({"q": 0}, {})
    all_turns.settle(Position(5, 99))
    assert all_turns.begin(6) == {"q": 0}, "the front may go back to it"
    all_turns.settle(Position(6))
    assert all_turns.begin(6) == {}


def test_few_rows_among_very_many_need_not_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_ROWS", 1_000)
    all_turns = Turns()
    front = InFront(all_turns, lambda _: ALL_SHARDS)
    front.begin(1)
    names = pa.array(["q"] * 600 + ["p"] * 2)
    assert [front.chosen(names, first) for first in (0, 602)] == [None, None]
    assert all_turns.behind() == {"q": Position(0, 602 + 600)}
    found = front.chosen(names, 1_204)
    assert found is not None
    assert found.tolist() == [False] * 600 + [True] * 2
    assert front.passes_over(1_806, lambda: {"q"})
    assert not front.passes_over(1_806, lambda: {"q", "p"})


def test_commits_that_are_gone_count_once_until_all_are_past_them() -> None:
    gone = GoneCommits()
    gone.note(4, 8)
    gone.forget(6)
    assert gone.new(7, 9) == 1
    gone.forget(7)
    assert gone.new(7, 9) == 2


def test_a_position_of_a_shard_is_that_of_its_last_query() -> None:
    first, second = next(
        (a, b) for a in map(str, range(99)) for b in map(str, range(99)) if a < b and shard_of(a) == shard_of(b)
    )
    assert by_shard({first: Position(3, 8), second: Position(3, 2)}) == {shard_of(first): Position(3, 2)}


def test_rows_do_not_wait_while_very_many_behind_them_are_passed_over() -> None:
    passed: list[int] = []

    def read(version: int, newest: int, passes_over: PassesOver) -> Iterator[pa.RecordBatch | int]:
        (rows,) = Table([["q"]]).read(version, newest, passes_over)
        yield rows
        for part in range(4):
            passed.append(part)
            yield result_chunks.MOST_LEFT_OUT // 2

    found = chunks(read, Position(0), 1, lambda _: {})
    first = next(found)
    assert (len(first.frames), first.after(1), passed) == (1, Position(0, 1), [0, 1, 2])
    (rest,) = found
    assert rest.after(0) == Position(1)

"""Random lives of a publisher, without a broker and a disk: what is noted is never ahead of what the broker has.

commits   [ 1    ][ 2 ][][ 4         ]        cut into chunks anywhere
life      send, acknowledge, break off in the middle of a chunk, be killed, find commits gone
"""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.service.publishing.published import Position
from cluster.service.publishing.result_chunks import Chunk, Segment
from cluster.service.publishing.turns import CHUNKS_IN_FLIGHT, LostCommits, PublishingPosition
from protocols.mqtt.publish_frames import PublishFrames

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 9)),
        st.tuples(st.just("acknowledge"), st.just(0)),
        st.tuples(st.just("break"), st.integers(0, 9)),
        st.tuples(st.just("kill"), st.just(0)),
    ),
    max_size=60,
)


def chunk_after(position: Position, commits: list[int], most_rows: int) -> Chunk | None:
    """Return the next chunk of about so many rows; None if there are no more commits."""
    segments: list[Segment] = []
    version, first, rows = position.version + 1, position.row, 0
    while version <= len(commits) and rows < most_rows:
        part = min(commits[version - 1] - first, most_rows - rows)
        last = first + part == commits[version - 1]
        segments += [Segment(version, first, part)] * (part > 0) + [Segment(version, first + part, 0, last=True)] * last
        rows += part
        version, first = (version + 1, 0) if last else (version, first + part)
    return Chunk(cast("PublishFrames", range(rows)), position, tuple(segments)) if segments else None


def rows_before(position: Position, commits: list[int]) -> int:
    return sum(commits[: position.version]) + position.row


class Life:
    """A publisher over such commits, and what the broker has."""

    def __init__(self, commits: list[int]) -> None:
        self.commits = commits
        self.noted = 0
        self.on_their_way: list[Chunk] = []
        self.broker: set[int] = set()
        """The rows that it has acknowledged."""
        self.progress = PublishingPosition(Position(0))

    def end(self) -> Position:
        last = self.on_their_way[-1] if self.on_their_way else None
        return self.progress.acknowledged if last is None else last.after(len(last.frames))

    def send(self, rows: int) -> None:
        chunk = chunk_after(self.end(), self.commits, rows)
        if chunk is not None and not self.progress.full:
            self.progress.sent(chunk)
            self.on_their_way.append(chunk)

    def acknowledge(self, rows: int | None) -> None:
        if not self.on_their_way:
            return
        chunk = self.on_their_way.pop(0)
        count = len(chunk.frames) if rows is None else min(rows, len(chunk.frames))
        begins = rows_before(chunk.begins, self.commits)
        self.broker.update(range(begins, begins + count))
        self.progress.received(None if rows is None else count)
        assert self.progress.acknowledged.version >= self.noted
        self.noted = self.progress.acknowledged.version

    def step(self, kind: str, rows: int) -> None:
        match kind:
            case "send":
                self.send(rows)
            case "acknowledge":
                self.acknowledge(None)
            case "break":
                self.acknowledge(rows)
                self.progress.broken_off()
                self.on_their_way.clear()
            case "kill":
                self.progress = PublishingPosition(Position(self.noted))
                self.on_their_way.clear()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), STEPS)
def test_the_broker_has_everything_before_the_position_and_the_noted_version(
    commits: list[int], steps: list[tuple[str, int]]
) -> None:
    life = Life(commits)
    for kind, rows in steps:
        life.step(kind, rows)
        position = life.progress.acknowledged
        assert set(range(rows_before(position, commits))) <= life.broker
        assert life.noted == position.version
        assert len(life.on_their_way) <= CHUNKS_IN_FLIGHT
    for _ in range(2 * sum(commits) + len(commits)):
        life.step("send", 3)
        life.step("acknowledge", 0)
    assert life.broker == set(range(sum(commits)))
    assert life.noted == len(commits)


def test_a_chunk_that_does_not_follow_is_refused() -> None:
    progress = PublishingPosition(Position(0))
    chunk = chunk_after(Position(0), [5, 5], 3)
    assert chunk is not None
    progress.sent(chunk)
    with pytest.raises(ValueError, match="ends at"):
        progress.sent(chunk)


def test_rows_are_counted_as_they_are_acknowledged() -> None:
    progress = PublishingPosition(Position(0))
    for _ in range(2):
        chunk = chunk_after(progress.acknowledged, [5, 5], 4)
        assert chunk is not None
        progress.sent(chunk)
        progress.received(3)
    assert (progress.rows, progress.acknowledged) == (6, Position(1, 1))


def test_commits_that_are_gone_count_without_the_rows_that_were_published() -> None:
    progress = PublishingPosition(Position(4, 2))
    lost = progress.gone(5, 8, 10)
    assert lost == LostCommits(through=7, commits=3, rows=8)
    assert progress.acknowledged == Position(4, 2), "it is noted first"
    progress.go_on_after(lost)
    assert progress.acknowledged == Position(7)
    assert progress.gone(8, 9, None).rows == 0

"""Shards of queries and their positions: each belongs to one publisher, and keeps its position when that changes.

division      2 publishers          3 publishers                1 publisher
shard 0       0: 5                  0: 5 ... 9                  0: 9
shard 1       1: 8                  1: 8 ... 8                  0: 9, ahead where it was further
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.errors import StorageError
from cluster.service.publishing.publication import (
    FILE,
    Publication,
    begin,
    divide,
    lock_publication,
    published_of,
    rewind,
    unlock_publication,
)
from cluster.service.publishing.published import (
    ALL_SHARDS,
    SHARDS,
    LostResults,
    Position,
    Published,
    Share,
    part_of,
    shard_of,
    shares_of,
    united,
    with_versions,
)

PUBLISHERS = st.integers(1, SHARDS)
VERSIONS = st.lists(st.integers(0, 9), min_size=SHARDS, max_size=SHARDS).map(lambda found: dict(enumerate(found)))


def test_shards_of_names_never_change() -> None:
    #  names   of digests by another program: b2sum -l 64, the last digit of the first byte
    assert [shard_of(name) for name in ("slow", "fast", "q1", "straße")] == [5, 14, 7, 2]


@given(PUBLISHERS, st.text())
def test_each_query_has_exactly_one_publisher(publishers: int, query: str) -> None:
    shares = shares_of(publishers)
    assert [shard_of(query) in share.shards for share in shares].count(True) == 1
    assert sorted(shard for share in shares for shard in share.shards) == sorted(ALL_SHARDS)
    sizes = [len(share.shards) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(VERSIONS, PUBLISHERS)
def test_shards_keep_their_positions_when_they_are_divided_and_united(
    versions: dict[int, int], publishers: int
) -> None:
    whole = with_versions(Published(publishers=publishers, lost=LostResults(1, 2, 3, 4)), versions)
    assert whole.versions(ALL_SHARDS) == versions
    parts = {share.number: part_of(whole, share) for share in shares_of(publishers)}
    for share in shares_of(publishers):
        mine = {shard: versions[shard] for shard in share.shards}
        assert parts[share.number].versions(share.shards) == mine
        assert parts[share.number].version == min(mine.values()), "none of its shards is further behind"
    assert united(whole, parts) == whole


@given(VERSIONS, PUBLISHERS, st.data())
def test_a_publisher_moves_its_own_shards_only_and_never_back(
    versions: dict[int, int], publishers: int, data: st.DataObject
) -> None:
    whole = with_versions(Published(publishers=publishers), versions)
    share = Share(data.draw(st.integers(0, publishers - 1)), publishers)
    before = part_of(whole, share)
    version = data.draw(st.integers(before.version + 1, 12))
    after = united(whole, {share.number: before.reached(Position(version), {}, share)}).versions(ALL_SHARDS)
    wanted = {shard: max(at, version) if shard in share.shards else at for shard, at in versions.items()}
    assert after == wanted


@given(VERSIONS, st.integers(1, 12))
def test_a_version_is_unpublished_of_the_shards_behind_it(versions: dict[int, int], version: int) -> None:
    for share in shares_of(3):
        part = part_of(with_versions(Published(publishers=3), versions), share)
        assert part.unpublished(version, share) == {shard for shard in share.shards if versions[shard] < version}


@given(VERSIONS, st.integers(0, 12))
def test_after_a_loss_no_shard_is_ahead_of_the_newest_version(versions: dict[int, int], newest: int) -> None:
    found = with_versions(Published(), versions).back_to(newest)
    assert found.versions(ALL_SHARDS) == {shard: min(at, newest) for shard, at in versions.items()}


@example(2, 1, 2)
@example(2, 1, 3)
@given(st.integers(0, 9), st.integers(0, 5), st.integers(0, 12))
def test_rows_of_a_commit_that_is_lost_do_not_count_for_the_next_one(version: int, row: int, newest: int) -> None:
    found = Published(version, row=row).back_to(newest)
    assert (found.version, found.row) == (min(version, newest), row if version < newest else 0)


def test_positions_are_kept_on_disk_by_each_publisher(tmp_path: Path) -> None:
    #  one publisher  4  |  two: 6 and 9  |  three go on there  |  the last file of a publisher that is gone says 9
    Publication(tmp_path).note(Position(4))
    divide(tmp_path, 2)
    assert [Publication(tmp_path, share).now.version for share in shares_of(2)] == [4, 4]
    for share, version in zip(shares_of(2), (6, 9), strict=True):
        Publication(tmp_path, share).note(Position(version))
    assert published_of(tmp_path).versions(ALL_SHARDS) == {shard: 9 if shard % 2 else 6 for shard in ALL_SHARDS}
    for publishers in (3, 2, 16, 1):
        divide(tmp_path, publishers)
        assert published_of(tmp_path).versions(ALL_SHARDS) == {shard: 9 if shard % 2 else 6 for shard in ALL_SHARDS}
    assert (Publication(tmp_path).now.version, Publication(tmp_path).unpublished(7)) == (6, set(range(0, SHARDS, 2)))


def test_files_of_an_earlier_division_do_not_count(tmp_path: Path) -> None:
    #  divided among two, which come to 9; then versions after 5 are lost, and others take their place
    divide(tmp_path, 2)
    for share in shares_of(2):
        Publication(tmp_path, share).note(Position(9))
    for _ in range(2):
        rewind(tmp_path, 5)
    assert published_of(tmp_path).versions(ALL_SHARDS) == dict.fromkeys(ALL_SHARDS, 5)
    assert published_of(tmp_path).lost.commits == 4
    assert [Publication(tmp_path, share).now.version for share in shares_of(2)] == [5, 5]


def test_commits_that_several_publishers_lose_are_counted_once(tmp_path: Path) -> None:
    divide(tmp_path, 2)
    for share in shares_of(2):
        Publication(tmp_path, share).note_lost(Position(7), commits=3, rows=4)
    divide(tmp_path, 1)
    lost = Publication(tmp_path).now.lost
    assert (lost.times, lost.commits, lost.rows) == (1, 3, 4)


def test_a_folder_of_an_earlier_program_is_divided_with_the_rows_it_has_published(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"version":2,"lost":{"times":1,"commits":1,"rows":4,"seen_us":7},"row":1}')
    before = Publication(tmp_path).now
    begin(tmp_path, Published(9))
    divide(tmp_path, 3)
    for share in shares_of(3):
        now = Publication(tmp_path, share).now
        assert (now.version, now.row, now.lost) == (2, 1, before.lost)
    Publication(tmp_path, Share(0, 3)).note(Position(3))
    divide(tmp_path, 1)
    now = Publication(tmp_path).now
    assert (now.version, now.row) == (2, 1), "of the shards that are behind"
    assert now.ahead == dict.fromkeys(Share(0, 3).shards, 3)


@pytest.mark.parametrize(
    ("running", "started", "allowed"),
    [
        (Share(0, 1), Share(0, 1), False),
        (Share(0, 1), Share(1, 2), False),
        (Share(1, 2), Share(0, 1), False),
        (Share(1, 2), Share(1, 2), False),
        (Share(1, 2), Share(0, 2), True),
    ],
)
def test_no_two_processes_publish_the_same(tmp_path: Path, running: Share, started: Share, allowed: bool) -> None:
    first = lock_publication(tmp_path, running)
    if allowed:
        unlock_publication(lock_publication(tmp_path, started))
    else:
        with pytest.raises(StorageError, match="another process publishes"):
            lock_publication(tmp_path, started)
    unlock_publication(first)
    unlock_publication(lock_publication(tmp_path, started))


@pytest.mark.parametrize("running", [Share(0, 1), Share(1, 2)])
def test_results_are_not_divided_while_a_publisher_runs(tmp_path: Path, running: Share) -> None:
    divide(tmp_path, running.publishers)
    locked = lock_publication(tmp_path, running)
    divide(tmp_path, running.publishers)
    with pytest.raises(StorageError, match="another process publishes"):
        divide(tmp_path, 3)
    Publication(tmp_path, running).note(Position(7))
    with pytest.raises(StorageError, match="another process publishes"):
        rewind(tmp_path, 5)
    unlock_publication(locked)
    divide(tmp_path, 3)
    assert published_of(tmp_path).publishers == 3


@pytest.mark.parametrize("share", [Share(0, 1), Share(2, 3)])
def test_a_publisher_of_another_division_is_refused(tmp_path: Path, share: Share) -> None:
    divide(tmp_path, 2)
    with pytest.raises(StorageError, match="published by 2 publishers"):
        Publication(tmp_path, share)


@pytest.mark.parametrize(
    "content", ['{"version":-7}', '{"ahead":{"3":-1}}', '{"publishers":0}', '{"publishers":17}', '{"ahead":{"a":1}}']
)
def test_a_position_that_no_publisher_can_have_written_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(StorageError, match="cannot be read"):
        published_of(tmp_path)

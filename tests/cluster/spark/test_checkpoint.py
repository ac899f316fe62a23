"""Spark's log after a kill or a power cut: what is half written is removed, and the rest stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.errors import StorageError
from cluster.spark.checkpoint import discard_truncated, discard_unstarted, newest_epochs, newest_versions


def lay(folder: Path, *files: str) -> None:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_what_a_kill_leaves_of_the_first_log_entry_is_removed(tmp_path: Path) -> None:
    lay(tmp_path, "metadata", "offsets/.0.a41e.tmp", "offsets/..0.a41e.tmp.crc", "state/0/0/1.changelog")
    (tmp_path / "commits").mkdir()
    assert discard_unstarted(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata"]


@pytest.mark.parametrize("kept", [
    ("offsets/0",), ("offsets/12", "offsets/.13.b.tmp", "commits/11"), ("metadata",), (),
    ("commits/0", "offsets/.1.c.tmp"),
])  # fmt: skip
def test_a_checkpoint_that_has_begun_is_left_alone(tmp_path: Path, kept: tuple[str, ...]) -> None:
    lay(tmp_path, *kept)
    assert not discard_unstarted(tmp_path)
    assert all((tmp_path / name).exists() for name in kept)


def test_there_need_not_be_a_checkpoint(tmp_path: Path) -> None:
    assert not discard_unstarted(tmp_path / "none")


OFFSET, COMMIT = 'v1\n{"batchWatermarkMs":0}\n{"epoch": 1, "versions": {}}', 'v1\n{"nextBatchWatermarkMs":0}'


def lay_log(folder: Path, offsets: int, commits: int) -> None:
    for name, count, content in (("offsets", offsets, OFFSET), ("commits", commits, COMMIT)):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / str(number)).write_text(content)
    (folder / "metadata").write_text('{"id":"b27225c6"}')


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("cut", ["", "v1", "v1\n", OFFSET[:20], OFFSET[:-1], OFFSET[: OFFSET.rindex("\n")], "\0" * 50])
def test_an_offset_that_was_cut_off_is_planned_again(tmp_path: Path, cut: str) -> None:
    lay_log(tmp_path, 4, 3)
    before = left(tmp_path)
    (tmp_path / "offsets" / "3").write_text(cut)
    discard_truncated(tmp_path, lambda _: False)
    assert left(tmp_path) == [path for path in before if path != "offsets/3"]


DAMAGED_OFFSETS = {
    "no UTF-8": b'v1\n{}\n"\xff"',
    "too deep": b"v1\n{}\n" + b"[" * 100_000,
    "no object": b"v1\n{}\n[]",
    "no number": b'v1\n{}\n{"epoch":"3"}',
    "no versions": b'v1\n{}\n{"versions":{"traffic":null}}',
    "noise": b"\xff\xfe\x00\n\xc3\n\x80",
}


@pytest.mark.parametrize("content", DAMAGED_OFFSETS.values(), ids=DAMAGED_OFFSETS)
def test_a_damaged_offset_is_planned_again(tmp_path: Path, content: bytes) -> None:
    lay_log(tmp_path / "stateless", 4, 3)
    (tmp_path / "stateless" / "offsets" / "3").write_bytes(content)
    assert list(newest_epochs(tmp_path)) == []
    assert list(newest_versions(tmp_path)) == []
    discard_truncated(tmp_path / "stateless", lambda _: False)
    assert "offsets/3" not in left(tmp_path / "stateless")


def test_the_commit_of_a_damaged_offset_is_removed(tmp_path: Path) -> None:
    # Otherwise Spark could not commit the micro-batch that is planned again, and would stop at each start.
    lay_log(tmp_path, 4, 4)
    (tmp_path / "offsets" / "3").write_bytes(b"\xff")
    discard_truncated(tmp_path, lambda _: False)
    assert [path for path in left(tmp_path) if path.endswith("3")] == []


def test_a_damaged_offset_whose_results_are_stored_is_not_planned_again(tmp_path: Path) -> None:
    # Another end would be planned under its number, and what lies between the two would count as answered.
    lay_log(tmp_path, 4, 4)
    damaged = tmp_path / "offsets" / "3"
    damaged.write_bytes(b"\xff")
    with pytest.raises(StorageError, match="offsets/3") as raised:
        discard_truncated(tmp_path, lambda number: number == 3)
    assert "--data" in raised.value.hint
    assert damaged.read_bytes() == b"\xff"


@pytest.mark.parametrize("cut", ["", "v1", COMMIT[:10], "\0" * 9])
def test_a_micro_batch_whose_commit_was_cut_off_is_run_again(tmp_path: Path, cut: str) -> None:
    lay_log(tmp_path, 3, 3)
    before = left(tmp_path)
    (tmp_path / "commits" / "2").write_text(cut)
    (tmp_path / "metadata").write_text(cut)
    discard_truncated(tmp_path, lambda _: False)
    assert left(tmp_path) == [path for path in before if path not in ("commits/2", "metadata")]


def test_entries_that_are_complete_stay(tmp_path: Path) -> None:
    lay_log(tmp_path, 11, 10)
    before = left(tmp_path)
    discard_truncated(tmp_path, lambda _: False)
    assert left(tmp_path) == before
    discard_truncated(tmp_path / "none", lambda _: False)


@pytest.mark.parametrize("stored", [True, False])
def test_a_first_micro_batch_without_results_begins_anew(tmp_path: Path, stored: bool) -> None:
    lay_log(tmp_path, 1, 0)
    discard_truncated(tmp_path, lambda number: stored and number == 0)
    assert left(tmp_path) == ["metadata", *(["offsets/0"] if stored else [])]


def test_snapshots_of_state_that_may_be_cut_off_are_rebuilt(tmp_path: Path) -> None:
    lay_log(tmp_path, 4, 3)
    state = tmp_path / "state" / "0" / "1"
    state.mkdir(parents=True)
    for name, at in (("1.zip", 1), ("2.zip", 3), ("3.zip", 2), ("3.changelog", 4)):
        (state / name).write_text("x")
        os.utime(state / name, (at, at))
    os.utime(tmp_path / "offsets" / "2", (2, 2))
    discard_truncated(tmp_path, lambda _: False)
    assert sorted(path.name for path in state.iterdir()) == ["1.zip", "3.changelog"]
    os.utime(state / "1.zip", (9, 9))
    discard_truncated(tmp_path, lambda _: False)
    assert (state / "1.zip").exists(), "the only one"

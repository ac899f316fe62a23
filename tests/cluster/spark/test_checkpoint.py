"""A Fjord that was killed before its first micro-batch was logged begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.spark.checkpoint import check_layout, forget_unbegun


def lay(folder: Path, *files: str) -> None:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_what_a_kill_in_the_first_log_entry_leaves_is_forgotten(tmp_path: Path) -> None:
    lay(tmp_path, "metadata", "offsets/.0.a41e.tmp", "offsets/..0.a41e.tmp.crc", "state/0/0/1.changelog")
    (tmp_path / "commits").mkdir()
    assert forget_unbegun(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata"]


@pytest.mark.parametrize("kept", [
    ("offsets/0",), ("offsets/12", "offsets/.13.b.tmp", "commits/11"), ("metadata",), (),
    ("commits/0", "offsets/.1.c.tmp"),
])  # fmt: skip
def test_a_checkpoint_that_has_begun_is_left_alone(tmp_path: Path, kept: tuple[str, ...]) -> None:
    lay(tmp_path, *kept)
    assert not forget_unbegun(tmp_path)
    assert all((tmp_path / name).exists() for name in kept)


def test_no_checkpoint_at_all_is_fine(tmp_path: Path) -> None:
    assert not forget_unbegun(tmp_path / "none")
    check_layout(tmp_path / "none")


def test_the_checkpoint_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, "new/stateless/offsets/3", "new/stateful/offsets/4", "old/offsets/12")
    check_layout(tmp_path / "new")
    with pytest.raises(ClusterError, match="was written by a version of Fjord that ran all queries in one"):
        check_layout(tmp_path / "old")

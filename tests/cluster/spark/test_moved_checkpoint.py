"""A checkpoint that was moved gets its new paths, and nothing else in it changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.spark.checkpoint import corrected, relocate_checkpoint

NOTED = (
    'v2\n{{"operatorInfo":{{"operatorId":0,"operatorName":"transformWithStateInPySparkExec"}},"stateStoreInfo":'
    '[{{"storeName":"default","numPartitions":1,"stateSchemaFilePaths":["file:{place}/_stateSchema/default/0_da92"]}}],'
    '"operatorPropertiesJson":"{{\\"timeMode\\":\\"NoTime\\"}}"}}'
)


def lay(checkpoint: Path, place: Path | str) -> Path:
    noted = checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    noted.parent.mkdir(parents=True)
    noted.write_text(NOTED.format(place=place))
    noted.with_name(".0.crc").write_bytes(b"crc")
    return noted


def test_a_moved_checkpoint_gets_its_new_paths(tmp_path: Path) -> None:
    noted = lay(tmp_path / "stateful", "/srv/fjord/checkpoint-1234/stateful/state/0")
    relocate_checkpoint(tmp_path / "stateful")
    assert noted.read_text() == NOTED.format(place=tmp_path / "stateful" / "state" / "0")
    assert [path.name for path in noted.parent.iterdir()] == ["0"]


def test_a_checkpoint_that_was_not_moved_is_not_changed(tmp_path: Path) -> None:
    noted = lay(tmp_path / "stateful", tmp_path / "stateful" / "state" / "0")
    written = noted.stat().st_mtime
    os.utime(noted, (written + 60, written))  # to read it later changes no time of access then (mount(8), relatime)
    before = noted.stat()
    relocate_checkpoint(tmp_path / "stateful")
    assert noted.stat() == before
    assert noted.with_name(".0.crc").exists()


def test_without_a_checkpoint_there_is_nothing_to_do(tmp_path: Path) -> None:
    relocate_checkpoint(tmp_path / "none")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [
    b"", b"v2", b"v2\n", b"v2\n{", b"v2\n{}", b"v2\n[]", b"\xff\n\xff", b'v2\n{"stateStoreInfo":7}', b"v3\nwhatever",
    b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/a/elsewhere"]}]}',
])  # fmt: skip
def test_metadata_that_cannot_be_read_is_left_as_it_is(content: bytes) -> None:
    assert corrected(content, "file:/b/state/0") == content

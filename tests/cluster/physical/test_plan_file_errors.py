"""Errors about a plan file that cannot be used: they name the file, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cluster.errors import PlanError
from cluster.physical.nodes import PhysicalPlan
from cluster.physical.plan_files import PlanFiles


def of_another_format(path: Path) -> None:
    content = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**content, "format": 99}))


def of_another_epoch(path: Path) -> None:
    content = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**content, "epoch": 7}))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("spoil", [Path.unlink, of_another_format, of_another_epoch, cut_short])
def test_an_error_names_the_file_and_what_to_do(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    files = PlanFiles(tmp_path)
    for epoch in (1, 2, 3):
        files.write(PhysicalPlan(epoch))
    spoil(files.path(2))
    with pytest.raises(PlanError) as caught:
        PlanFiles(tmp_path).read(3)
    assert str(files.path(2)) in caught.value.message
    assert "data folder" in (caught.value.hint or "")


def test_an_epoch_with_another_plan_is_named_with_its_file(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    files.write(PhysicalPlan(1, positions={"traffic": 1}))
    with pytest.raises(PlanError) as caught:
        PlanFiles(tmp_path).write(PhysicalPlan(1, positions={"traffic": 2}))
    assert str(files.path(1)) in caught.value.message
    assert "data folder" in (caught.value.hint or "")


@pytest.mark.parametrize("epoch", [63, 64])
def test_a_missing_plan_is_an_error_though_later_ones_are_whole(tmp_path: Path, epoch: int) -> None:
    files = PlanFiles(tmp_path)
    for each in range(60, 66):
        files.write(PhysicalPlan(each))
    files.path(epoch).unlink()
    files.path(65).unlink()
    PlanFiles(tmp_path).write(PhysicalPlan(65))  # whole if 64 is lost
    with pytest.raises(PlanError, match=rf"epoch {epoch} cannot be read"):
        PlanFiles(tmp_path).check(61, 65)


def test_half_a_file_is_reported_as_cut_short(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    for epoch in (1, 2):
        files.write(PhysicalPlan(epoch))
    cut_short(files.path(2))
    with pytest.raises(PlanError, match="truncated") as caught:
        PlanFiles(tmp_path).read(2)
    assert "from one copy" in (caught.value.hint or "")

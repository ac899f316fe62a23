"""The tutorial, followed word for word: each command prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.demo.processes import Children
from tests.system.followed_page import Terminals, differences, steps_of
from tests.system.page_reader import ROOT, Reader

pytestmark = [pytest.mark.system, pytest.mark.spark]

PAGE = ROOT / "docs" / "tutorial" / "first-query.md"


def test_every_command_prints_what_the_tutorial_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = 0
    with Children(tmp_path / "logs") as children:
        reader = Reader(children, tmp_path, {})
        for step in steps_of(PAGE, ""):
            if isinstance(step, Terminals):
                for command in step.commands:
                    reader.open_terminal(command)
                continue
            found = reader.type(step.command)
            assert not differences(step.printed, found), (step.command, found)
            commands += 1
    assert commands == 7

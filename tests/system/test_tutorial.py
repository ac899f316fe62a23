"""The tutorial, followed word for word: each command prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.demo.parts import Children
from tests.system.page_reader import ROOT, Reader

pytestmark = [pytest.mark.system, pytest.mark.spark]

PAGE = ROOT / "docs" / "tutorial" / "first-query.md"


def test_every_command_prints_what_the_tutorial_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Children(tmp_path / "logs") as children:
        assert Reader(children, tmp_path, {}).follow(PAGE) == 7

"""The start of docs/how-to/connect-devices.md, followed word for word: each command prints what the page shows."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

from cluster.demo.parts import Children
from tests.system.page_reader import ROOT, Reader

pytestmark = [
    pytest.mark.system,
    pytest.mark.spark,
    pytest.mark.skipif(which("mosquitto_pub") is None, reason="mosquitto_pub is not installed"),
]

PAGE = ROOT / "docs" / "how-to" / "connect-devices.md"


def test_every_command_prints_what_the_guide_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Children(tmp_path / "logs") as children:
        reader = Reader(children, tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)})
        # A reader's broker has the port that mosquitto_pub takes by itself.
        (tmp_path / "mosquitto_pub").write_text(f"-p {reader.parts.broker.port}\n")
        assert reader.follow(PAGE) == 11

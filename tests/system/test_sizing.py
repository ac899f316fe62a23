"""``fjord bench`` as it is typed: a small load on parts of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system


@pytest.mark.proof
def test_a_load_is_measured_and_leaves_nothing_behind(tmp_path: Path) -> None:
    table = tmp_path / "sizes"
    # Answers end somewhat behind samples: by a second of twelve, not of four.
    typed = ["bench", "--load", "8x2!", "--duration", "12s", "--settle", "6s", "--folder", str(tmp_path), "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "protocols.command_line", *typed, "--markdown", str(table)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    (load,) = json.loads(run.stdout)["loads"]
    assert load["load"] == "8x2!"
    assert load["limit"] is None
    assert 6 < load["samples_per_second"] < 10
    assert load["answers_per_second"] >= 0.8 * load["samples_per_second"]
    assert load["cores"]["Spark"] > 0
    assert load["memory_bytes"]["cluster"] > 2**20
    delays = load["delays"]
    assert 0 < delays["median_after"] < delays["median"] < 10
    assert table.read_text().startswith("| motes | samples/s |")
    assert [path.name for path in tmp_path.iterdir()] == ["sizes"]

"""How much memory a query that is tried may take."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cluster.local.memory_limit import LEAST_BYTES, MemoryLimitError, default_limit, limited_memory, resident_bytes

GIB = 1024**3


@pytest.mark.parametrize(
    ("free", "limits", "expected"),
    [
        (8 * GIB, {}, 4 * GIB),
        (8 * GIB, {"memory.max": "max"}, 4 * GIB),
        (8 * GIB, {"memory.max": str(2 * GIB)}, GIB),
        (8 * GIB, {"memory/memory.limit_in_bytes": str(2 * GIB)}, GIB),
        (8 * GIB, {"memory.max": str(100 * GIB)}, 4 * GIB),
        (1024, {}, LEAST_BYTES),
    ],
)
def test_half_of_what_is_free_may_be_taken(tmp_path: Path, free: int, limits: dict[str, str], expected: int) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 9999 kB\nMemAvailable:   {free // 1024} kB\n")
    for name, value in limits.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    assert default_limit(tmp_path, tmp_path) == expected


def test_there_is_a_limit_where_the_system_does_not_report_free_memory(tmp_path: Path) -> None:
    assert default_limit(tmp_path, tmp_path) >= LEAST_BYTES


def test_what_is_taken_is_measured() -> None:
    before = resident_bytes()
    block = bytearray(b"x" * 64 * 1024**2)
    assert resident_bytes() - before > len(block) // 2


def test_more_than_the_limit_is_noticed_once() -> None:
    taken, noticed = iter([1, 5, 6, 7]), threading.Event()
    errors: list[MemoryLimitError] = []

    def exceeded(error: MemoryLimitError) -> None:
        errors.append(error)
        noticed.set()

    with limited_memory(5, exceeded, measure=lambda: next(taken)):
        assert noticed.wait(30)
    assert [(each.limit_bytes, each.operator) for each in errors] == [(5, None)]
    assert next(taken) == 7, "it is measured no more"


PRODUCT = "SELECT a.x + b.x AS x FROM s WINDOW(RANGE 1 DAY) a, s WINDOW(RANGE 1 DAY) b"


def test_a_query_that_needs_more_is_ended_with_an_error(tmp_path: Path) -> None:
    path, output = tmp_path / "day.csv", tmp_path / "answer.jsonl"
    path.write_text("time,x\n" + "".join(f"{at},{at}\n" for at in range(20_000)))
    script = "from protocols.command_line.application import main; main()"
    arguments = ["query", "try", PRODUCT, "--on", str(path), "--time-unit", "us", "--memory", "400MiB"]
    arguments += ["--output", str(output)]
    ended = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    shown = " ".join(ended.stderr.split())
    assert shown.startswith(
        "error: the query needs more memory than 400.0 MiB: in operator Join hint: make its windows"
    )
    assert "--memory" in shown
    assert [each.name for each in tmp_path.iterdir()] == ["day.csv"], "nothing unfinished stays"

"""`make proof` goes on where it has stopped, and writes down what came of each part."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.proof import __main__ as command
from tests.proof.parts import PARTS, Part, made
from tests.proof.record import NO_FULL_RUN, ROOT, Record, uncommitted
from tests.proof.running import figures, prove

COUNTING = "import sys; from pathlib import Path; f = Path(sys.argv[1]); f.open('a').write('x'); "
LONGEST_SECONDS = 120
"""Ends a hang only."""
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
from pathlib import Path
from tests.proof import __main__ as command
from tests.proof.parts import Part
from tests.proof.record import Record

folder = Path(sys.argv[1])
quick = Part("quick", (sys.executable, "-c", "print('1 found')"))
slow = Part("slow", ("sh", "-c", f"sleep 600 & echo $! > {folder}/child; wait"))
command.PARTS = (quick, slow)
command.Record = lambda: Record(folder / "outcomes.json", folder / "last_run.json")
command.uncommitted = lambda: []
command.main([])
"""


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "notes" / "outcomes.json", tmp_path / "last_run.json")


@pytest.fixture
def parts(tmp_path: Path) -> list[Part]:
    """Three parts, of which the second fails until a file is there; each notes that it was run."""
    ends = ["print('1 pair')", f"print('2 pairs'); sys.exit(not Path({str(tmp_path / 'repaired')!r}).exists())", ""]
    return [
        Part(f"part{number}", (sys.executable, "-c", COUNTING + end, str(tmp_path / f"ran{number}")))
        for number, end in enumerate(ends)
    ]


def runs(folder: Path) -> list[int]:
    files = [folder / f"ran{number}" for number in range(3)]
    return [len(each.read_text()) if each.exists() else 0 for each in files]


def test_what_has_passed_is_not_run_again_and_what_has_failed_is(
    tmp_path: Path, parts: list[Part], record: Record
) -> None:
    lines: list[str] = []
    assert record.last() == NO_FULL_RUN
    assert not prove(parts, parts[:2], "c1", record, lines.append)
    assert runs(tmp_path) == [1, 1, 0]
    assert not record.last_run.exists(), "one part is missing"
    (tmp_path / "repaired").touch()
    assert prove(parts, parts, "c1", record, lines.append)
    assert runs(tmp_path) == [1, 2, 1]
    assert "1/3 part0: passed before, 1 pair" in lines
    assert lines[-1] == "all parts have been run; check in last_run.json"


def test_the_last_full_run_has_the_commit_and_what_came_of_each_part(parts: list[Part], record: Record) -> None:
    assert not prove(parts, parts, "c1", record, lambda _: None)
    written = json.loads(record.last_run.read_text())
    assert written["commit"] == "c1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", written["date"])
    shown = {name: (each["passed"], each["figures"]) for name, each in written["parts"].items()}
    assert shown == {"part0": (True, "1 pair"), "part1": (False, "2 pairs"), "part2": (True, "no figures")}
    assert all({"command", "seconds"} < each.keys() for each in written["parts"].values())
    assert record.last().endswith("at c1, 2 of 3 parts passed")


def test_another_commit_begins_anew_and_keeps_the_last_full_run(
    tmp_path: Path, parts: list[Part], record: Record
) -> None:
    prove(parts, parts, "c1", record, lambda _: None)
    prove(parts, parts[:1], "c2", record, lambda _: None)
    assert runs(tmp_path) == [2, 1, 1]
    assert json.loads(record.last_run.read_text())["commit"] == "c1"


def test_what_has_passed_is_run_again_if_asked_or_if_its_sizes_are_others(
    tmp_path: Path, parts: list[Part], record: Record
) -> None:
    first = parts[0]
    prove(parts, [first], "c1", record, lambda _: None)
    prove(parts, [first], "c1", record, lambda _: None, again=True)
    assert runs(tmp_path) == [2, 0, 0]
    larger = Part(first.name, (*first.command, "larger"))
    prove(parts, [larger], "c1", record, lambda _: None)
    assert runs(tmp_path) == [3, 0, 0]


def test_ctrl_c_ends_a_part_and_keeps_those_before(tmp_path: Path) -> None:
    child, until = tmp_path / "child", time.monotonic() + LONGEST_SECONDS
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            while not (child.exists() and child.read_text()):
                assert time.monotonic() < until
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            printed, _ = running.communicate(timeout=LONGEST_SECONDS)
        finally:
            running.kill()
    assert running.returncode == 130, printed
    assert printed.splitlines()[-1] == "stopped; the same command continues from here"
    assert list(json.loads((tmp_path / "outcomes.json").read_text())["parts"]) == ["quick"]
    process = Path("/proc", child.read_text().strip())
    while process.exists() and "Z" not in (process / "stat").read_text().rpartition(")")[2].split()[0]:
        assert time.monotonic() < until, "what the part has started goes on"
        time.sleep(0.01)


def test_figures_are_the_last_line_that_has_them() -> None:
    printed = (
        "seed 3\n\x1b[32m1,200 pairs in 5 s, mismatches: 0\x1b[0m\ndrawn: 7\nnever drawn: nothing\nmake: *** [x] 1\n"
    )
    assert figures(printed, Part.says) == "drawn: 7"
    assert figures(printed, "pairs") == "1,200 pairs in 5 s, mismatches: 0"
    assert figures("", Part.says) == "no figures"


def test_a_part_is_a_target_with_its_sizes() -> None:
    assert made("x", "oracle", PAIRS=20_000).shown == "make oracle PAIRS=20000"
    makefile = (ROOT / "Makefile").read_text()
    for part in PARTS:
        _, target, *sizes = part.command
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), part
        assert all(f"$({size.partition('=')[0]})" in makefile for size in sizes), part
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_what_is_not_committed_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "uncommitted", lambda: ["Makefile"])
    done = CliRunner().invoke(command.main, [])
    assert done.exit_code == 1
    assert "these files are not in one: Makefile" in done.output


def test_files_that_are_not_in_the_commit_are_named(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True)

    (tmp_path / "tests" / "proof").mkdir(parents=True)
    (tmp_path / "committed").write_text("1")
    git("init", "--quiet")
    git("add", "committed")
    git("commit", "--quiet", "--message", "One")
    (tmp_path / "tests" / "proof" / "last_run.json").write_text("{}")
    assert uncommitted(tmp_path) == []
    (tmp_path / "new").write_text("1")
    (tmp_path / "committed").write_text("2")
    assert sorted(uncommitted(tmp_path)) == ["committed", "new"]


def test_parts_are_shown_and_unknown_ones_refused() -> None:
    shown = CliRunner().invoke(command.main, ["--show"])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()[1:]] == [part.name for part in PARTS]
    wrong = CliRunner().invoke(command.main, ["--only", "nothing"])
    assert wrong.exit_code == 2
    assert "there is no part 'nothing'; parts are tests, examples" in wrong.output

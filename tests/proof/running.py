"""Runs one part after the other, and keeps what came of each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from protocols.child_process import child_environment
from tests.proof.parts import Part
from tests.proof.record import ROOT, Outcome, Record

SECONDS_TO_END = 60.0
"""For a part that is interrupted; some end processes of their own first."""
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def prove(
    parts: Sequence[Part], wanted: Sequence[Part], commit: str, record: Record, echo: Callable[[str], None],
    *, again: bool = False,
) -> bool:  # fmt: skip
    """Run the parts that are wanted and have not passed yet; return whether all that are wanted have."""
    proof = record.known(commit)
    for number, part in enumerate(wanted, start=1):
        place = f"{number}/{len(wanted)} {part.name}"
        known = proof.parts.get(part.name)
        if known is not None and known.passed and known.command == part.shown and not again:
            echo(f"{place}: passed before, {known.figures}")
            continue
        echo(f"{place}: {part.shown}")
        log = record.notes.parent / f"{part.name}.log"
        outcome = run(part, log)
        proof = proof.having(part.name, outcome)
        full = record.keep(proof, [each.name for each in parts])
        end = "passed" if outcome.passed else f"FAILED (its output is in {log})"
        echo(f"{place}: {end} after {outcome.seconds:,.0f} s, {outcome.figures}")
        if full:
            echo(f"all parts have been run; check in {record.last_run.name}")
    return all(part.name in proof.parts and proof.parts[part.name].passed for part in wanted)


def run(part: Part, log: Path) -> Outcome:
    """Run a part with its output in a file. Ctrl-C ends it and all that it has started, in order if it can."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("wb") as output:
        running = subprocess.Popen(
            part.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, env=child_environment(),
        )  # fmt: skip
        try:
            code = running.wait()
        except BaseException:
            _end(running)
            raise
    shown = figures(log.read_text(errors="replace"), part.says)
    return Outcome(part.shown, code == 0, round(time.monotonic() - began, 1), shown)


def _end(running: subprocess.Popen[bytes]) -> None:
    os.killpg(running.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(SECONDS_TO_END)
    with contextlib.suppress(ProcessLookupError):  # what it has started in the background ignores an interrupt
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def figures(printed: str, says: str) -> str:
    """Return the last line that has the figures of a part."""
    lines = [COLOURS.sub("", line).strip() for line in printed.splitlines()]
    shown = [line for line in lines if re.search(says, line) and not line.startswith("make")]
    return shown[-1] if shown else "no figures"

"""Ctrl-C while a command is imported ends it without a word, and later it ends the command as it always does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 30.0
SLOW = "import pathlib, time\npathlib.Path({reached!r}).touch()\ntime.sleep(60)\n"


@pytest.mark.parametrize("module", ["typer", "protocols.errors"])
def test_an_interrupt_while_all_is_imported_prints_nothing(tmp_path: Path, module: str) -> None:
    reached = tmp_path / "reached"
    # The first of these modules on the path is imported in place of the real one, and takes a minute.
    name, _, inner = module.partition(".")
    if inner:
        script = f"import sys, slow\nsys.meta_path.insert(0, slow.Slow({module!r}))\n"
        (tmp_path / "slow.py").write_text(
            "import importlib.util\n"
            "class Slow:\n"
            "    def __init__(self, name): self.name = name\n"
            "    def find_spec(self, name, *_):\n"
            f"        if name == self.name:\n            exec({SLOW.format(reached=str(reached))!r})\n"
        )
        (tmp_path / "sitecustomize.py").write_text(script)
    else:
        (tmp_path / f"{name}.py").write_text(SLOW.format(reached=str(reached)))
    started = subprocess.Popen(
        [sys.executable, "-m", "protocols.command_line", "query", "list"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    until = time.monotonic() + SECONDS
    while not reached.exists():
        assert started.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    shown = started.communicate(timeout=SECONDS)
    assert (started.returncode, shown) == (-signal.SIGINT, (b"", b""))


def test_an_interrupt_later_is_for_the_command() -> None:
    script = (
        "import signal; from protocols.command_line import application, __main__ as entry\n"
        "application.main = lambda: print(signal.getsignal(signal.SIGINT) is expected)\n"
        "expected = signal.default_int_handler\n"
        "entry.main()\n"
        "expected = signal.SIG_IGN\n"
        "signal.signal(signal.SIGINT, expected)\n"
        "entry.main()\n"
    )
    shown = subprocess.check_output([sys.executable, "-c", script], text=True, cwd=ROOT, timeout=SECONDS)
    assert shown == "True\nTrue\n"

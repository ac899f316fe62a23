"""A process with a forking parent, and modules for its forks to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[4]
SECONDS = 30.0

STARTER = """\
import sys
{before}
from cluster.spark.forking.parent import ForkingPlace, start_forking_parent
place = ForkingPlace.make()
parent = start_forking_parent(place, {arguments})
print(place.program, parent and parent.process, flush=True)
sys.stdin.read()
"""

PROBE = """\
import gc, json, os, sys, threading
print(json.dumps({
    "arguments": sys.argv[1:], "folder": os.getcwd(), "process": os.getpid(), "parent": os.getppid(),
    "variables": dict(os.environ), "input": sys.stdin.read(), "frozen": gc.get_freeze_count(),
    "loaded": "colorsys" in sys.modules, "name": __name__, "main": __spec__.name,
}))
sys.exit(7)
"""

SLEEPER = """\
import os, time
print(os.getpid(), flush=True)
time.sleep(1000)
"""


FORKING = """\
import os, signal
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.setpgid(0, 0)
worker = os.fork()
if worker:
    print(worker, flush=True)
while True:
    pass
"""
"""As Spark's daemon and a worker of it, both of which compute and look at nothing else."""


@dataclass(frozen=True, slots=True)
class Starter:
    """A process that has started a parent."""

    process: subprocess.Popen[str]
    program: Path
    parent: psutil.Process
    folder: Path

    def command(self, module: str, *arguments: str) -> list[str]:
        """Return what Spark would run."""
        return [str(self.program), "-m", module, *arguments]

    def run(
        self, module: str, *arguments: str, variables: Mapping[str, str] | None = None, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a module in a fork."""
        return subprocess.run(
            self.command(module, *arguments), input=text, capture_output=True, text=True, timeout=SECONDS,
            check=False, cwd=self.folder, env={**os.environ, "PYTHONPATH": str(self.folder), **(variables or {})},
        )  # fmt: skip

    def probe(self, *arguments: str, **options: Any) -> dict[str, Any]:
        """Return what a module finds in a fork."""
        found = self.run("probe", *arguments, **options)
        assert (found.returncode, found.stderr) == (7, "")
        answer: dict[str, Any] = json.loads(found.stdout)
        return answer

    @contextmanager
    def sleeping(self) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
        """Run a module that does not end; yield the stand-in and the fork."""
        stand_in = subprocess.Popen(self.command("sleeper"), stdout=subprocess.PIPE, text=True)
        assert stand_in.stdout is not None
        with stand_in:
            fork = psutil.Process(int(stand_in.stdout.readline()))
            try:
                yield stand_in, fork
            finally:
                stand_in.kill()
                if fork.is_running():
                    fork.kill()


@contextmanager
def started(folder: Path, *, before: str = "", arguments: str = "") -> Iterator[Starter]:
    """Start a process with a parent, whose forks find modules in a folder; end it."""
    (folder / "probe.py").write_text(PROBE)
    (folder / "sleeper.py").write_text(SLEEPER)
    (folder / "forking.py").write_text(FORKING)
    with subprocess.Popen(
        [sys.executable, "-c", STARTER.format(before=before, arguments=arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
    ) as process:
        assert process.stdout is not None
        program, parent = process.stdout.readline().split()
        try:
            yield Starter(process, Path(program), psutil.Process(int(parent)), folder)
        finally:
            process.kill()

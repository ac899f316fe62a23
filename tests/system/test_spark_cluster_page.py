"""The how-to for a cluster of Spark's own, followed word for word with a master and two workers on this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster.demo.parts import Children, free_port
from cluster.spark.java import find_java, use_java
from tests.faults.standalone import SECONDS
from tests.system import page_reader, waiting
from tests.system.page_reader import ROOT

pytestmark = [pytest.mark.system, pytest.mark.spark]

PAGE = ROOT / "docs" / "how-to" / "run-on-a-spark-cluster.md"
DAEMONS = {"Master": "Starting Spark master at", "Worker": "Successfully registered with master"}
"""By the end of a class: what its process prints when it is ready."""


class Reader(page_reader.Reader):
    """Starts Spark's own processes, too, with a port of the test."""

    def __init__(self, children: Children, folder: Path, environment: dict[str, str]) -> None:
        super().__init__(children, folder, environment)
        self.folder = folder
        self._port = str(free_port())
        program = folder / "bin" / "spark-class"
        python = Path(sys.executable)
        program.write_text(f'#!/bin/sh\nPYSPARK_DRIVER_PYTHON="{python}" exec "{python.parent}/spark-class" "$@"\n')
        program.chmod(0o755)
        self.daemons: list[subprocess.Popen[bytes]] = []

    def open_terminal(self, command: str) -> None:
        command = command.replace("7077", self._port)
        if "spark-class" not in command:
            super().open_terminal(command)
            return
        log = self.folder / f"daemon-{len(self.daemons)}"
        with log.open("wb") as output:
            self.daemons.append(
                subprocess.Popen(
                    [*shlex.split(command), "--webui-port", "0"],
                    cwd=self.folder,
                    env=self.environment,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )
        ready = next(words for name, words in DAEMONS.items() if f".{name} " in command)
        waiting.wait_for(lambda: ready in log.read_text(), f"Spark did not start: {command}", seconds=SECONDS)


@pytest.mark.proof
def test_the_page_runs_queries_on_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    use_java(find_java())
    with Children(tmp_path / "logs") as children:
        reader = Reader(children, tmp_path, {})
        try:
            assert reader.follow(PAGE) == 5
            assert (tmp_path / "spark.conf").stat().st_mode & 0o077 == 0
            secret = (tmp_path / "spark.conf").read_text().split()[-1]
            logs = [each for each in tmp_path.rglob("*") if each.is_file() and "log" in each.parent.name]
            assert not any(secret.encode() in each.read_bytes() for each in logs)
            shown = [word for each in psutil.Process().children(recursive=True) for word in _words_of(each)]
            assert "spark.authenticate=true" in shown
            assert not any(secret in word for word in shown)
        finally:
            for each in reversed(reader.daemons):
                each.terminate()
            for each in reader.daemons:
                each.wait(60)


def _words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []

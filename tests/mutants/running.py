"""Running the suite over mutants, in copies of the repository: the checkout itself is never changed."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import Mutant
from tests.mutants.shortening import CPU_LIMIT, MEMORY_LIMIT

COPIED = ("cluster", "protocols", "proxy", "firmware_sim", "tests", "docs", "examples", "pyproject.toml", "README.md")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
MEMORY_BYTES = 8 * 1024**3
PATIENCE = 2
"""A mutant may take this many times as much processor time as the unchanged source."""


class SuiteError(Exception):
    """The suite cannot be used: it fails on the unchanged source, or takes too long."""


class StoppedError(Exception):
    """The run was ended by its caller."""


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of one run of the suite.

    Parameters
    ----------
    outcome
        ``survived``, ``killed`` or ``timeout``.
    seconds
        Its wall-clock time.
    killed_by
        The first test that failed, if one did.
    output
        The end of pytest's output.
    """

    outcome: str
    seconds: float
    killed_by: str = ""
    output: str = ""


class Workshop:
    """Copies of the repository, in each of which one mutant at a time is run.

    Parameters
    ----------
    root
        The repository.
    folder
        Where the copies are made.
    command
        Runs the suite, in a copy; ends with 0 if no test fails.
    copied
        The folders and files of the repository in a copy.
    """

    def __init__(self, root: Path, folder: Path, command: Sequence[str], *, copied: Sequence[str] = COPIED) -> None:
        self._root, self._folder, self._command, self._copied = root, folder, command, copied
        self._copies: SimpleQueue[Path] = SimpleQueue()
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self._cpu_seconds = 0

    def prepare(self, workers: int, longest_seconds: float) -> tuple[float, float]:
        """Make the copies, and run the suite once as it is; return its seconds of wall clock and processor.

        Raises
        ------
        SuiteError
            If it fails, or takes more than `longest_seconds` of the processor.
        """
        first = self._folder / "1"
        first.mkdir()
        for name in self._copied:
            source = self._root / name
            if source.is_dir():
                shutil.copytree(source, first / name, ignore=shutil.ignore_patterns("__pycache__", ".fjord"))
            elif source.exists():
                shutil.copy2(source, first / name)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = self._run(first, compiling=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if found.outcome != "survived":
            raise SuiteError(f"the suite fails on the unchanged source\n{found.output}")
        if cpu > longest_seconds:
            raise SuiteError(
                f"the suite takes {cpu:.0f} s of a core on the unchanged source, {longest_seconds:.0f} at most"
            )
        self._cpu_seconds = max(10, round(PATIENCE * cpu))
        self._copies.put(first)
        for number in range(2, workers + 1):
            # With compiled files: a mutant then compiles its own file only.
            shutil.copytree(first, self._folder / str(number))
            self._copies.put(self._folder / str(number))
        return found.seconds, cpu

    def run(self, mutant: Mutant, command: Sequence[str] | None = None) -> Run:
        """Run the suite over a mutant, in a copy that is free.

        Parameters
        ----------
        mutant
            The change.
        command
            Runs the suite in another order: the tests that probably fail come first.

        Raises
        ------
        StoppedError
            If the run was ended meanwhile.
        """
        copy = self._copies.get()
        file = copy / mutant.file
        source = file.read_bytes()
        try:
            for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
                compiled.unlink()
            file.write_bytes(mutant.applied(source))
            return self._run(copy, command)
        finally:
            file.write_bytes(source)
            self._copies.put(copy)

    def stop(self) -> None:
        """End all runs."""
        self._stopped = True
        with self._lock:
            for process in self._running:
                _end(process)

    def _run(self, copy: Path, command: Sequence[str] | None = None, *, compiling: bool = False) -> Run:
        began = time.monotonic()
        # A session of its own: Ctrl-C ends the run here, not in the middle of a test.
        process = subprocess.Popen(
            command or self._command,
            cwd=copy, env=self._environment(compiling=compiling), text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with self._lock:
            self._running.add(process)
        if self._stopped:
            _end(process)
        # A process that waits for something that never comes takes no processor time.
        patience = 20 * self._cpu_seconds or None
        try:
            output, _ = process.communicate(timeout=patience)
            waited_in_vain = False
        except subprocess.TimeoutExpired:
            _end(process)
            output, _ = process.communicate()
            waited_in_vain = True
        finally:
            with self._lock:
                self._running.discard(process)
        if self._stopped:
            raise StoppedError
        seconds = time.monotonic() - began
        if waited_in_vain or process.returncode in {-signal.SIGXCPU, -signal.SIGKILL}:
            return Run("timeout", seconds)
        if process.returncode == 0:
            return Run("survived", seconds)
        failed = FAILED.search(output)
        return Run("killed", seconds, failed[1] if failed else "before any test", output[-2000:])

    def _environment(self, *, compiling: bool) -> dict[str, str]:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1"}
        environment[MEMORY_LIMIT] = str(MEMORY_BYTES)
        environment.pop("PYTHONPATH", None)
        if not compiling:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
            environment[CPU_LIMIT] = str(self._cpu_seconds)
        return environment


@contextmanager
def workshop(root: Path, command: Sequence[str]) -> Iterator[Workshop]:
    """Yield a workshop that is removed afterwards, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="fjord-mutants-") as folder:
        found = Workshop(root, Path(folder), command)
        try:
            yield found
        finally:
            found.stop()


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

"""The demonstration's child processes: started in order, watched, and in any case stopped in reverse order."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster.errors import ClusterError
from protocols.child_process import child_environment, ending_with_this_process, python_module
from protocols.event_log import LEVEL_VARIABLE

STOP_SECONDS = 15.0


class ChildError(ClusterError):
    """A child process ended, or was not ready in time."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-15:]) if log.exists() else ""
        super().__init__(f"{name} {what}; its log ends with:\n{tail.rstrip()}", hint=f"the whole log is in {log}")
        self.name = name


@dataclass(slots=True)
class Child:
    """One running part."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


class Children:
    """Child processes that never outlive this context.

    Parameters
    ----------
    folder
        Where their logs go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        module: str = "protocols.command_line",
    ) -> Child:
        """Start ``fjord``, or another module, in a session of its own, so that Ctrl-C reaches only the parent.

        It gets the variables of this process, without secrets, and then those of `environment`.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ending_with_this_process(python_module(module, *arguments)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**child_environment(), LEVEL_VARIABLE: "info", **(environment or {})},
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raise if a child has ended.

        Raises
        ------
        ChildError
            If one has ended; with the end of its log.
        """
        for child in self._children:
            code = child.process.poll()
            if code is not None:
                raise ChildError(child.name, f"ended with exit code {code}", child.log)

    def wait_until(self, ready: Callable[[], bool], child: Child, *, seconds: float) -> None:
        """Wait until `ready`.

        Raises
        ------
        ChildError
            If a child ends, or `child` is not ready in time.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise ChildError(child.name, f"was not ready within {seconds:.0f} s", child.log)
            time.sleep(0.1)

    def forget(self, child: Child) -> None:
        """Stop watching a child: the caller ends it, or expects its end."""
        self._children.remove(child)

    def stop(self) -> None:
        """Stop all children, last started first; kill those that do not stop, with all they started."""
        for child in reversed(self._children):
            if child.process.poll() is None:
                child.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for child in reversed(self._children):
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
            _kill_session(child.process.pid)
            child.process.wait()
        self._children.clear()


def _kill_session(leader: int) -> None:
    """Kill what is left of a child's process group (Spark's Java among it)."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return

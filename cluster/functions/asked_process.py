"""A process that is asked and answers, one question after the other: whatever it does, asking ends in time.

in    lengths of both parts, JSON, and bytes
out   the same; JSON with ``error`` where the question failed
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psutil

from cluster.errors import ClusterError
from protocols.child_process import child_environment

MOST_ANSWERED: Final = 256 * 1024**2
"""Bytes of an answer."""
MOST_ROUNDS: Final = 16
"""How often the processes that a function has started are looked for, as they may start others meanwhile."""
_LENGTHS: Final = struct.Struct(">IQ")
_MOST_HEADER: Final = 64 * 1024
_KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")
_SET_VARIABLES: Final = {
    **dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONDONTWRITEBYTECODE": "1",
}


class NoAnswerError(ClusterError):
    """A process did not answer, and has been ended.

    Parameters
    ----------
    reason
        Why, such as "its process ended by SIGSEGV".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AskedProcess:
    """A process that this one starts and ends, at the latest when it is forgotten.

    It has none of our tokens and passwords.

    Parameters
    ----------
    arguments
        Of Python.
    memory_bytes
        What it may take, for the words of an error; it bounds itself.
    """

    def __init__(self, arguments: Sequence[str], *, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._child = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
        assert self._child.stdin is not None  # noqa: S101 - they are pipes
        assert self._child.stdout is not None  # noqa: S101 - likewise
        self._input, self._output = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(self._input, False)
        self._end = weakref.finalize(self, _ended, self._child)

    @property
    def ended(self) -> bool:
        """True if it has ended, by itself or because it was ended."""
        return self._child.poll() is not None

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    def end(self) -> None:
        """End it and all that it has started, whatever it does; then wait for it."""
        self._end()

    def ask(
        self, header: Mapping[str, Any], body: bytes, seconds: float, late: str = "it did not answer"
    ) -> tuple[Mapping[str, Any], bytes]:
        """Return both parts of its answer.

        Raises
        ------
        NoAnswerError
            If there is none within `seconds`, which `late` says in words; the process has ended then.
        """
        until = time.monotonic() + seconds
        text = json.dumps({**header, "seconds": seconds}).encode()
        try:
            self._write(_LENGTHS.pack(len(text), len(body)) + text, until)
            self._write(body, until)
            of_header, of_body = _LENGTHS.unpack(self._read(_LENGTHS.size, until))
            if of_header > _MOST_HEADER or of_body > MOST_ANSWERED:
                raise self._failed(f"it returned more than {MOST_ANSWERED // 1024**2} MiB")
            answer = json.loads(self._read(of_header, until))
            found = self._read(of_body, until)
        except TimeoutError:
            raise self._failed(f"{late} within {seconds:g} s, and was ended") from None
        except (OSError, EOFError):
            raise self._failed(f"its process ended {self._how()}") from None
        except ValueError:
            raise self._failed("its process answered what cannot be read") from None
        return answer, found

    def _failed(self, reason: str) -> NoAnswerError:
        self.end()
        return NoAnswerError(reason)

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._child.wait(1.0)
            if code >= 0:
                return f"with code {code}"
            memory = f"; it may take {self._memory_bytes // 1024**2} MiB" if -code == signal.SIGABRT else ""
            return f"by {signal.Signals(-code).name}{memory}"
        return "its output"

    def _write(self, content: bytes, until: float) -> None:
        left = memoryview(content)
        while left:
            _wait(self._input, select.POLLOUT, until)
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(self._input, left) :]

    def _read(self, count: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < count:
            _wait(self._output, select.POLLIN, until)
            piece = os.read(self._output, min(count - len(found), 1024**2))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)


def _ended(child: subprocess.Popen[bytes]) -> None:
    _kill_descendants(child)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):
            assert pipe is not None  # noqa: S101 - they are pipes
            pipe.close()
    child.wait()


def _kill_descendants(child: subprocess.Popen[bytes]) -> None:
    """Kill what a process has started, in whatever session; the process itself stands still meanwhile."""
    if child.returncode is not None:
        return
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(child.pid)
        process.suspend()
        for _ in range(MOST_ROUNDS):
            found = process.children(recursive=True)
            alive = [each for each in found if each.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED}]
            if not alive:
                break
            for each in alive:
                with contextlib.suppress(psutil.Error):
                    each.suspend()  # so that it starts nothing more; killed below
        for each in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.kill()


def _wait(descriptor: int, event: int, until: float) -> None:
    waiting = select.poll()
    waiting.register(descriptor, event)
    if not waiting.poll(max(until - time.monotonic(), 0.0) * 1000):
        raise TimeoutError


def _environment() -> dict[str, str]:
    """Return the variables that such a process has: those that a program of any kind may need, and no others."""
    kept = {
        name: value for name, value in child_environment().items() if name in _KEPT_VARIABLES or name.startswith("LC_")
    }
    return {**kept, **_SET_VARIABLES}

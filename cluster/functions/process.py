"""A process that runs one function of a user, as the asking process sees it: whatever it does, asking ends in time."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from cluster.errors import ClusterError
from cluster.expressions.user_functions import UserFunction
from cluster.functions import child
from cluster.functions.allowed import FunctionRules

LOADING_SECONDS: Final = 60.0
"""How long a process may take to start and to import the module of a function."""
MOST_ANSWERED: Final = 256 * 1024**2
"""Bytes of an answer, for at most as many rows as a batch has."""
_LENGTHS: Final = struct.Struct(">IQ")
_MOST_HEADER: Final = 64 * 1024
_KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")
_SET_VARIABLES: Final = {
    **dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONDONTWRITEBYTECODE": "1",
}


class UserFunctionError(ClusterError):
    """A function of a user failed, took too long, or may not be called.

    Polars raises what a function of ours raises anew, with its own words behind ours.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.partition("\n")[0])


class FunctionProcess:
    """A process that has imported the module of a function.

    Parameters
    ----------
    function
        The function.
    rules
        What it may take.

    Raises
    ------
    UserFunctionError
        If the module cannot be imported, the function is not in it, or it comes from a module that is not allowed.
    """

    def __init__(self, function: UserFunction, rules: FunctionRules) -> None:
        self._function = function
        self._rules = rules
        self._child = subprocess.Popen(
            [sys.executable, "-P", child.__file__],
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
        try:
            self._load()
        except BaseException:
            self.end()
            raise

    def _load(self) -> None:
        function = self._function
        header = {
            "module": function.module,
            "attribute": function.attribute,
            "parameters": len(function.parameters),
            "result": function.result.value,
            "language": function.language.value,
            "memory": self._rules.memory_bytes,
            "path": [str(Path(each).absolute()) if each else str(Path.cwd()) for each in sys.path],
        }
        answer, _ = self._ask(header, b"", LOADING_SECONDS, "its module was not imported")
        defined = str(answer.get("defined", ""))
        if not self._rules.allow(defined, function.attribute):
            raise UserFunctionError(
                f"function {function.name} ({function.path}) comes from module {defined!r}, which is not allowed"
            )

    def call(self, columns: bytes, rows: int) -> bytes:
        """Return what the function returns for some columns: a table of one column, in Arrow's format of streams.

        Raises
        ------
        UserFunctionError
            If it fails, or takes too long; the process has ended if it cannot be used again.
        """
        _, body = self._ask({"rows": rows}, columns, self._rules.seconds, "it did not return")
        return body

    @property
    def ended(self) -> bool:
        """True if it has ended, by itself or because it was ended."""
        return self._child.poll() is not None

    def end(self) -> None:
        """End it and all that it has started, whatever it does; then wait for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None  # noqa: S101 - they are pipes
                pipe.close()
        self._child.wait()

    def _ask(
        self, header: Mapping[str, Any], body: bytes, seconds: float, late: str
    ) -> tuple[Mapping[str, Any], bytes]:
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
            self.end()
            reason = f"{late} within {seconds:g} s, and was ended"
            raise UserFunctionError(self._words(reason)) from None
        except (OSError, EOFError):
            raise self._failed(f"its process ended {self._how()}") from None
        except ValueError:
            raise self._failed("its process answered what cannot be read") from None
        if answer.get("error"):
            raise UserFunctionError(self._words(str(answer["error"])))
        return answer, found

    def _failed(self, reason: str) -> UserFunctionError:
        self.end()
        return UserFunctionError(self._words(reason))

    def _words(self, reason: str) -> str:
        return f"function {self._function.name} ({self._function.path}) failed: {reason}"

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._child.wait(1.0)
            if code >= 0:
                return f"with code {code}"
            memory = f"; it may take {self._rules.memory_bytes // 1024**2} MiB" if -code == signal.SIGABRT else ""
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


def _wait(descriptor: int, event: int, until: float) -> None:
    waiting = select.poll()
    waiting.register(descriptor, event)
    if not waiting.poll(max(until - time.monotonic(), 0.0) * 1000):
        raise TimeoutError


def _environment() -> dict[str, str]:
    """Return the variables that a function's process has: no tokens, no passwords."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith("LC_")}
    return {**kept, **_SET_VARIABLES}


def packed(columns: list[pl.Series]) -> bytes:
    """Return columns as a process gets them: a copy in Arrow's format of streams."""
    out = io.BytesIO()
    numbered = [column.alias(str(number)) for number, column in enumerate(columns)]
    pl.DataFrame(numbered).write_ipc_stream(out, compat_level=pl.CompatLevel.oldest())
    return out.getvalue()


def unpacked(answer: bytes) -> pl.Series:
    """Return the column that a process has answered."""
    return pl.read_ipc_stream(io.BytesIO(answer)).to_series(0)

"""Questions about sensors, answered in a process that may die of them, which costs only the one that asked.

Polars reads SQL by recursion, and a stack that overflows ends its process. The process starts with the first question,
is bounded in memory and time, and is started again after it has ended.

Run as a module, this file is that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

import polars as pl

from cluster.errors import ClusterError
from cluster.functions.asked_process import AskedProcess, NoAnswerError
from cluster.language.errors import FjordSqlError
from cluster.service.http.sensor_sql import answer

QUESTION_SECONDS: Final = 10.0
"""How long a question may take."""
STARTING_SECONDS: Final = 60.0
"""How long the first one may take, for which the process starts."""
MEMORY_BYTES: Final = 1024**3
"""What the process may take."""
MOST_WAITING: Final = 32
"""Questions that wait for their turn."""
MOST_OF_ONE: Final = 4
"""Questions of one token that wait, or are answered."""
_LENGTHS: Final = struct.Struct(">IQ")
_GRACE_SECONDS: Final = 2.0


class TooManyQuestionsError(ClusterError):
    """So many questions about sensors wait that no further one is accepted."""


class QuestionFailedError(ClusterError):
    """A question ended the process that answers it, or took too long."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this question about sensors was not answered: {reason}", hint="ask a simpler one")


class SensorQuestions:
    """Answers questions about sensors, one at a time; threads of others do not wait for them.

    Parameters
    ----------
    make_process
        Starts the process that answers; another one in tests.
    """

    def __init__(self, make_process: Callable[[], AskedProcess] | None = None) -> None:
        self._make_process = make_process or _started
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sensor questions")
        self._lock = threading.Lock()
        self._process: AskedProcess | None = None
        self._waiting: Counter[str] = Counter()
        self.ended = 0
        """Processes that a question has ended."""

    async def answer(
        self, relation: pl.DataFrame, *, condition: str | None, sql: str | None, caller: str = ""
    ) -> bytes:
        """Return the result of a question as JSON.

        Parameters
        ----------
        relation
            The sensors.
        condition, sql
            What is asked: one of the two.
        caller
            Name of the token of the one that asks; empty without one.

        Raises
        ------
        FjordSqlError
            If the question cannot be read, or is not harmless.
        TooManyQuestionsError
            If too many wait already, of all callers or of this one.
        QuestionFailedError
            If it ended its process, or took too long.
        """
        if self._waiting[caller] >= MOST_OF_ONE or self._waiting.total() >= MOST_WAITING:
            raise TooManyQuestionsError(
                f"{self._waiting[caller]} questions of yours about sensors wait, of {self._waiting.total()} in all",
                hint="wait for the answers before you ask again",
            )
        self._waiting[caller] += 1
        asked = asyncio.get_running_loop().run_in_executor(self._thread, self._ask, relation, condition, sql)
        asked.add_done_callback(lambda _: self._answered(caller))
        return await asked

    def end(self) -> None:
        """End the process, and refuse further questions."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    def _answered(self, caller: str) -> None:
        self._waiting[caller] -= 1
        if not self._waiting[caller]:
            del self._waiting[caller]

    def _ask(self, relation: pl.DataFrame, condition: str | None, sql: str | None) -> bytes:
        out = io.BytesIO()
        relation.write_ipc_stream(out, compat_level=pl.CompatLevel.oldest())
        with self._lock:
            process = self._process
            known = process is not None and not process.ended
            if process is None or not known:
                if process is not None:
                    process.end()
                process = self._process = self._make_process()
        seconds = QUESTION_SECONDS if known else STARTING_SECONDS
        try:
            found, body = process.ask({"condition": condition, "sql": sql}, out.getvalue(), seconds)
        except NoAnswerError as error:
            self.ended += 1
            raise QuestionFailedError(error.reason) from None
        if found.get("refused"):
            fault = json.loads(body)
            raise FjordSqlError(
                fault["reason"], text=fault["text"], start=fault["start"], end=fault["end"], hint=fault["hint"]
            )
        if found.get("error"):
            raise QuestionFailedError(str(found["error"]))
        return body


def _started() -> AskedProcess:
    module = SensorQuestions.__module__
    run = f"import runpy, sys; sys.path[:] = sys.argv[1:]; runpy.run_module({module!r}, run_name='__main__')"
    path = [str(Path(each).absolute()) for each in sys.path if each]
    return AskedProcess(["-P", "-c", run, *path], memory_bytes=MEMORY_BYTES)


def main() -> None:
    """Answer questions until the input ends."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    _bound()
    while (question := _read(asked)) is not None:
        header, relation = question
        # If the process that asked has died, the kernel ends this one: the alarm has no handler.
        signal.setitimer(signal.ITIMER_REAL, header["seconds"] + _GRACE_SECONDS)
        found, body = _answered(header, relation)
        signal.setitimer(signal.ITIMER_REAL, 0)
        text = json.dumps(found).encode()
        with contextlib.suppress(BrokenPipeError):
            answers.write(_LENGTHS.pack(len(text), len(body)) + text + body)
            answers.flush()


def _answered(header: dict[str, Any], relation: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        rows = pl.read_ipc_stream(io.BytesIO(relation))
        return {}, answer(rows, condition=header["condition"], sql=header["sql"])
    except FjordSqlError as error:
        fault = {"reason": error.reason, "text": error.text, "start": error.start, "end": error.end, "hint": error.hint}
        return {"refused": True}, json.dumps(fault).encode()  # behind the header: it quotes the whole question
    except BaseException as error:  # noqa: BLE001 - Polars' panics are no exceptions; all are the question's fault
        return {"error": f"{type(error).__name__}: {error}"[:400]}, b""


def _read(source: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    lengths = source.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    text, body = _LENGTHS.unpack(lengths)
    return json.loads(source.read(text)), source.read(body)


def _bound() -> None:
    import resource  # noqa: PLC0415 - the process that asks has no use for it

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    main()

"""A process that runs one function of a user, as the asking process sees it: whatever it does, asking ends in time."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from cluster.errors import ClusterError
from cluster.expressions.user_functions import UserFunction
from cluster.functions import child
from cluster.functions.allowed import FunctionRules
from cluster.functions.asked_process import AskedProcess, NoAnswerError

LOADING_SECONDS: Final = 60.0
"""How long a process may take to start and to import the module of a function."""


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
        self._child = AskedProcess(["-P", child.__file__], memory_bytes=rules.memory_bytes)
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
        return self._child.ended

    def end(self) -> None:
        """End it and all that it has started, whatever it does; then wait for it."""
        self._child.end()

    def _ask(
        self, header: Mapping[str, Any], body: bytes, seconds: float, late: str
    ) -> tuple[Mapping[str, Any], bytes]:
        try:
            answer, found = self._child.ask(header, body, seconds, late)
        except NoAnswerError as error:
            raise UserFunctionError(self._words(error.reason)) from None
        if answer.get("error"):
            raise UserFunctionError(self._words(str(answer["error"])))
        return answer, found

    def _words(self, reason: str) -> str:
        return f"function {self._function.name} ({self._function.path}) failed: {reason}"


def packed(columns: list[pl.Series]) -> bytes:
    """Return columns as a process gets them: a copy in Arrow's format of streams."""
    out = io.BytesIO()
    numbered = [column.alias(str(number)) for number, column in enumerate(columns)]
    pl.DataFrame(numbered).write_ipc_stream(out, compat_level=pl.CompatLevel.oldest())
    return out.getvalue()


def unpacked(answer: bytes) -> pl.Series:
    """Return the column that a process has answered."""
    return pl.read_ipc_stream(io.BytesIO(answer)).to_series(0)

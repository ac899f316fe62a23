"""Calls of functions of users in this process: with columns, batch by batch, each in a process of its own.

a call fails          its operator fails, which is an error of the queries that call it (cluster/fjord/dataflow.py)
a process has died    a later call starts another
no plan calls it      its process is ended (:meth:`FunctionCalls.follow`); in a process that is asked nothing more,
                      where no plan is followed, after a while (:meth:`FunctionCalls.end_idle`)
a call took too long  or cost a process: the function rests for a multiple of that time, so that what runs in the
                      same micro-batches waits for it during a small part of the time only
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl
from msgspec.structs import replace

from cluster.expressions.user_functions import UserFunction
from cluster.functions.allowed import FunctionRules
from cluster.functions.process import (
    FunctionProcess,
    UserFunctionError,
    packed,
    unpacked,
)
from protocols.wire.streams import FieldType

BATCH_ROWS: Final = 65_536
"""Most rows of one call; the limit of time is for so many."""
MOST_PROCESSES: Final = 16
"""Processes of functions that one process keeps; that of the function that was called longest ago is ended."""
IDLE_SECONDS: Final = 300.0
"""A process that has not been called for so long is ended; a later call starts another."""
LOOK_SECONDS: Final = 10.0
"""Between two looks for such processes."""
RESTS: Final = 12
"""So many times as long as it took, a function that took too long or cost a process is not called."""
KINDS: Final[dict[FieldType, type[pl.DataType]]] = {
    FieldType.BOOLEAN: pl.Boolean,
    FieldType.INTEGER: pl.Int64,
    FieldType.REAL: pl.Float64,
    FieldType.TEXT: pl.String,
}
"""The types of arguments and results."""


@dataclass(slots=True)
class _Running:
    """A function, the lock that lets one call after the other to it, and its process, if there is one."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    process: FunctionProcess | None = None
    rests_until: float = 0.0
    reason: str = ""
    """Why it rests."""
    epoch: int = 0
    """That of the newest plan that calls it, as far as is known."""
    called: float = 0.0
    """When the last call ended."""


class FunctionCalls:
    """Calls functions of users.

    Parameters
    ----------
    rules
        What they may be and take.
    clock
        Seconds that only go forward.
    """

    def __init__(self, rules: FunctionRules | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = rules or FunctionRules()
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[UserFunction, _Running] = OrderedDict()
        self._owner = os.getpid()
        self._epoch = 0
        self._watch: threading.Thread | None = None
        """Looks for processes that are not called, while there are any."""

    @property
    def rules(self) -> FunctionRules:
        """What functions may be and take."""
        return self._rules

    def use(self, rules: FunctionRules) -> None:
        """Follow these rules from now on."""
        if rules != self._rules:
            self.end()
            self._rules = rules

    def allow(self, patterns: Sequence[str]) -> None:
        """Allow more functions than before; nothing else changes."""
        allowed = tuple(dict.fromkeys((*self._rules.allowed, *patterns)))
        self._rules = replace(self._rules, allowed=allowed)

    def call(self, function: UserFunction, operands: Sequence[pl.Series]) -> pl.Series:
        """Return what a function returns for some columns, each as long as the others, or a constant of one value.

        Raises
        ------
        UserFunctionError
            If it fails, takes too long or is not allowed.
        """
        rows = 0 if any(not len(each) for each in operands) else max(map(len, operands))
        columns = [
            _as_long(each, rows).cast(KINDS[kind]) for each, kind in zip(operands, function.parameters, strict=True)
        ]
        if not function.strict:
            return self._in_batches(function, columns, rows)
        known = pl.select(pl.all_horizontal([column.is_not_null() for column in columns])).to_series()
        known = _as_long(known, rows)
        found = self._in_batches(function, [column.filter(known) for column in columns], int(known.sum() or 0))
        places = known.arg_true()
        return pl.Series([None], dtype=KINDS[function.result]).new_from_index(0, rows).scatter(places, found)

    def follow(self, epoch: int, called: Callable[[], Collection[UserFunction]]) -> None:
        """End the processes of functions that a plan does not call, unless they were started for a newer one.

        Two Spark queries run in this process, of which one may be a plan behind.

        Parameters
        ----------
        epoch
            That of the plan which is about to run.
        called
            Returns the functions that it calls: asked only if one runs that is not known to be among them.
        """
        if self._owner != os.getpid():
            self.end()
        with self._lock:
            self._epoch = epoch
            older = {function: each for function, each in self._known.items() if each.epoch < epoch}
            calls = called() if older else ()
            unused = []
            for function, each in older.items():
                if function in calls:
                    each.epoch = epoch
                else:
                    unused.append(self._known.pop(function))
        _end(unused)

    def end_idle(self) -> bool:
        """End processes that have not been called for long; return whether any is left."""
        with self._lock:
            running = [each for each in self._known.values() if each.process is not None]
        for each in running:
            if not self._is_idle(each):
                continue
            with each.turn:
                if each.process is not None and self._is_idle(each):
                    each.process.end()
                    each.process = None
        with self._lock:
            left = any(each.process is not None for each in self._known.values())
            if not left:
                self._watch = None
            return left

    def _is_idle(self, running: _Running) -> bool:
        return self._clock() - running.called >= IDLE_SECONDS

    def _watch_idle(self) -> None:
        with self._lock:
            if self._watch is None or not self._watch.is_alive():  # a fork does not have its parent's
                name, calls = "idle functions", weakref.ref(self)
                self._watch = threading.Thread(target=_end_idle, args=(calls,), name=name, daemon=True)
                self._watch.start()

    def end(self) -> None:
        """End all processes."""
        with self._lock:
            known, self._known = self._known, OrderedDict()
            forked, self._owner = self._owner != os.getpid(), os.getpid()
        for each in () if forked else known.values():
            if each.process is not None:
                each.process.end()

    def _in_batches(self, function: UserFunction, columns: Sequence[pl.Series], rows: int) -> pl.Series:
        pieces = [pl.Series([], dtype=KINDS[function.result])]
        for first in range(0, rows, BATCH_ROWS):
            cut = [column.slice(first, BATCH_ROWS) for column in columns]
            pieces.append(self._called(function, cut, min(BATCH_ROWS, rows - first)))
        return pl.concat(pieces) if len(pieces) > 1 else pieces[0]

    def _called(self, function: UserFunction, columns: list[pl.Series], rows: int) -> pl.Series:
        # Polars works in threads of its own: neither in front of the lock nor behind it is one of them waited for.
        given = packed(columns)
        running = self._running(function)
        with running.turn:
            answer = self._asked(function, running, given, rows)
        try:
            found = unpacked(answer)
        except Exception:  # noqa: BLE001 - what it has written need not be what it should be
            raise _failed(function, "its process answered what cannot be read") from None
        if found.dtype != KINDS[function.result] or len(found) != rows:
            raise _failed(function, "its process answered what cannot be read")
        return found

    def _asked(self, function: UserFunction, running: _Running, given: bytes, rows: int) -> bytes:
        began = self._clock()
        if began < running.rests_until:
            # In the same words: the same error is not reported again and again.
            raise UserFunctionError(running.reason)
        try:
            if running.process is None or running.process.ended:
                running.process = None
                running.process = FunctionProcess(function, self._rules)
                self._watch_idle()
            return running.process.call(given, rows)
        except UserFunctionError as error:
            if running.process is None or running.process.ended:
                running.process, running.reason = None, error.message
                running.rests_until = self._clock() + RESTS * (self._clock() - began)
            raise
        finally:
            running.called = self._clock()

    def _running(self, function: UserFunction) -> _Running:
        if not self._rules.allow(function.module, function.attribute):
            raise _not_allowed(function)
        if self._owner != os.getpid():
            self.end()  # what was started before this process was forked belongs to its parent
        with self._lock:
            found = self._known.setdefault(function, _Running(epoch=self._epoch))
            self._known.move_to_end(function)
            over = [self._known.popitem(last=False)[1] for _ in range(len(self._known) - MOST_PROCESSES)]
        _end(over)
        return found


def check_function(function: UserFunction, rules: FunctionRules) -> None:
    """Do nothing if a function may be used, can be imported here, and takes as many arguments as it should.

    Importing a module may do anything: it is done in a process that ends afterwards, and bounded in time.

    Raises
    ------
    UserFunctionError
        If not.
    """
    if not rules.allow(function.module, function.attribute):
        raise _not_allowed(function)
    FunctionProcess(function, rules).end()


def _end_idle(calls: weakref.ref[FunctionCalls]) -> None:
    """End what is not called until nothing runs, or the calls are forgotten."""
    while (found := calls()) is not None and found.end_idle():
        del found
        time.sleep(LOOK_SECONDS)


def _end(over: Iterable[_Running]) -> None:
    """End processes, each once it has answered."""
    for each in over:
        with each.turn:
            if each.process is not None:
                each.process.end()


def _not_allowed(function: UserFunction) -> UserFunctionError:
    """Return the error about a function that may not be used."""
    return UserFunctionError(
        f"function {function.name} ({function.path}) may not be called: the administrator has not allowed its module "
        "with --functions"
    )


def _failed(function: UserFunction, reason: str) -> UserFunctionError:
    return UserFunctionError(f"function {function.name} ({function.path}) failed: {reason}")


def _as_long(column: pl.Series, rows: int) -> pl.Series:
    return column.new_from_index(0, rows) if len(column) == 1 and rows != 1 else column


CALLS = FunctionCalls()
"""Those of this process; no function is allowed until it has rules."""

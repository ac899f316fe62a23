"""A subscriber as users run it: `fjord query tail`, which continues after the last number that it has shown."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.demo.parts import Child

LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Arrival:
    """A result that a subscriber got, and the time of arrival, in seconds since 1970."""

    message: dict[str, Any]
    at: float


class Subscriber:
    """Follows a query, and keeps its results; it is started again whenever it ends, unless it was killed.

    Parameters
    ----------
    query
        Its name.
    start
        Starts the process that shows rows after a number.
    forget
        Called with a process that has ended.
    """

    def __init__(self, query: str, start: Callable[[str, int], Child], forget: Callable[[Child], None]) -> None:
        self.query = query
        self.arrivals: list[Arrival] = []
        self.ends: list[str] = []
        """Its output whenever it ended by itself."""
        self._start = start
        self._forget = forget
        self._child: Child | None = None
        self._place = 0
        self._rest = b""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.start()
        self._thread = threading.Thread(target=self._read_on, name=f"subscriber of {query}", daemon=True)
        self._thread.start()

    @property
    def last(self) -> int:
        """The number of the last row."""
        return int(self.arrivals[-1].message["sequence"]) if self.arrivals else 0

    def start(self) -> None:
        """Continue after the last row; call it in a thread that lives as long as the process should."""
        with self._lock:
            self._place, self._rest = 0, b""
            self._child = self._start(self.query, self.last)

    def look_after(self) -> None:
        """Start it again if it has ended by itself."""
        if self._child is not None and self._child.process.poll() is not None:
            self.ends.append(self._child.log.read_text(errors="replace")[-500:])
            self.kill()
            self.start()

    def kill(self) -> None:
        """Kill it."""
        child = self._child
        if child is None:
            return
        if child.process.poll() is None:
            os.killpg(child.process.pid, signal.SIGKILL)
        child.process.wait(20)
        self._forget(child)
        with self._lock:
            self._read()  # rows that it has shown count
            self._child = None

    def close(self) -> None:
        """Read no more."""
        self._closed.set()
        self._thread.join(10)

    def _read_on(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            with self._lock:
                self._read()

    def _read(self) -> None:
        if self._child is None:
            return
        now = time.time()
        with self._child.log.open("rb") as log:
            log.seek(self._place)
            new = log.read()
        self._place += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        self.arrivals += [Arrival(json.loads(line), now) for line in lines if line.startswith(b"{")]

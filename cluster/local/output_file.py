"""Output files that are complete or absent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that would end the process at once and leave an unfinished file behind. (An interrupt raises by itself.)"""


class OutputFile:
    """The file that an answer is written to.

    A file is written beside its place and moved there in the end. A device or a pipe is written to directly.

    Parameters
    ----------
    path
        Its place; a link stays a link.
    """

    def __init__(self, path: Path) -> None:
        self._target = path.resolve()
        self.is_whole = self._target.is_file() or not self._target.exists()
        """False of a device or a pipe."""
        name = f".{self._target.name}.unfinished"
        self._written = self._target.with_name(name) if self.is_whole else self._target

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield the path to write to; if no error is raised, the file is at its place afterwards.

        Raises
        ------
        OSError
            If it cannot be moved there.
        """
        try:
            with _signals_raised():
                yield self._written
                if self.is_whole:
                    self._written.replace(self._target)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what is unfinished."""
        if self.is_whole:
            with suppress(OSError):
                self._written.unlink()


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Make signals that end the process raise, so that it cleans up; it ends with the exit code that shells expect."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    # Signals that are ignored stay so: nohup ignores hang-ups.
    taken = [each for each in ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, _end) for each in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)

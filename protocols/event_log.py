"""The event log of every Fjord process: structured, on stderr, without secrets.

Code writes ``log = get_logger(__name__)`` and ``log.info("connected", broker=..., attempt=3)``; libraries that use the
standard ``logging`` module are formatted alike. structlog, which brings asyncio and rich with it, is imported by
the first module that has a logger, so commands that log nothing start without it.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Final

from protocols.errors import FjordError

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

LEVEL_VARIABLE: Final = "FJORD_LOG_LEVEL"
"""Environment variable with the level, if no option sets it."""

LEVELS: Final = ("debug", "info", "warning", "error", "critical")

# These log every connection and packet at "info".
_CHATTY_LIBRARIES: Final = ("amqtt", "transitions", "websockets", "asyncio", "py4j", "httpx", "httpcore")


class LogLevelError(FjordError):
    """A log level that does not exist."""

    def __init__(self, level: str) -> None:
        super().__init__(f"unknown log level {level!r}", hint=f"one of {', '.join(LEVELS)}")
        self.level = level


def configure_logging(level: str | None = None, *, json: bool = False) -> None:
    """Send this process's event log to stderr.

    Parameters
    ----------
    level
        One of :data:`LEVELS`, in any case. None: ``FJORD_LOG_LEVEL``, or "warning".
    json
        One JSON object per line instead of text.

    Raises
    ------
    LogLevelError
        No such level.
    """
    name = (level or os.environ.get(LEVEL_VARIABLE) or "warning").lower()
    if name not in LEVELS:
        raise LogLevelError(name)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_EventFormatter(json=json))
    logging.basicConfig(handlers=[handler], level=name.upper(), force=True)
    for library in _CHATTY_LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[name.upper()]))
    if "structlog" in sys.modules:
        _configure_structlog()


def logging_configured() -> tuple[str, bool]:
    """Return the level of this process's event log, and whether it is JSON: for processes that it starts."""
    root = logging.getLogger()
    formatters = [each.formatter for each in root.handlers if isinstance(each.formatter, _EventFormatter)]
    level = logging.getLevelName(root.level).lower()
    return level if level in LEVELS else "warning", any(each.json for each in formatters)


def get_logger(name: str) -> BoundLogger:
    """Return a logger of the event log, for a module's name.

    Until :func:`configure_logging` is called, as in tests and in Spark's workers, structlog is not configured.
    """
    import structlog  # noqa: PLC0415 - not before there is something to log

    if not structlog.is_configured() and _is_configured():
        _configure_structlog()
    logger: BoundLogger = structlog.get_logger(name)
    return logger


def name_in_events(**names: str | int) -> None:
    """Put these names and values into each event that this task, and those that it starts, log from now on."""
    import structlog  # noqa: PLC0415 - not before there is something to log

    structlog.contextvars.bind_contextvars(**names)


def is_logged(times: int) -> bool:
    """Return whether an event of a kind that may come very often is logged: the 1st, 2nd, 4th, 8th and so on are.

    >>> [times for times in range(1, 20) if is_logged(times)]
    [1, 2, 4, 8, 16]
    """
    return times & (times - 1) == 0


SPARED_SECONDS: Final = 60.0


class SparingLog:
    """Which of many events of few reasons are logged: of each reason the first one, and then one a minute.

    Examples
    --------
    >>> log = SparingLog()
    >>> [log.due("full", seconds) for seconds in (0.0, 1.0, 59.0, 60.0, 61.0)], log.due("shape", 61.0)
    ([1, 0, 0, 3, 0], 1)
    """

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}
        self._since: dict[str, int] = {}

    def due(self, reason: str, seconds: float) -> int:
        """Note an event at a time; return of how many it is to be logged, with those before it, or 0."""
        count = self._since[reason] = self._since.get(reason, 0) + 1
        if abs(seconds - self._logged.get(reason, -math.inf)) < SPARED_SECONDS:
            return 0
        self._logged[reason], self._since[reason] = seconds, 0
        return count


class _EventFormatter(logging.Formatter):
    """Formats events with structlog, which it imports at the first one."""

    def __init__(self, *, json: bool) -> None:
        super().__init__()
        self.json = json

    @cached_property
    def _structlog_formatter(self) -> logging.Formatter:
        from protocols.event_format import event_formatter  # noqa: PLC0415 - see the class

        return event_formatter(json=self.json)

    def format(self, record: logging.LogRecord) -> str:
        return self._structlog_formatter.format(record)


def _is_configured() -> bool:
    return any(isinstance(each.formatter, _EventFormatter) for each in logging.getLogger().handlers)


def _configure_structlog() -> None:
    from protocols.event_format import configure_structlog  # noqa: PLC0415 - imports structlog

    configure_structlog()

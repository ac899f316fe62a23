"""The event log of every Fjord process: structured, on stderr, without secrets.

Code writes ``structlog.get_logger().info("connected", broker=..., attempt=3)``; libraries that use the standard
``logging`` module come out in the same form.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import structlog

from protocols.errors import FjordError

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

LEVEL_VARIABLE: Final = "FJORD_LOG_LEVEL"
"""Environment variable with the level, where none is given by hand."""

LEVELS: Final = ("debug", "info", "warning", "error", "critical")

HIDDEN: Final = "***"

_SECRET: Final = re.compile(r"passw|secret|token|credential|api_?key|private_?key|authorization", re.IGNORECASE)
_DEEPEST_LEVEL: Final = 8
# These tell at "info" what each connection and packet does.
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
        One of :data:`LEVELS`, in any case. None: what ``FJORD_LOG_LEVEL`` says, or "warning".
    json
        One JSON object per line in place of text.

    Raises
    ------
    LogLevelError
        No such level.
    """
    name = (level or os.environ.get(LEVEL_VARIABLE) or "warning").lower()
    if name not in LEVELS:
        raise LogLevelError(name)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]
    renderer: Processor
    if json:
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=name.upper(), force=True)
    for library in _CHATTY_LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[name.upper()]))


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace every value whose key names a secret, at any depth, by :data:`HIDDEN`."""
    return {key: HIDDEN if _SECRET.search(key) else _without_secrets(value, 1) for key, value in event.items()}


def _without_secrets(value: Any, depth: int) -> Any:
    if depth > _DEEPEST_LEVEL:
        return value
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(key, str) and _SECRET.search(key) else _without_secrets(inner, depth + 1)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(inner, depth + 1) for inner in value]
    return value

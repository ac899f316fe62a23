"""Passing structlog's events to the standard ``logging`` module, and formatting them as text or JSON."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import structlog

from protocols.stimulus import stimulus

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

HIDDEN: Final = "***"

_SECRET: Final = re.compile(r"passw|secret|token|credential|api_?key|private_?key|authorization", re.IGNORECASE)
_DEEPEST_LEVEL: Final = 8


def configure_structlog() -> None:
    """Make structlog's loggers pass their events to the loggers of the standard library."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *_common_processors(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def event_formatter(*, json: bool) -> logging.Formatter:
    """Return a formatter of structlog's events, and those of other libraries, as text or JSON."""
    processors: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if json:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        # By itself, it shows the values of all local variables, which may be tokens and passwords.
        plain = structlog.dev.plain_traceback
        processors.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain))
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_common_processors(), processors=processors)


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace every value whose key names a secret, at any depth, by :data:`HIDDEN`."""
    return {key: HIDDEN if _SECRET.search(key) else _without_secrets(value, 1) for key, value in event.items()}


def add_stimulus(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Name the message that is being handled, which has caused the event; there may be none."""
    named = stimulus()
    return event if named is None else {**event, "stimulus": named}


def _common_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        add_stimulus,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]


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

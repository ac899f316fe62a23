"""The root of Fjord's exception trees.

Each package derives its own branch from :class:`FjordError`; the branch for wire formats is here.
"""

from __future__ import annotations


class FjordError(Exception):
    """An error that a person can act on: something Fjord rejects or cannot do.

    Parameters
    ----------
    message
        What was wrong and where.
    hint
        What to do about it, or None.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


class ProtocolError(FjordError):
    """Bytes or values that do not follow the wire formats of docs/reference/protocol.md."""


class FrameError(ProtocolError):
    """A frame that cannot be decoded: garbled, truncated, too large, of a wrong kind or with a wrong field.

    ``reason`` is one of a small fixed set of words, suitable as a metric label.
    """

    def __init__(self, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class UnsupportedVersionError(FrameError):
    """A frame of another protocol version."""

    def __init__(self, found: int, supported: int) -> None:
        super().__init__(
            "version",
            f"frame has protocol version {found}, this program supports version {supported}",
            hint="upgrade the older side",
        )
        self.found = found
        self.supported = supported


class TopicError(ProtocolError):
    """A topic that is not one of Fjord's, or a name that cannot be part of one."""


class SchemaError(ProtocolError):
    """A stream schema that is malformed, or values that do not fit it."""


class ProgramError(ProtocolError):
    """A sampling program that no mote could run."""


class SettingsError(FjordError):
    """A device profile, sampling program, fleet or battery in a file or an option that cannot be understood."""


class OverloadError(FjordError):
    """A mote with more work than it has time for."""

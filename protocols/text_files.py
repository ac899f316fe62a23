"""Text files that people write: read as UTF-8, with an error that says where they are not."""

from __future__ import annotations

from pathlib import Path

from protocols.errors import SettingsError


def read_text_file(path: Path, what: str, *, hint: str | None = None) -> str:
    """Return the text of a file, without the byte order mark that some editors begin it with.

    Parameters
    ----------
    path
        The file.
    what
        What it holds, for errors: ``the fleet``.
    hint
        What to do if it cannot be read.

    Raises
    ------
    SettingsError
        If it cannot be read, or is not UTF-8; names the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{what} {path} cannot be read: {error.strerror}", hint=hint) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"line {line} of {path} is not UTF-8", hint="save the file as UTF-8") from error

"""Passwords in addresses: they are shown nowhere, neither in an error nor in a list."""

from __future__ import annotations

import re
from collections.abc import Iterator

MASK = "***"
_RUN = re.compile(r"[^\s'\"]+")
_USER = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]+://[^/@:]*:", re.IGNORECASE)
"""An address up to the password, which goes on to the last `@` of what has no space in it."""
_OPTION = re.compile(
    r"\b(?:ssl)?(?:password|passwd|passphrase)\s*=\s*(?P<value>[^\s&'\"]+)",
    re.IGNORECASE,
)
"""An option that holds a password."""


def _in_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Yield where passwords of addresses are. Each letter is looked at a few times only: texts may be long."""
    for run in _RUN.finditer(text):
        begin, end = run.start(), text.rfind("@", *run.span())
        if end >= 0 and (user := _USER.search(text, begin, end)):
            yield user.end(), end


def masked(text: str) -> str:
    """Return `text` with every password in it replaced.

    >>> masked("postgresql://anna:s3cret@db/roads?sslpassword=x")
    'postgresql://anna:***@db/roads?sslpassword=***'
    """
    return masked_span(text, 0, 0)[0]


def masked_span(text: str, start: int, end: int) -> tuple[str, int, int]:
    """Return `text` with every password in it replaced, and where ``text[start:end]`` has gone."""
    parts: list[str] = []
    kept, moved_start, moved_end = 0, start, end
    for first, last in sorted([*_in_addresses(text), *(found.span("value") for found in _OPTION.finditer(text))]):
        if first < kept:
            continue
        parts += [text[kept:first], MASK]
        kept = last
        grown = len(MASK) - (last - first)
        if start >= last:
            moved_start += grown
        elif start > first:
            moved_start += first - start
        if end >= last:
            moved_end += grown
        elif end > first:
            moved_end += first - end
    return "".join((*parts, text[kept:])), moved_start, max(moved_start, moved_end)

"""Passwords in addresses: nobody gets to see them, neither in an error nor in a list."""

from __future__ import annotations

import re

MASK = "***"
_PASSWORD = re.compile(
    r"(?P<before>[a-z][a-z0-9+.-]*://[^\s/@:'\"]*:)(?P<password>[^\s'\"]*)(?=@)"
    r"|(?P<option>\b(?:ssl)?(?:password|passwd|passphrase)\s*=\s*)(?P<value>[^\s&'\"]+)",
    re.IGNORECASE,
)
"""The password between `user:` and the last `@` of an address, and options that hold one."""


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
    for found in _PASSWORD.finditer(text):
        group = "password" if found["password"] is not None else "value"
        first, last = found.span(group)
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

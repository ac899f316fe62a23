"""Masking passwords in addresses, so that no error and no list shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator

MASK = "***"
_RUN = re.compile(r"[^\s'\"]+")
_USER = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]+://[^/@:]*:", re.IGNORECASE)
"""An address up to the password, which extends to the last `@` before a space."""
_OPTION = re.compile(
    r"\b(?:ssl)?(?:password|passwd|passphrase)\s*=\s*(?P<value>[^\s&'\"]+)",
    re.IGNORECASE,
)
"""An option that holds a password."""


def _in_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of passwords in addresses. It visits each letter only a few times, because texts may be long."""
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
    """Return `text` with every password in it replaced, and the new place of ``text[start:end]``."""
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

"""Finding the quote or comment that is opened and never closed."""

from __future__ import annotations

from cluster.language.comments import enclosed

WRITTEN_TWICE = "a quote within a text is written twice: 'it''s'"


def unclosed(text: str) -> tuple[str, int, str | None] | None:
    """Return what is never closed, with its place, as a reason and a hint; None if there is none.

    >>> unclosed("SELECT 'a' /* b")
    ('a comment is opened here and never closed', 11, 'it is written /* ... */ or -- ...')
    """
    closed_texts = False
    for part in enclosed(text):
        if part.end is None and part.comment:
            return "a comment is opened here and never closed", part.start, "it is written /* ... */ or -- ..."
        if part.end is None:
            hint = WRITTEN_TWICE if part.mark == "'" and closed_texts else None
            return "a quote is opened here and never closed", part.start, hint
        closed_texts = closed_texts or part.mark == "'"
    return None

"""What is wrong with a text, where in it, and what to write instead."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from cluster.language.secrets import masked, masked_span

if TYPE_CHECKING:
    from collections.abc import Iterable


class FjordSqlError(ClusterError):
    """FjordSQL that cannot be read, resolved or typed, or that is refused.

    Parameters
    ----------
    reason
        What is wrong, without the position.
    text
        The whole statement. Passwords in it are masked.
    start, end
        The offending part is ``text[start:end]``; may be empty at the end of the text.
    hint
        What to write instead, or None.
    """

    def __init__(self, reason: str, *, text: str, start: int, end: int, hint: str | None = None) -> None:
        reason, hint = masked(reason), None if hint is None else masked(hint)
        text, start, end = masked_span(text, min(max(start, 0), len(text)), min(max(end, 0), len(text)))
        self.reason = reason
        self.text = text
        self.start = min(max(start, 0), len(text))
        self.end = min(max(end, self.start), len(text))
        before = text[: self.start]
        self.line = before.count("\n") + 1
        """Line of the offending part, from 1."""
        self.column = self.start - (before.rfind("\n") + 1) + 1
        """Its first character's place in the line, from 1."""
        self.offending = text[self.start : self.end]
        super().__init__(f"{reason}, at line {self.line}, column {self.column}", hint=hint)

    def underlined(self) -> str:
        """Return the line of the text with carets under the offending part."""
        lines = self.text.split("\n")
        line = lines[self.line - 1].replace("\t", " ")
        width = min(max(self.end - self.start, 1), max(len(line) - self.column + 1, 1))
        margin = f"{self.line} | "
        return f"{margin}{line}\n{' ' * (len(margin) - 2)}| {' ' * (self.column - 1)}{'^' * width}"


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the closest of `known`, without regard to case, or None if none is close.

    >>> did_you_mean("speeed", ["speed", "lane"])
    'did you mean speed?'
    >>> did_you_mean("altitude", ["speed", "lane"]) is None
    True
    """
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f"did you mean {by_folded[close[0]]}?" if close else None


def suggest(word: str, known: Iterable[str], *, what: str) -> str | None:
    """Return a hint with the closest of `known`, else with a few of them, called `what`."""
    names = list(known)
    if hint := did_you_mean(word, names):
        return hint
    if not names:
        return None
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")  # noqa: PLR2004 - what fits on a line
    return f"{what}: {shown}"

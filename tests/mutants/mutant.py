"""A mutant: one small change of the source, known by what is changed and where, not by the number of a line."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

LONGEST = 160
"""Characters of a text that a mutant is known by."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Parameters
    ----------
    file
        Relative to the root of the repository.
    where
        The function and class around it, with dots; empty at the top of a module.
    operator
        Which kind of change.
    statement
        The text of the statement it is in, on one line; of one with a body, the head.
    before, after
        What is replaced, and by what, each on one line.
    occurrence
        Which of those that are alike in all this, from 0.
    start, end
        Offsets of what is replaced, in bytes.
    replacement
        By what.
    """

    file: str
    where: str
    operator: str
    statement: str
    before: str
    after: str
    occurrence: int
    start: int
    end: int
    replacement: bytes

    @property
    def described(self) -> dict[str, str | int]:
        """What it is known by: holds until its own statement changes."""
        names = ("file", "where", "operator", "statement", "before", "after", "occurrence")
        return {name: getattr(self, name) for name in names}

    @property
    def identity(self) -> str:
        """A short name for that."""
        return hashlib.blake2b(json.dumps(self.described).encode(), digest_size=6).hexdigest()

    def applied(self, source: bytes) -> bytes:
        """Return the mutated source of its file."""
        return source[: self.start] + self.replacement + source[self.end :]

    def line(self, source: bytes) -> int:
        """Return the number of the line it begins in, from 1."""
        return source[: self.start].count(b"\n") + 1


def shortened(text: str) -> str:
    """Return a text with every stretch of white space as one space, and its beginning only if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."

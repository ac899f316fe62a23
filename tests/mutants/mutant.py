"""A mutant: one small change of the source, identified by the change and its place, not by a line number."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

LONGEST = 160
"""Characters of a text in a mutant's identity."""


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
        Kind of the change.
    statement
        The text of its statement, on one line; the head of one with a body.
    before, after
        The replaced text and the new one, each on one line.
    occurrence
        Number, from 0, among those that are equal in all this.
    start, end
        Offsets of the replaced text, in bytes.
    replacement
        The new text.
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
        """Its identity in full: valid until its own statement changes."""
        names = ("file", "where", "operator", "statement", "before", "after", "occurrence")
        return {name: getattr(self, name) for name in names}

    @property
    def identity(self) -> str:
        """A digest of that."""
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

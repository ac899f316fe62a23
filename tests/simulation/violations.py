"""What an oracle finds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.checks import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Violation(NamedTuple):
    """Something that must not be: "lost", "doubled", "stalled" or "wrong", and what."""

    kind: str
    what: str

    @property
    def alike(self) -> tuple[str, str]:
        """What it has in common with the same fault of another schedule: it without its examples and numbers."""
        return self.kind, re.sub(r"\d[\d,.]*", "", self.what.partition(":")[0])


def each(kind: str, what: str, found: Iterable[object]) -> Iterator[Violation]:
    """Yield one violation with the first examples, or nothing if nothing was found."""
    for text in shown(what, found):
        yield Violation(kind, text)

"""What tests know of a clause with a quantity behind an item of FROM: how random texts have it, and what it means."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tests.cluster.oracle import text_spelling as spelling


class Clause(ABC):
    """A clause that makes other tuples of those of an item and its window: ``GRANULARITY(1 MINUTE)``.

    Attributes
    ----------
    word
        What it begins with.
    amounts
        Quantities that it may have in a text, in microseconds.
    bounds
        The words of a range, if it may have one; what is promised is the second.
    place
        Several apply in the order of these, however they are written.
    anywhere
        True if it may stand below windows and changes, too.
    """

    word: ClassVar[str]
    amounts: ClassVar[tuple[int, ...]]
    bounds: ClassVar[tuple[str, str] | None] = None
    place: ClassVar[int] = 0
    anywhere: ClassVar[bool] = False

    @abstractmethod
    def sql(self, table: str, amount_us: int) -> str:
        """Return the tuples that it makes of those of a table: run, instant, place in order of arrival and columns."""

    def granule_us(self, amount_us: int) -> int:
        """At which multiples alone its answer is promised."""
        return 1

    def reach_us(self, amount_us: int) -> int:
        """For how long after its input its answer changes at most."""
        return 0


@dataclass(frozen=True)
class Written:
    """A clause in a text."""

    text: str
    clause: Clause
    amount_us: int


def drawn(dice: random.Random, clause: Clause) -> Written:
    """Return a clause with a quantity, perhaps the better bound of a range."""
    amount = dice.choice(clause.amounts)
    best = spelling.duration(dice, amount)
    if clause.bounds is not None and dice.random() < 0.25:
        worst, (one, other) = spelling.duration(dice, amount * 2), clause.bounds
        best = f"{one} {worst}{dice.choice((',', ''))} {other} {best}"
    return Written(f"{clause.word}({best})", clause, amount)

"""What tests know of a clause with a quantity behind an item of FROM: how random texts have it, and what it means."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tests.cluster.oracle import text_spelling as spelling


class Clause(ABC):
    """A clause that transforms the tuples of an item of FROM, after its window: ``GRANULARITY(1 MINUTE)``.

    Attributes
    ----------
    word
        What it begins with.
    amounts
        Quantities that it may have in a text, in microseconds.
    bounds
        The words of a range, if it may have one: of the coarser bound, and of the finer one, which the oracle expects.
    order
        Several apply by increasing order, however they are written; the same as in ``ITEM_CLAUSES``.
    below_windows
        True if texts have it below windows and changes, too.
    """

    word: ClassVar[str]
    amounts: ClassVar[tuple[int, ...]]
    bounds: ClassVar[tuple[str, str] | None] = None
    order: ClassVar[int] = 0
    below_windows: ClassVar[bool] = False

    @abstractmethod
    def sql(self, table: str, amount_us: int) -> str:
        """Return the transformed tuples of a table.

        Its columns are ``r`` (the stream set), ``t`` (the instant), ``o`` (place in order of arrival), maybe ``own``
        (the stamp), and ``c0``, ``c1``, ...
        """

    def granule_us(self, amount_us: int) -> int:
        """The step at whose multiples its answer is guaranteed."""
        return 1

    def reach_us(self, amount_us: int) -> int:
        """How long after the last change of its input its answer may still change."""
        return 0


@dataclass(frozen=True)
class DrawnClause:
    """A clause in a text."""

    text: str
    clause: Clause
    amount_us: int


def draw_clause(dice: random.Random, clause: Clause) -> DrawnClause:
    """Return a clause with a quantity, perhaps the finer bound of a range."""
    amount = dice.choice(clause.amounts)
    best = spelling.duration(dice, amount)
    if clause.bounds is not None and dice.random() < 0.25:
        worst, (one, other) = spelling.duration(dice, amount * 2), clause.bounds
        best = f"{one} {worst}{dice.choice((',', ''))} {other} {best}"
    return DrawnClause(f"{clause.word}({best})", clause, amount)

"""What the language knows of a clause behind an item of FROM: a row, beside its syntax and the node that it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.operators import Node


@dataclass(frozen=True, slots=True)
class ItemClause:
    """A clause with a quantity in parentheses that makes other tuples of those of the item and its window.

    The parser, what is accepted, words of hints and of spelling, and the translation read this row.

    Parameters
    ----------
    word
        What it begins with.
    syntax
        Its class in syntax trees.
    shape
        How it is written, for hints.
    applied
        Returns the plan of other tuples, of a plan and the clause. Errors are those of the text.
    bounds
        The words before the two quantities of a range, if there may be one in place of a quantity.
    """

    word: str
    syntax: type[exp.Expression]
    shape: str
    applied: Callable[[Node, Any, Context], Node]
    bounds: tuple[str, str] | None = None

    @property
    def part(self) -> str:
        """Its slot in the syntax of an item."""
        return self.word.lower()

    @property
    def words(self) -> tuple[str, ...]:
        """All words that it is written with."""
        return (self.word, *(self.bounds or ()))

    @property
    def slots(self) -> dict[str, frozenset[str]]:
        """What may stand in it: kinds of values by slot of its class."""
        return {"this": frozenset(("Quantity", "Bounds") if self.bounds else ("Quantity",))}

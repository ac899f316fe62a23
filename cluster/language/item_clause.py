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
    """A clause with a quantity in parentheses that transforms the tuples of an item of FROM, after its window.

    The parser, the table of accepted syntax, spelling, hints and the translation read this row.

    Parameters
    ----------
    word
        What it begins with.
    syntax
        Its class in syntax trees.
    example
        How it is written, for hints.
    to_node
        Builds its node from the plan below and the clause; raises errors with their place in the text.
    bounds
        The words before the two quantities of a range, if it may have one in place of a quantity: the coarser bound,
        and the finer one, which is delivered at best.
    """

    word: str
    syntax: type[exp.Expression]
    example: str
    to_node: Callable[[Node, Any, Context], Node]
    bounds: tuple[str, str] | None = None

    @property
    def slot(self) -> str:
        """Where the syntax of an item has it."""
        return self.word.lower()

    @property
    def words(self) -> tuple[str, ...]:
        """All words that it is written with."""
        return (self.word, *(self.bounds or ()))

    @property
    def accepted(self) -> dict[str, frozenset[str]]:
        """Which kinds of values it may hold, by slot of its own syntax."""
        return {"this": frozenset(("Quantity", "Bounds") if self.bounds else ("Quantity",))}

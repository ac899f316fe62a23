"""Draws what random texts have seldom, on purpose: NULL as an argument of a rare function comes once in thousands."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cluster.expressions.called_functions import FUNCTIONS
from cluster.language.functions import AGGREGATES
from cluster.language.spelling import SPELLINGS
from tests.cluster.oracle.text_coverage import Drawn, required_uses
from tests.cluster.oracle.text_expressions import scalars_in
from tests.cluster.oracle.text_forms import Text
from tests.cluster.oracle.text_item_uses import item_uses
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_operations import Operation
from tests.cluster.oracle.text_scalars import STYLES

AIMED = 0.7
"""How often what is sought is chosen where it can be; what it stands in is drawn as usual."""
NULL = ("null", 0)
CALLED = {kind: each.name for kind, each in {**FUNCTIONS, **AGGREGATES}.items()}
NAMES = {
    kind.__name__: (*SPELLINGS.get(kind, ()), *((CALLED[kind],) if kind in CALLED else ()))
    for kind in {*SPELLINGS, *CALLED}
}
"""What nodes of a class of syntax trees are called where they are drawn."""


class Aim(Turns):
    """Gives what is missing its turn wherever it can be chosen."""

    def __init__(self) -> None:
        super().__init__()
        self._sought: set[str] = set()
        self._null: set[str] = set()

    def seek(self, missing: Collection[str]) -> None:
        """Aim at names of what the language accepts, as `Drawn.missing` gives them."""
        heads = {each: each.removeprefix("word ").partition(" ")[0].partition("(")[0] for each in missing}
        names = {each: {_folded(name) for name in (head, *NAMES.get(head, ()))} for each, head in heads.items()}
        self._sought = {name for each in names.values() for name in each}
        self._null = {name for each, found in names.items() if each.endswith(" null") for name in found}

    def choose(self, dice: random.Random, choices: Sequence[Any], of: object = None) -> Any:
        """Return what is sought, mostly; among the other choices, one that was seldom drawn."""
        if self._sought and dice.random() < AIMED:
            if choices is STYLES and isinstance(of, tuple) and _name(of[0]) in self._null:
                return NULL
            if found := [each for each in choices if _name(each) in self._sought]:
                return dice.choice(found)
        return super().choose(dice, choices, of)


def _name(choice: object) -> str | None:
    name = choice.name if isinstance(choice, Operation) else choice
    return _folded(name) if isinstance(name, str) else None


def _folded(name: str) -> str:
    return name.rstrip("+").replace("_", "").casefold()


class Sought:
    """Tells whether there is something in a text that none before it had.

    Parameters
    ----------
    missing
        As `Drawn.missing` gives it.
    """

    def __init__(self, missing: Collection[str]) -> None:
        uses = dict(required_uses())
        self._uses = [uses[name] for name in missing if name in uses]
        self._written = {name for name in missing if name not in uses}

    def among(self, uses: Iterable[str]) -> bool:
        """Return whether something of it is among uses."""
        return any(fits(use) for use in uses for fits in self._uses)

    def may_be_in(self, text: Text) -> bool:
        """Return whether it is worth reading what a text is written as, which takes as long as to draw it."""
        labels = {each.label for each in scalars_in(text) if each.label}
        return bool(self._written) or self.among({*labels, *item_uses(text)})

    def is_in(self, one: Drawn) -> bool:
        """Return whether something of it is in a text."""
        return (
            any(" ".join(triple) in self._written for triple in one.syntax)
            or any(f"word {word}" in self._written for word in one.words)
            or self.among(one.uses)
        )

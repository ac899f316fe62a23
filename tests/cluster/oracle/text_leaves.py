"""Columns as a text may write them, and whose turn it is to be drawn."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Binding, Exactness, Known, Scalar
from tests.cluster.oracle.text_operations import Operation

Leaf = Callable[[Exactness], Scalar]
"""Draws a column, a key or an aggregate; it need not be as exact as asked for."""


class Turns:
    """Gives what has been drawn seldom its turn.

    Examples
    --------
    >>> turns = Turns()
    >>> sorted(turns.choose(random.Random(0), ["a", "b", "c"]) for _ in range(3))
    ['a', 'b', 'c']
    """

    LOOKED_AT = 6

    def __init__(self) -> None:
        self._drawn: Counter[object] = Counter()

    def choose(self, dice: random.Random, choices: Sequence[Any], of: object = None) -> Any:
        """Return the least drawn of some of the choices; `of` tells equal choices of different kinds apart."""
        looked_at = dice.sample(range(len(choices)), min(self.LOOKED_AT, len(choices)))
        found = choices[min(looked_at, key=lambda place: self._drawn[of, _key(choices[place])])]
        self._drawn[of, _key(found)] += 1
        return found


def _key(choice: object) -> object:
    return id(choice) if isinstance(choice, Operation) else choice


def column(
    dice: random.Random, known: Known, scope: Sequence[Known], *, plain: bool = False, qualified: bool = False
) -> Scalar:  # fmt: skip
    """Return a column, by its name alone if no other of the scope is called so."""
    alone = not qualified and alone_means(known, scope)
    qualified = bool(known.alias) and (qualified or not alone or dice.random() < 0.4)
    text = spelling.name(dice, known.name)
    if qualified:
        text = f"{spelling.name(dice, known.alias)}.{text}"
    binding = Binding.ATOM
    if known.sampled and not plain and dice.random() < 0.06:
        binding = Binding.SIGN
        text = f"{text} WITHIN {dice.choice(('0.5', '0.50', '5e-1'))}"
    return Scalar(
        known.type, (text,), (known.sql,), binding=binding, exactness=known.exactness, wild=known.wild, known=known,
        default=known.name,
    )  # fmt: skip


def reachable(known: Known, scope: Sequence[Known]) -> bool:
    """Return whether a text can name a column: unambiguous by its name, or by its item's."""
    same = [each for each in scope if each.name.casefold() == known.name.casefold()]
    own = bool(known.alias) and sum(each.alias == known.alias for each in same) == 1
    return alone_means(known, scope) or own


def alone_means(known: Known, scope: Sequence[Known]) -> bool:
    """Return whether the name of a column means it, with nothing before it."""
    if known.shared:
        return False
    return sum(each.name.casefold() == known.name.casefold() and not each.shared for each in scope) == 1


def has_column(scalar: Scalar) -> bool:
    """Return whether an expression reads anything."""
    return scalar.known is not None or bool(scalar.span) or any(has_column(part) for part in scalar.parts)


def column_leaf(dice: random.Random, known: Known, columns: Sequence[Known], *, qualified: bool = False) -> Leaf:
    """Return what draws one column."""
    return lambda _need: column(dice, known, columns, qualified=qualified)


def column_leaves(
    dice: random.Random, columns: Sequence[Known], *, qualified: bool = False
) -> dict[FieldType, list[Leaf]]:  # fmt: skip
    """Return what draws the columns of a scope, by type."""
    leaves: dict[FieldType, list[Leaf]] = defaultdict(list)
    for known in columns:
        if reachable(known, columns):
            leaves[known.type].append(column_leaf(dice, known, columns, qualified=qualified))
    return leaves

"""Random grouping sets: which keys GROUP BY has together, in ROLLUP, CUBE and GROUPING SETS."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tests.cluster.oracle.text_expressions import Known, Scalar
from tests.cluster.oracle.text_forms import KeySet
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_operations import BOOLEAN

SHARE, SHARE_OF_CONDITIONS = 0.35, 0.9
"""Of the texts with keys that can be in sets, and of those with a condition among them, which are few."""
WITHOUT_KEYS = 0.05
SETS = "GROUPING SETS"
Element = int | KeySet


def key_sets(dice: random.Random, turns: Turns, keys: Sequence[Scalar]) -> tuple[Element, ...]:
    """Return what GROUP BY consists of, every key among it; nothing if it is the keys one after the other."""
    if not keys:
        nothing = KeySet(), KeySet((KeySet(), KeySet()), SETS)
        return (dice.choice(nothing),) if dice.random() < WITHOUT_KEYS else ()
    conditions = any(key.known is None and key.type is BOOLEAN for key in keys)
    if dice.random() >= (SHARE_OF_CONDITIONS if conditions else SHARE) or not _apart(keys):
        return ()
    places = range(len(keys))
    found = [_element(dice, turns, places) for _ in range(dice.choice((1, 1, 2)))]
    used = set(_places(found))
    found += [place for place in places if place not in used]
    dice.shuffle(found)
    return tuple(found)


def _apart(keys: Sequence[Scalar]) -> bool:
    """Return whether no expression can be read as one key, and as something computed of another.

    Where it is NULL depends on that: ``a + 1`` is not NULL in a set with the key a, unless it is itself a key.
    """
    computed = [key for key in keys if key.known is None]
    plain = {key.known for key in keys if key.known is not None}
    columns = [set(_columns(key)) for key in computed]
    return len(computed) < 2 and all(each and not each & plain for each in columns)


def _columns(scalar: Scalar) -> Iterator[Known]:
    if scalar.known is not None:
        yield scalar.known
    for part in scalar.parts:
        yield from _columns(part)


def _element(dice: random.Random, turns: Turns, places: Sequence[int], depth: int = 2) -> Element:
    word = turns.choose(dice, ("", "ROLLUP", "CUBE", SETS, SETS), ("sets", depth))
    if word == "":
        return KeySet(_some(dice, places, at_least=0))
    if word != SETS:
        alone = [dice.random() < 0.6 for _ in range(dice.choice((1, 2)))]
        return KeySet(tuple(dice.choice(places) if each else _together(dice, places) for each in alone), word)
    inner: list[Element] = []
    for _ in range(dice.choice((1, 2, 3))):
        nested = depth > 0 and dice.random() < 0.4
        inner.append(_element(dice, turns, places, depth - 1) if nested else dice.choice(places))
    return KeySet(tuple(inner), word)


def _together(dice: random.Random, places: Sequence[int]) -> KeySet:
    """Return keys in parentheses; a set of one would be a key in parentheses, which is the same."""
    return KeySet(_some(dice, places, at_least=1))


def _some(dice: random.Random, places: Sequence[int], *, at_least: int) -> tuple[int, ...]:
    return tuple(dice.choice(places) for _ in range(dice.randint(at_least, 3)))


def _places(elements: Sequence[Element]) -> Iterator[int]:
    for each in elements:
        if isinstance(each, int):
            yield each
        else:
            yield from _places(each.parts)

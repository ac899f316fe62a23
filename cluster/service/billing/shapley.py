"""Divides a cost fairly among the players that cause it together: the Shapley value (L. S. Shapley, 1953).

Each player pays what it adds to the cost of those before it, averaged over all orders of players. Equal players form
one class here: the cost depends on which classes are present, not on how many players of each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

MOST_EXACT = 6
"""Classes up to which all orders are evaluated."""
MOST_SAMPLED = 16
"""Classes up to which some orders are evaluated: each needs as many costs as there are classes."""
MOST_COSTS = 150
SEED = 1

Cost = Callable[[frozenset[int]], float]
"""Cost of the classes with these numbers; that of none is 0."""


class Method(StrEnum):
    """How shares were found."""

    EXACT = "exact"
    SAMPLED = "sampled"
    """From some orders, drawn at random and always the same."""
    PROPORTIONAL = "proportional"
    """By what each would cost alone: there are too many classes for orders."""


def shapley(cost: Cost, members: Sequence[int]) -> tuple[tuple[float, ...], Method]:
    """Return the share of each player, by class, and how it was found.

    Shares of all members add up to the cost of all classes.

    Parameters
    ----------
    cost
        Called repeatedly with the same classes: it should cache.
    members
        How many players each class has.

    Examples
    --------
    One runway, planes that need 1, 1 and 3 units of it; those that need 1 are equal:

    >>> shares, _ = shapley(lambda classes: max({0: 1.0, 1: 3.0}[each] for each in classes), [2, 1])
    >>> [round(each, 3) for each in shares]
    [0.333, 2.333]
    """
    if not members:
        return (), Method.EXACT
    if len(members) <= MOST_EXACT:
        totals, method = _exact(cost, tuple(members)), Method.EXACT
    elif len(members) <= MOST_SAMPLED:
        totals, method = _sampled(cost, members), Method.SAMPLED
    else:
        totals, method = _proportional(cost, members), Method.PROPORTIONAL
    return tuple(total / count for total, count in zip(totals, members, strict=True)), method


def _exact(cost: Cost, members: tuple[int, ...]) -> list[float]:
    totals = [0.0] * len(members)
    for number in range(len(members)):
        others = [other for other in range(len(members)) if other != number]
        for size in range(len(members)):
            for chosen in combinations(others, size):
                added = cost(frozenset((*chosen, number))) - (cost(frozenset(chosen)) if chosen else 0.0)
                present = tuple(sorted(members[each] for each in chosen))
                absent = sum(members[each] for each in others if each not in chosen)
                totals[number] += added * float(_chance(members[number], present, absent))
    return totals


@lru_cache(maxsize=65_536)
def _chance(own: int, present: tuple[int, ...], absent: int) -> Fraction:
    """Return the probability that just these classes are present when the first player of a class arrives.

    Let each player arrive at a time u drawn evenly from 0 to 1, where time runs backwards: a class of k is absent at u
    with probability u^k, and its first player arrives with density k u^(k-1). The integral of
    own u^(own - 1 + absent) times the product of (1 - u^k) over the classes that are present, multiplied out.
    """
    terms = {own + absent: 1}
    for count in present:
        shifted = {exponent + count: -factor for exponent, factor in terms.items()}
        terms = {each: terms.get(each, 0) + shifted.get(each, 0) for each in terms.keys() | shifted.keys()}
    return sum((Fraction(own * factor, exponent) for exponent, factor in terms.items()), Fraction(0))


def _sampled(cost: Cost, members: Sequence[int]) -> list[float]:
    generator = random.Random(SEED)  # noqa: S311 - no secret
    pairs = max(1, MOST_COSTS // (2 * len(members)))
    totals = [0.0] * len(members)
    for _ in range(pairs):
        drawn = [generator.random() for _ in members]
        # A draw and its mirror image: a class that arrives late in one arrives early in the other.
        for times in (drawn, [1 - time for time in drawn]):
            first = [1 - (1 - time) ** (1 / count) for time, count in zip(times, members, strict=True)]
            before, present = 0.0, frozenset[int]()
            for number in sorted(range(len(members)), key=first.__getitem__):
                present |= {number}
                after = cost(present)
                totals[number] += (after - before) / (2 * pairs)
                before = after
    return totals


def _proportional(cost: Cost, members: Sequence[int]) -> list[float]:
    whole = cost(frozenset(range(len(members))))
    weights = [count * max(0.0, cost(frozenset((number,)))) for number, count in enumerate(members)]
    if not sum(weights):
        weights = [float(count) for count in members]
    return [whole * weight / sum(weights) for weight in weights]

"""Conditions: the parts connected by AND and OR, and the sides of equalities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from cluster.expressions.nodes import Binary, Chain, Expression, Group, bare, chain
from cluster.expressions.walks import found_from_below
from cluster.shared_nodes import remembered

MIRRORED: Mapping[str, str] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""By the sign of a comparison: that of the same one with its sides exchanged."""


@remembered
def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the conditions connected by AND, without parentheses, each different one once.

    >>> from cluster.expressions.text import text_of
    >>> from cluster.expressions.nodes import Column
    >>> a, b, c = map(Column, "abc")
    >>> [text_of(each) for each in conjuncts(chain("AND", (a, Group(chain("OR", (b, c))), a)))]
    ['"a"', '"b" OR "c"']
    """
    return _connected(condition, "AND")


@remembered
def disjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the conditions connected by OR, without parentheses, with repetitions.

    >>> from cluster.expressions.nodes import Column
    >>> a, b = map(Column, "ab")
    >>> disjuncts(chain("OR", (a, Group(chain("OR", (b, a))))))
    (Column(name='a'), Column(name='b'), Column(name='a'))
    """
    return _connected(condition, "OR", once=_as_written(condition)[1] > MOST_WRITTEN)


MOST_WRITTEN = 100_000
"""Most conditions connected by OR from which repetitions are removed; no author writes more."""


def _connected(condition: Expression, word: str, *, once: bool = True) -> tuple[Expression, ...]:
    found: list[Expression] = []
    seen: set[int] = set()
    waiting = [condition]
    while waiting:
        part = bare(waiting.pop())
        if not (isinstance(part, Chain) and part.word == word):
            found.append(part)
        elif not once or id(part) not in seen:
            seen.add(id(part))
            waiting.extend(reversed(part.parts))
    return tuple(dict.fromkeys(found)) if once else tuple(found)


@found_from_below
def _as_written(condition: Expression, operands: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return how many conditions AND connects, and how many OR connects, with repetitions."""
    match condition:
        case Group():
            return operands[0]
        case Chain(word="AND"):
            return sum([conditions for conditions, _ in operands]), 1
        case Chain(word="OR"):
            return 1, sum([conditions for _, conditions in operands])
        case _:
            return 1, 1


def repeats_itself(condition: Expression) -> bool:
    """Return whether a condition occurs twice among those connected by AND."""
    return _as_written(condition)[0] > len(conjuncts(condition))


def all_of(conditions: Iterable[Expression]) -> Expression | None:
    """Return the conjunction of conditions, each different one once; None if there are none."""
    unique = tuple(dict.fromkeys(conditions))
    if len(unique) <= 1:
        return unique[0] if unique else None
    return chain("AND", tuple(Group(each) if is_alternative(each) else each for each in unique))


def is_alternative(condition: Expression) -> bool:
    """Return whether a condition is a disjunction."""
    return isinstance(condition, Chain) and condition.word == "OR"


def equal_sides(condition: Expression) -> tuple[Expression, Expression] | None:
    """Return both sides of an equality; None for anything else."""
    found = condition if isinstance(condition, Binary) and condition.sign == "=" else None
    return None if found is None else cast("tuple[Expression, Expression]", found.operands)

"""Random columns behind USING, and what names and stars mean then: docs/reference/sql.md, Joining."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Binding, Exactness, Known, Scalar, words
from tests.cluster.oracle.text_forms import Item, connector_of
from tests.cluster.oracle.text_items import Offered


def shared_columns(dice: random.Random, before: Sequence[Offered], other: Offered) -> list[tuple[Known, Known]]:
    """Return columns of one name, of what stands before a join as far as a comma, and of the item behind it."""
    begin = max(place for place, each in enumerate(before) if place == 0 or connector_of(each.item) == ",")
    left = [known for each in before[begin:] for known in each.columns if not known.shared]
    pairs = []
    for known in other.columns:
        partners = [each for each in left if each.name.casefold() == known.name.casefold()]
        own = [each for each in other.columns if each.name.casefold() == known.name.casefold()]
        if len(partners) == len(own) == 1 and _comparable(partners[0], known):
            pairs.append((partners[0], known))
    return dice.sample(pairs, dice.randint(1, min(2, len(pairs)))) if pairs else []


def with_shared(dice: random.Random, other: Offered, shared: Sequence[tuple[Known, Known]]) -> Offered:
    """Return an item joined by USING."""
    assert isinstance(other.item, Item)
    on = _equal(*shared[0])
    for pair in shared[1:]:
        on = Scalar(FieldType.BOOLEAN, (), words("{0} AND {1}"), (on, _equal(*pair)), Binding.AND)
    using = tuple(spelling.name(dice, right.name) for _, right in shared)
    taken = [right for _, right in shared]
    columns = tuple(replace(each, shared=True) if each in taken else each for each in other.columns)
    return replace(other, item=replace(other.item, on=on, using=using), columns=columns)


def starring(offered: Sequence[Offered]) -> tuple[Known, ...] | None:
    """Return what ``*`` means where something is shared: by join, the columns of USING first, then all else once."""
    if not any(isinstance(each.item, Item) and each.item.using for each in offered):
        return None
    found: list[Known] = []
    group: list[Known] = []
    for place, each in enumerate(offered):
        if place and connector_of(each.item) == ",":
            found, group = found + group, []
        using = each.item.using if isinstance(each.item, Item) else ()
        names = [name.strip('"').casefold() for name in using]
        first = [next(known for known in group if known.name.casefold() == name) for name in names]
        group = first + [known for known in group if known not in first]
        group += [known for known in each.columns if not known.shared]
    return tuple(found + group)


def _comparable(one: Known, other: Known) -> bool:
    exact = min(one.exactness, other.exactness) > Exactness.NEARLY
    return one.type is other.type and (exact or one.type is not FieldType.REAL)


def _equal(left: Known, right: Known) -> Scalar:
    sides = tuple(Scalar(each.type, (), (each.sql,), exactness=each.exactness, known=each) for each in (left, right))
    return Scalar(FieldType.BOOLEAN, (), words("{0} = {1}"), sides, Binding.COMPARISON)

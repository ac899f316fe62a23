"""Random columns behind USING, and what names and stars mean then: docs/reference/sql/joins.md, Joins."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Binding, Exactness, Known, Scalar, words
from tests.cluster.oracle.text_forms import Item, connector_of, side_of
from tests.cluster.oracle.text_items import Offered


@dataclass(frozen=True)
class Starring:
    """What ``*`` means: what stands before the last comma, and behind it; `shared` is true behind a USING."""

    found: tuple[Known, ...] = ()
    group: tuple[Known, ...] = ()
    shared: bool = False

    @property
    def columns(self) -> tuple[Known, ...] | None:
        """The columns; None if they are simply all, in order."""
        return (*self.found, *self.group) if self.shared else None

    def behind(self, other: Offered) -> Starring:
        """Return what it means behind another item."""
        if connector_of(other.item) == ",":
            return replace(self, found=(*self.found, *self.group), group=other.columns)
        return replace(self, group=(*self.group, *other.columns))


def group_of(before: Sequence[Offered]) -> int:
    """Return where the items begin that a JOIN behind these is about: behind the last comma."""
    return max(place for place, each in enumerate(before) if place == 0 or connector_of(each.item) == ",")


def shared_columns(dice: random.Random, before: Sequence[Offered], other: Offered) -> list[tuple[Known, Known]]:
    """Return columns of one name, of what stands before a join as far as a comma, and of the item behind it."""
    left = [known for each in before[group_of(before) :] for known in each.columns if not known.shared]
    pairs = []
    for known in other.columns:
        partners = [each for each in left if each.name.casefold() == known.name.casefold()]
        own = [each for each in other.columns if each.name.casefold() == known.name.casefold()]
        if len(partners) == len(own) == 1 and _comparable(partners[0], known):
            pairs.append((partners[0], known))
    return dice.sample(pairs, dice.randint(1, min(2, len(pairs)))) if pairs else []


def with_shared(
    dice: random.Random, before: Sequence[Offered], other: Offered, shared: Sequence[tuple[Known, Known]],
    starring: Starring,
) -> tuple[list[Offered], Starring]:  # fmt: skip
    """Return the items with another joined by USING: of two columns the name alone means one, which a star shows."""
    assert isinstance(other.item, Item)
    on = _equal(*shared[0])
    for pair in shared[1:]:
        on = Scalar(FieldType.BOOLEAN, (), words("{0} AND {1}"), (on, _equal(*pair)), Binding.AND)
    using = tuple(spelling.name(dice, right.name) for _, right in shared)
    side = side_of(other.item)
    lefts, rights = ([pair[place] for pair in shared] for place in (0, 1))
    made = [_one(*pair) for pair in shared] if side == "FULL" else []
    hidden = {"RIGHT": lefts, "FULL": lefts + rights}.get(side, rights)
    gone = {each.sql for each in hidden}

    def without(columns: Sequence[Known]) -> tuple[Known, ...]:
        return tuple(replace(each, shared=True) if each.sql in gone else each for each in columns)

    item = replace(other.item, on=on, using=using)
    found = [replace(each, columns=without(each.columns)) for each in before]
    found.append(replace(other, item=item, columns=(*without(other.columns), *made)))
    first = made or (rights if side == "RIGHT" else lefts)
    rest = [each for each in starring.group if each.sql not in {known.sql for known in lefts}]
    rest += [each for each in other.columns if each not in rights]
    return found, replace(starring, group=(*first, *rest), shared=True)


def _one(left: Known, right: Known) -> Known:
    """Return the column that a FULL JOIN makes of two: the one that is not NULL."""
    exactness, wild = min(left.exactness, right.exactness), left.wild or right.wild
    return Known(left.name, left.type, f"coalesce({left.sql}, {right.sql})", "", exactness, wild)


def _comparable(one: Known, other: Known) -> bool:
    exact = min(one.exactness, other.exactness) > Exactness.NEARLY
    return one.type is other.type and (exact or one.type is not FieldType.REAL)


def _equal(left: Known, right: Known) -> Scalar:
    sides = tuple(Scalar(each.type, (), (each.sql,), exactness=each.exactness, known=each) for each in (left, right))
    return Scalar(FieldType.BOOLEAN, (), words("{0} = {1}"), sides, Binding.COMPARISON)

"""What a SELECT reads of the items of its FROM, besides their columns: intervals of their tuples, and their quality."""

from __future__ import annotations

import random
from dataclasses import replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle.text_expressions import Aggregate, Scalar, scalars_in, words
from tests.cluster.oracle.text_extents import QUALITY
from tests.cluster.oracle.text_forms import Item, Output, Select, Zipped, outputs_of, side_of, without_validity
from tests.cluster.oracle.text_intervals import COLUMN
from tests.cluster.oracle.text_outputs import unique

REAL = FieldType.REAL


def only_read(select: Select) -> Select:
    """Return a SELECT without VALID UNTIL NEXT where a window says how long tuples count, and nothing reads VALID."""
    if not any(isinstance(each, Item) and each.valid is not None for each in select.items):
        return select
    read = {each.span for each in scalars_in(select)}

    def without(item: Item | Zipped) -> Item | Zipped:
        unread = isinstance(item, Item) and f"{item.mark}.{COLUMN}" not in read
        return without_validity(item) if isinstance(item, Item) and unread else item

    return replace(select, items=tuple(map(without, select.items)))


def kept_at_end(
    dice: random.Random, items: tuple[Item | Zipped, ...], end: str
) -> tuple[tuple[Item | Zipped, ...], str]:  # fmt: skip
    """Write KEEP at the end of a SELECT, if all extents have one: for all of them, or one that loses its own."""
    extents = [each for each in items if isinstance(each, Item) and each.extent is not None]
    if not extents or not all(each.keep for each in extents) or dice.random() < 0.4:
        return items, end
    last, every = dice.choice(extents), dice.random() < 0.6

    def without(item: Item | Zipped) -> Item | Zipped:
        if not isinstance(item, Item) or not (every or item is last):
            return item
        return replace(item, clauses=tuple(each for each in item.clauses if each != item.keep))

    parts = [each for each in (end, last.keep) if each]
    dice.shuffle(parts)
    return tuple(map(without, items)), " ".join(parts)


def hides_quality(select: Select) -> bool:
    """Return whether rows that are equal otherwise may differ in a quality that is not written: some have no tuple."""
    return bool(_kept(select)) and any(map(side_of, select.items))


def with_quality(select: Select) -> Select:
    """Return the SELECT of a text with its last column, if KEEP stands in its FROM, and it shows no quality itself.

    It is that of the worst of the rows that are joined, and in a group that of the worst row.
    """
    kept, shown = _kept(select), outputs_of(select)
    read = {each.known.name.casefold() for each in scalars_in(shown) if each.known is not None}
    if not kept or select.distinct or any(each.partition("_")[0] == QUALITY for each in read):
        return select
    parts = tuple(Scalar(REAL, (), (f"{each.mark}.c{each.width - 1}",)) for each in kept)
    listed = ", ".join(f"{{{number}}}" for number in range(len(parts)))
    worst = Scalar(REAL, (), words(f"list_min([{listed}])"), parts)
    if select.grouped:
        worst = Scalar(REAL, (), (), (worst,), aggregate=Aggregate("min"))
    added = Output(worst, unique(QUALITY, [each.name for each in shown]), added=True)
    return replace(select, outputs=(*select.outputs, added))


def _kept(select: Select) -> list[Item]:
    return [each for each in select.items if isinstance(each, Item) and each.keep]

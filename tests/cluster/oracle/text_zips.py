"""Random zipper joins, and joins by stamps."""

from __future__ import annotations

import random
from dataclasses import replace

from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Known
from tests.cluster.oracle.text_forms import Zipped
from tests.cluster.oracle.text_items import Offered


def zipped(dice: random.Random, mark: str, left: Offered, right: Offered) -> Offered:
    """Return the zipper join of two items whose tuples are valid at instants."""
    keys, on = _keys(dice, left, right)
    low, high, within = _bounds(dice)
    kind = dice.choice(("inner", "inner", "left", "full"))
    words = {"inner": ("ZIP JOIN", "INNER ZIP JOIN"), "left": ("LEFT ZIP JOIN", "LEFT OUTER ZIP JOIN"),
             "full": ("FULL ZIP JOIN", "FULL OUTER ZIP JOIN")}  # fmt: skip
    names = {each.name.casefold() for each in (*left.columns, *right.columns)}
    apart = "apart_us"
    while apart in names:
        apart = f"apart_us_{int(apart.rpartition('_')[2]) + 1 if apart != 'apart_us' else 2}"
    own = [*left.columns, *right.columns, Known(apart, FieldType.INTEGER, "", "")]
    columns = tuple(replace(each, sql=f"{mark}.c{n}", stamp="", sampled=False) for n, each in enumerate(own))
    item = Zipped(left.item, right.item, mark, kind, f"{dice.choice(words[kind])} ", tuple(keys),  # type: ignore[arg-type] # a zipper join's right side is an item
                  f"{within}{' ON ' + ' AND '.join(on) if on else ''}", (low, high))  # fmt: skip
    return Offered(item, columns, left.alias, instants=True)


def by_stamps(dice: random.Random, mark: str, left: Offered, right: Offered) -> Offered:
    """Return an ASOF join, or a join WITHIN a time, of two items whose tuples are valid at instants."""
    keys, on = _keys(dice, left, right)
    also = None
    if dice.random() < 0.5:
        word, (kind, text, tail, bounds) = "ASOF", _asof(dice, left, right, on)
    else:
        if dice.random() < 0.3:
            keys, on, also = _besides(dice, left, right, keys, on)
        word, (kind, text, tail, bounds) = "WITHIN", _near(dice, on)
    own = [*left.columns, *right.columns]
    columns = tuple(replace(each, sql=f"{mark}.c{n}", stamp="", sampled=False) for n, each in enumerate(own))
    item = Zipped(left.item, right.item, mark, kind, text, tuple(keys), tail, bounds, also=also, word=word)  # type: ignore[arg-type] # its right side is an item
    return Offered(item, columns, left.alias, instants=True)


def _asof(
    dice: random.Random, left: Offered, right: Offered, on: list[str]
) -> tuple[str, str, str, tuple[int | None, int]]:
    """Return the kind of an ASOF join, what stands before and behind its right side, and its bounds."""
    kind = dice.choice(("inner", "left"))
    words = {"inner": ("ASOF JOIN", "ASOF INNER JOIN"), "left": ("ASOF LEFT JOIN", "ASOF LEFT OUTER JOIN")}
    low, within = None, ""
    if dice.random() < 0.5:
        low = -dice.choice((1, 2, 4))
        within = f" WITHIN {_distance(dice, -low)}"
    high, before = 0, ""
    aliases = [{each.alias for each in side.columns} for side in (left, right)]
    if (
        len(aliases[0]) == len(aliases[1]) == 1
        and all(alias for side in aliases for alias in side)
        and dice.random() < 0.6
    ):
        strictly = dice.random() < 0.5
        high = -1 if strictly else 0
        one, other = (f"STAMP({spelling.name(dice, *side)})" for side in aliases)
        sign = ">" if strictly else ">="
        turned = dice.random() < 0.4
        stamps = f"{other} {sign.replace('>', '<')} {one}" if turned else f"{one} {sign} {other}"
        if dice.random() < 0.5:
            before = f" MATCH_CONDITION ({stamps})"
        else:
            on = [*on, stamps]
            dice.shuffle(on)
    tail = f"{within}{before}{' ON ' + ' AND '.join(on) if on else ''}"
    return kind, f"{dice.choice(words[kind])} ", tail, (low, high)


def _near(dice: random.Random, on: list[str]) -> tuple[str, str, str, tuple[int, int]]:
    kind = dice.choice(("inner", "inner", "left", "right", "full"))
    words = {"inner": ("JOIN", "INNER JOIN"), "left": ("LEFT JOIN", "LEFT OUTER JOIN"),
             "right": ("RIGHT JOIN", "RIGHT OUTER JOIN"), "full": ("FULL JOIN", "FULL OUTER JOIN")}  # fmt: skip
    low, high, within = 0, 0, ""
    while not within:
        low, high, within = _bounds(dice)
    return kind, f"{dice.choice(words[kind])} ", f"{within} ON {' AND '.join(on) or 'TRUE'}", (low, high)


def _besides(
    dice: random.Random, left: Offered, right: Offered, keys: list[tuple[int, int]], on: list[str]
) -> tuple[list[tuple[int, int]], list[str], tuple[int, int] | None]:
    """Return the keys of a join, its conditions with one more, and where the boolean column of that is."""
    found = [
        ((side, place), f"{spelling.name(dice, each.alias)}.{spelling.name(dice, each.name)}")
        for side, offered in enumerate((left, right))
        for place, each in enumerate(offered.columns)
        if each.type is FieldType.BOOLEAN and each.alias
    ]
    if dice.random() < 0.5:
        keys, on = [], []
    if not found or dice.random() < 0.2:
        return keys, [*on, "NULL"], (2, 0)
    where, column = dice.choice(found)
    return keys, [*on, dice.choice((column, f"COALESCE({column}, FALSE)"))], where


def _keys(dice: random.Random, left: Offered, right: Offered) -> tuple[list[tuple[int, int]], list[str]]:
    """Return columns of both sides that are equal, and how that is written."""
    keys: list[tuple[int, int]] = []
    on: list[str] = []
    for one in range(len(left.columns)):
        for other in range(len(right.columns)):
            column, partner = left.columns[one], right.columns[other]
            if column.type is partner.type and column.alias and partner.alias and dice.random() < 0.3 and len(keys) < 2:
                keys.append((one, other))
                sides = [
                    f"{spelling.name(dice, each.alias)}.{spelling.name(dice, each.name)}" for each in (column, partner)
                ]
                on.append(" = ".join(sides if dice.random() < 0.7 else reversed(sides)))
    return keys, on


def _bounds(dice: random.Random) -> tuple[int, int, str]:
    way = dice.randint(0, 3)
    if way == 0:
        return 0, 0, ""
    if way == 1:
        wide = dice.choice((0, 1, 2, 5))
        return -wide, wide, f" WITHIN {_distance(dice, wide)}"
    low = dice.choice((-4, -2, 0, 0, 1))
    high = low + dice.choice((0, 1, 3, 6))
    return low, high, f" WITHIN {_distance(dice, low)} TO {_distance(dice, high)}"


def _distance(dice: random.Random, microseconds: int) -> str:
    sign = "-" if microseconds < 0 else ""
    if not microseconds:
        return dice.choice(("0 SECONDS", "0 US", "0 MS"))
    return f"{sign}{spelling.duration(dice, abs(microseconds))}"

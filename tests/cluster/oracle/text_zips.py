"""Random zipper joins."""

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
    keys, on = [], []
    for one in range(len(left.columns)):
        for other in range(len(right.columns)):
            column, partner = left.columns[one], right.columns[other]
            if column.type is partner.type and column.alias and partner.alias and dice.random() < 0.3 and len(keys) < 2:
                keys.append((one, other))
                sides = [
                    f"{spelling.name(dice, each.alias)}.{spelling.name(dice, each.name)}" for each in (column, partner)
                ]
                on.append(" = ".join(sides if dice.random() < 0.7 else reversed(sides)))
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

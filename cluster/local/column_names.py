"""Names of columns in files as FjordSQL can write them: room temp is room_temp."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from protocols.wire.names import fault_of_identifier, folded, is_identifier, normal
from protocols.wire.streams import RESERVED_PREFIX

_SEVERAL = re.compile("__+")


@lru_cache(maxsize=65_536)
def sql_name(name: str) -> str:
    """Return the name of a column in FjordSQL: its own, or one with ``_`` for what no name has; "" if there is none.

    >>> sql_name("größe"), sql_name("room temp"), sql_name("Temp. [°C]"), sql_name("1h"), sql_name("%")
    ('größe', 'room_temp', 'Temp_C', '_1h', '')
    """
    found = normal(name)
    if not is_identifier(found):
        letters = "".join(each if is_identifier(f"a{each}") else "_" for each in found)
        found = _SEVERAL.sub("_", letters).strip("_")
        found = f"_{found}" if found[:1].isdecimal() else found
    return found if fault_of_column(found) is None else ""


def fault_of_column(name: str) -> str | None:
    """Return why no column can have this name; None if one can."""
    if name.casefold().startswith(RESERVED_PREFIX):
        return f"names that begin with {RESERVED_PREFIX} are Fjord's own"
    return fault_of_identifier(name)


def column_key(name: str) -> str:
    """Return what is the same for a column's name in a file and in FjordSQL, in any case."""
    return folded(sql_name(name) or name)


def renamed(names: Iterable[str]) -> dict[str, str]:
    """Return the columns of a file that have another name in FjordSQL, and that; none whose name another column has."""
    held = list(names)
    taken = {folded(name) for name in held if fault_of_column(name) is None}
    found: dict[str, str] = {}
    for name in held:
        new = sql_name(name)
        if new not in {"", name} and folded(new) not in taken:
            found[name] = new
            taken.add(folded(new))
    return found

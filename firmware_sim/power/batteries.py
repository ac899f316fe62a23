"""Finding batteries by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from firmware_sim.power.battery import Battery, ideal
from protocols.errors import SettingsError
from protocols.power.constants_file import convert, read_table, without_sources

_FILE = "batteries.toml"

MOST_MAH = 1_000_000_000


@cache
def known_batteries() -> Mapping[str, Battery]:
    """Return the batteries that come with Fjord."""
    text = (resources.files("firmware_sim.power") / _FILE).read_text(encoding="utf-8")
    table, _ = without_sources(read_table(text, _FILE), _FILE)
    return MappingProxyType(convert(table, dict[str, Battery], text=text, origin=_FILE))


def find_battery(name: str) -> Battery:
    """Return a battery by name; ``ideal:100`` is an ideal one of 100 mAh.

    Raises
    ------
    SettingsError
        If there is no battery of this name; the error lists the known ones.
    """
    kind, _, capacity = name.partition(":")
    if kind == "ideal":
        try:
            capacity_mah = float(capacity)
        except ValueError:
            capacity_mah = 0.0
        if not 0.0 < capacity_mah < float("inf"):
            raise SettingsError(f"{name!r} has no capacity", hint="write ideal:2400 for 2400 mAh")
        if capacity_mah > MOST_MAH:
            raise SettingsError(f"{name!r} is more than {MOST_MAH:,} mAh")
        return ideal(capacity_mah)
    try:
        return known_batteries()[name]
    except KeyError:
        known = ", ".join([*known_batteries(), "ideal:MAH"])
        raise SettingsError(f"there is no battery {name!r}", hint=f"there are {known}") from None

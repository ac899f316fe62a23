"""Finding device profiles: those that come with Fjord by name, others by their file."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from protocols.errors import SettingsError
from protocols.power.constants_file import convert, line_of, read_table, refuse_other_kind, without_sources
from protocols.power.profile import DeviceProfile
from protocols.text.plain_text import read_text_file
from protocols.wire.packets import SEAL_BYTES

_FOLDER = "presets"
SEALED_SUFFIX = "+seal"
"""Behind the name of a profile: that of the same device with keys, each of whose frames has a seal."""


@cache
def preset_names() -> tuple[str, ...]:
    """Return the names of the profiles that come with Fjord."""
    folder = resources.files("protocols.power") / _FOLDER
    return tuple(sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml")))


@cache
def find_profile(name: str) -> DeviceProfile:
    """Return a profile by its name, or from a file if the name ends in ``.toml``.

    Raises
    ------
    SettingsError
        If there is none, or it is wrong; lists the existing ones, or names the place.

    Examples
    --------
    >>> plain, sealed = find_profile("telosb"), find_profile("telosb+seal")
    >>> sealed.name, sealed.radio.overhead_bits - plain.radio.overhead_bits
    ('telosb+seal', 40.0)
    """
    if name.endswith(SEALED_SUFFIX):
        return with_seals(find_profile(name.removesuffix(SEALED_SUFFIX)))
    if name.endswith(".toml"):
        return read_profile(read_text_file(Path(name), "the profile"), name)
    return read_profile(preset_text(name), f"preset {name}")


def preset_text(name: str) -> str:
    """Return the file of a profile that comes with Fjord: a start for a profile of one's own.

    Raises
    ------
    SettingsError
        If there is none of this name; lists the existing ones.
    """
    if name not in preset_names():
        raise SettingsError(f"there is no preset {name!r}", hint=f"there are {', '.join(preset_names())}")
    return (resources.files("protocols.power") / _FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def is_preset(name: str) -> bool:
    """Return whether a profile comes with Fjord, sealed or not."""
    return name.removesuffix(SEALED_SUFFIX) in preset_names()


def with_seals(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of the same device with keys: each packet is longer by its seal. It has one seal at most."""
    if profile.name.endswith(SEALED_SUFFIX):
        return profile
    radio = msgspec.structs.replace(
        profile.radio,
        overhead_bits=profile.radio.overhead_bits + profile.radio.seal_bits,
        max_payload_bytes=profile.radio.sealed_payload_bytes or profile.radio.max_payload_bytes - SEAL_BYTES,
    )
    return msgspec.structs.replace(profile, name=profile.name + SEALED_SUFFIX, radio=radio)


def doubts_about(profile: DeviceProfile) -> list[str]:
    """Return what is possible in a profile, but hardly meant."""
    processor, radio = profile.processor, profile.radio
    pairs = (
        ("asleep", processor.sleep_mw, "idle", processor.idle_mw),
        ("idle", processor.idle_mw, "active", processor.active_mw),
        ("with its radio asleep", radio.sleep_mw, "receiving", radio.receive_mw),
    )
    return [
        f"{profile.name} draws more {less} ({less_mw:g} mW) than {more} ({more_mw:g} mW)"
        for less, less_mw, more, more_mw in pairs
        if less_mw > more_mw
    ]


def read_profile(text: str, origin: str) -> DeviceProfile:
    """Return the profile that a TOML text describes.

    Raises
    ------
    SettingsError
        If it is no TOML, has an unknown or missing entry, or a constant without its source.
    """
    content = read_table(text, origin)
    refuse_other_kind(content, "a device profile", origin)
    table, sources = without_sources(content, origin)
    profile = convert(table, DeviceProfile, text=text, origin=origin)
    processor = profile.processor
    if processor.minimum_v > processor.supply_v:
        raise SettingsError(
            f"line {line_of(text, 'processor.minimum_v')} of {origin}, field processor.minimum_v: "
            f"{processor.minimum_v:g} V is above the supply of {processor.supply_v:g} V"
        )
    return msgspec.structs.replace(profile, sources=tuple(sources.items()))

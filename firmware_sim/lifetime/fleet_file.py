"""Fleet files: a world, the settings of reports, and groups of equal motes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from firmware_sim.mote.mote_events import MoteDescription
from firmware_sim.phenomena.worlds import Phenomenon, make_world
from firmware_sim.power.battery import Battery, find_battery
from firmware_sim.power.program_file import SettingsText
from firmware_sim.power.surroundings import Climate, Solar
from protocols.acquisition.observed import Observed
from protocols.errors import SettingsError
from protocols.power.constants_file import convert, read_table, refuse_other_kind
from protocols.power.profiles import SEALED_SUFFIX, DeviceProfile, find_profile, with_seals
from protocols.text.plain_text import read_text_file
from protocols.wire.programs import ListenSchedule

DAY_US = 86_400_000_000
SHORT_US = 600_000_000


class _Listen(msgspec.Struct, forbid_unknown_fields=True, rename={"window": "for"}):
    every: str = "30s"
    window: str = "50ms"


class _Group(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)]
    motes: Annotated[tuple[str, ...], Meta(min_length=1)]
    preset: str
    battery: str | None = None
    loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    climate: Climate = msgspec.field(default_factory=Climate)
    solar: Solar | None = None


class _FleetTable(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    world: str
    motes: Annotated[int, Meta(ge=1, le=100_000)]
    group: Annotated[tuple[_Group, ...], Meta(min_length=1)]
    begins_day: Annotated[float, Meta(ge=0, le=366)] = 0.0
    default_period: str | None = None
    samples_per_packet: Annotated[int, Meta(ge=1, le=1024)] = 1
    listen: _Listen | Literal["never"] = msgspec.field(default_factory=_Listen)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedMote:
    """A mote of the fleet with everything on which its life depends, except its program."""

    description: MoteDescription
    group: str
    profile: DeviceProfile
    battery: Battery
    loss: float
    climate: Climate
    solar: Solar | None


@dataclass(frozen=True, slots=True, eq=False)
class FleetPlan:
    """A fleet.

    Parameters
    ----------
    name
        The fleet's name.
    motes
        All of them.
    begins_day
        Day of the year on which it is switched on.
    default_period_us
        Sample period for queries without one.
    samples_per_packet, listen
        The settings of its proxy for reports.
    observed
        Statistics of the values in its world, on which the cheapest programs depend.
    """

    name: str
    motes: tuple[PlacedMote, ...]
    begins_day: float
    default_period_us: int
    samples_per_packet: int
    listen: ListenSchedule
    observed: Observed = field(default_factory=Observed)

    def with_keys(self) -> FleetPlan:
        """Return the same fleet whose motes all have keys: each packet is longer by its seal."""
        return replace(self, motes=tuple(replace(each, profile=with_seals(each.profile)) for each in self.motes))


def load_fleet(path: Path) -> FleetPlan:
    """Return the fleet in a file.

    Raises
    ------
    SettingsError
        If it cannot be read or understood; names the line and the field.
    """
    return read_fleet(read_text_file(path, "the fleet"), str(path), path.parent)


def read_fleet(text: str, origin: str, folder: Path = Path()) -> FleetPlan:
    """Return the fleet that a TOML text describes; raises as :func:`load_fleet`.

    Parameters
    ----------
    text, origin
        The text, and what it is called.
    folder
        Where its files of profiles are.
    """
    content = read_table(text, origin)
    refuse_other_kind(content, "a fleet", origin)
    table = convert(content, _FleetTable, text=text, origin=origin)
    file = SettingsText(text, origin)
    wrong = file.wrong
    try:
        world = make_world(table.world, motes=table.motes)
        descriptions = tuple(world.motes)
    except SettingsError as error:
        raise wrong("world", error.message, error.hint) from error
    found: dict[str, PlacedMote] = {}
    for place, group in enumerate(table.group):
        try:
            profile = find_profile(_preset(group.preset, folder))
        except SettingsError as error:
            raise wrong(f"group[{place}].preset", error.message, error.hint) from error
        try:
            battery = find_battery(group.battery or profile.battery)
        except SettingsError as error:
            raise wrong(f"group[{place}].battery", error.message, error.hint) from error
        matching = [each for each in descriptions if any(fnmatchcase(each.name, glob) for glob in group.motes)]
        if not matching:
            raise wrong(
                f"group[{place}].motes", f"no mote is called {' or '.join(group.motes)}", _examples(descriptions)
            )
        for each in matching:
            if each.name in found:
                reason = f"mote {each.name} is in group {found[each.name].group!r} already"
                raise wrong(f"group[{place}].motes", reason)
            found[each.name] = PlacedMote(each, group.name, profile, battery, group.loss, group.climate, group.solar)
    missing = [each.name for each in descriptions if each.name not in found]
    if missing:
        raise SettingsError(
            f"{len(missing)} of {table.motes} motes of {origin} are in no group: {', '.join(missing[:5])}",
            hint='give a last group motes = ["..."] that takes them',
        )
    default_period = table.default_period
    return FleetPlan(
        table.name,
        tuple(found[each.name] for each in descriptions),
        table.begins_day,
        descriptions[0].default_period_us
        if default_period is None
        else file.duration_us(default_period, "default_period"),
        table.samples_per_packet,
        file.schedule(table.listen),
        observe(world, over_us=SHORT_US if table.world == "road" else DAY_US),
    )


def observe(world: Phenomenon, *, over_us: int, looks: int = 512) -> Observed:
    """Return statistics of the values in a world, from samples taken now and then.

    Parameters
    ----------
    world
        The world.
    over_us
        The period; a world that has to be simulated vehicle by vehicle is not observed for a day.
    looks
        The number of samples.
    """
    observed = Observed(spacing_us=world.motes[0].default_period_us)
    for number in range(looks):
        place = number % len(world.motes)
        mote = world.motes[place]
        fields = tuple(each.name for each in mote.stream.sampled)
        instant_us = (world.begins_us or 0) + number * (over_us // looks)
        before, after = (world.sense(place, each, fields) for each in (instant_us, instant_us + mote.default_period_us))
        for name, one, other in zip(fields, before, after, strict=True):
            if isinstance(one, int | float) and isinstance(other, int | float):
                observed.see(name, float(other), float(one))
    return observed


def _preset(name: str, folder: Path) -> str:
    """Return the name of a preset, or the path of a profile that is named as seen from the fleet's file."""
    plain = name.removesuffix(SEALED_SUFFIX)
    return f"{folder / plain}{name[len(plain) :]}" if plain.endswith(".toml") else name


def _examples(descriptions: tuple[MoteDescription, ...]) -> str:
    return f"motes are called {', '.join(each.name for each in descriptions[:3])}, ... {descriptions[-1].name}"

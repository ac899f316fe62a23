"""Device profiles: the constants of each kind of mote, each with its source; found by name or by file.

**A device profile: the constants of one kind of mote, each with its source.**

A profile is a TOML file of tables (``processor``, ``adc``, ``sensor``, ``radio``, ``clock``, ``board``) whose entries
are ``name = { value = 6.0, source = "where it comes from" }``. The ones that come with Fjord are in ``presets/``.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.errors import SettingsError
from protocols.power.constants_file import convert, line_of, read_table, refuse_other_kind, without_sources
from protocols.text.plain_text import read_text_file
from protocols.wire.packets import SEAL_BYTES

NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
MOST_MILLIWATTS = 1e6
"""Far more than any mote draws; what is above is given in another unit."""
MOST_VOLTS = 100.0
"""As for milliwatts."""
Milliwatts = Annotated[float, Meta(ge=0, le=MOST_MILLIWATTS)]


class Processor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The processor.

    Parameters
    ----------
    supply_v
        Voltage at which the profile's powers hold.
    minimum_v
        Below this voltage it stops, and so does the mote.
    clock_hz
        Instruction clock.
    active_mw, idle_mw, sleep_mw
        Running; waiting with its clock on; in the deepest mode that a timer can end.
    wake_up_us
        Time at active power to wake up.
    sleeps_from_us
        Shortest pause between two samples in which it sleeps; in shorter ones it idles.
    cycles_per_sample, cycles_per_packet
        Work on each sample and packet.
    """

    supply_v: Annotated[float, Meta(gt=0, le=MOST_VOLTS)]
    minimum_v: Annotated[float, Meta(ge=0, le=MOST_VOLTS)] = 0.0
    clock_hz: Positive
    active_mw: Milliwatts
    idle_mw: Milliwatts
    sleep_mw: Milliwatts
    wake_up_us: NotNegative = 0.0
    sleeps_from_us: NotNegative = 0.0
    cycles_per_sample: NotNegative
    cycles_per_packet: NotNegative = 0.0


class Adc(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The converter: its power while it converts, and the time one value takes."""

    mw: Milliwatts
    latch_us: Positive


class Sensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sensor: its power, and how long it has to be on before it can be read.

    One that cannot warm up within a sample period stays on.
    """

    mw: Milliwatts = 0.0
    warm_up_us: NotNegative = 0.0


class Lora(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LoRa modulation, whose time on the air is not proportional to the bits."""

    spreading_factor: Annotated[float, Meta(ge=6, le=12)]
    bandwidth_hz: Positive
    coding_rate: Annotated[float, Meta(ge=1, le=4)]
    preamble_symbols: NotNegative


class Radio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The radio.

    Parameters
    ----------
    transmit_mw, receive_mw, sleep_mw, start_up_mw
        Sending, receiving or listening, off, and getting from off to ready.
    start_up_us
        Time to get ready, before each packet and each listen window that does not follow a packet.
    bits_per_second
        On the air; not used if there is `lora`.
    overhead_bits
        Preamble, addresses and checksum of a packet.
    health_bits
        The mote's health in every polling packet and in some of the others.
    acknowledgement_bits
        Link acknowledgement received after each packet; 0 if there is none.
    channel_sense_us
        Time in receive before each packet to sense whether the channel is free.
    maximum_attempts
        The most attempts to send a packet until it is acknowledged.
    max_payload_bytes
        The largest payload of one packet.
    seal_bits
        What the seal of a mote with keys adds to a packet: less than its length if it takes the place of a checksum.
    sealed_payload_bytes
        The largest payload of a packet with a seal; None if the seal takes its length from the payload.
    lora
        Its modulation, if it is a LoRa radio.
    """

    transmit_mw: Milliwatts
    receive_mw: Milliwatts
    sleep_mw: Milliwatts = 0.0
    start_up_mw: Milliwatts = 0.0
    start_up_us: NotNegative = 0.0
    bits_per_second: Positive
    overhead_bits: NotNegative = 0.0
    health_bits: NotNegative = 64.0
    acknowledgement_bits: NotNegative = 0.0
    channel_sense_us: NotNegative = 0.0
    maximum_attempts: Annotated[float, Meta(ge=1, le=16)] = 1.0
    max_payload_bytes: Positive
    seal_bits: NotNegative = 8.0 * SEAL_BYTES
    sealed_payload_bytes: Positive | None = None
    lora: Lora | None = None

    def airtime_us(self, payload_bits: float) -> float:
        """Return how long a packet with this payload is on the air, overhead included."""
        bits = payload_bits + self.overhead_bits
        if self.lora is None:
            return bits / self.bits_per_second * 1e6
        return lora_airtime_us(self.lora, bits / 8)

    def bits_us(self, bits: float) -> float:
        """Return how long bits without overhead take."""
        return bits / self.bits_per_second * 1e6


class Clock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sample clock's crystal and its synchronisation.

    Parameters
    ----------
    drift_ppm
        Its largest deviation from the true rate.
    synchronise_every_seconds
        The period at which it listens for the time; 0 for never.
    message_bits
        Length of the message that it then receives.
    guard_us
        Additional time of listening, since the instant of the message is uncertain.
    """

    drift_ppm: NotNegative = 0.0
    synchronise_every_seconds: NotNegative = 0.0
    message_bits: NotNegative = 0.0
    guard_us: NotNegative = 0.0


class Board(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The components that are always on."""

    mw: Milliwatts = 0.0


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All parameters of the energy model for one kind of mote.

    Parameters
    ----------
    name, title
        Short and long name.
    battery
        The battery it usually has; see :func:`firmware_sim.power.battery.find_battery`.
    uncertainty
        The relative error of draw and lifetime: the error band to print with every figure.
    sources
        Where each constant comes from: pairs of its dotted name and its source.
    """

    name: str
    title: str
    battery: str
    uncertainty: Annotated[float, Meta(ge=0, lt=1)]
    processor: Processor
    adc: Adc
    radio: Radio
    sensor: Sensor = Sensor()
    clock: Clock = Clock()
    board: Board = Board()
    sources: tuple[tuple[str, str], ...] = ()

    def rests_asleep(self, pause_us: float) -> bool:
        """Return whether the processor sleeps in a pause of this length, rather than idle."""
        return pause_us >= self.processor.sleeps_from_us


def lora_airtime_us(lora: Lora, payload_bytes: float) -> float:
    """Return the time on the air of a LoRa packet with explicit header and checksum (Semtech AN1200.13, section 4).

    Examples
    --------
    >>> sf7 = Lora(spreading_factor=7, bandwidth_hz=125e3, coding_rate=1, preamble_symbols=8)
    >>> round(lora_airtime_us(sf7, payload_bytes=10) / 1e3)
    41
    """
    symbol_us = 2**lora.spreading_factor / lora.bandwidth_hz * 1e6
    slow = 2 if symbol_us > 16_000 else 0  # noqa: PLR2004 - low data rate optimisation is mandated above 16 ms
    bits = 8 * math.ceil(payload_bytes) - 4 * lora.spreading_factor + 28 + 16
    blocks = max(math.ceil(bits / (4 * (lora.spreading_factor - slow))), 0)
    symbols = lora.preamble_symbols + 4.25 + 8 + blocks * (lora.coding_rate + 4)
    return symbols * symbol_us


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

"""The data around the state machine of a mote: its description, events, instructions and counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec.structs import asdict

from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement, Control, NumberedAnnouncement, Packet, SampleValue
from protocols.wire.streams import StreamSchema


@dataclass(frozen=True, slots=True)
class MoteDescription:
    """The description of a mote; see :class:`protocols.wire.packets.Announcement`."""

    name: str
    kind: str
    stream: StreamSchema
    properties: dict[str, SampleValue]
    default_period_us: int
    minimum_period_us: int

    def announcement(
        self,
        boot: int,
        device: str = "",
        battery_joules: float | None = None,
        lifetime_us: int = 0,
        *,
        replays: bool | Literal["recorded"] = False,
        sequence: int | None = None,
    ) -> Announcement:
        """Return its announcement to its proxy after it has booted for the `boot`-th time.

        Parameters
        ----------
        boot, device
            How often it has booted, and its preset; empty for another device.
        battery_joules, lifetime_us
            The usable energy of its battery, if known, and how long it should last; 0 for any time.
        replays
            Whether its clock is that of a recording, and its stamps, too, if it is replayed as it is.
        sequence
            Number of its next packet, if it has a key.
        """
        announcement = Announcement(
            VERSION,
            self.name,
            boot,
            self.kind,
            self.stream,
            self.properties,
            self.default_period_us,
            self.minimum_period_us,
            device,
            battery_joules,
            lifetime_us,
            replays,
        )
        if sequence is None:
            return announcement
        return NumberedAnnouncement(**asdict(announcement), sequence=sequence)


@dataclass(slots=True)
class MoteCounters:
    """The counters of a mote since it booted. Times are radio time."""

    samples: int = 0
    packets: int = 0
    announcements: int = 0
    transmit_us: int = 0
    listen_us: int = 0
    wake_ups: int = 0
    late_ticks: int = 0
    control_received: int = 0
    control_missed: int = 0
    control_refused: int = 0
    """Of a mote with a key: for another listen window than the present one, or with a seal that is not right."""
    clock_adjustments: int = 0
    programs_refused: int = 0
    samples_filtered: int = 0
    """Samples outside the bands of the program."""
    records_suppressed: int = 0
    """Vehicles that were detected and not sent: more than allowed in a second, or cut off by a new program."""


@dataclass(frozen=True, slots=True)
class PowerOn:
    """The battery was connected, or the mote rebooted."""

    radio_us: int


@dataclass(frozen=True, slots=True)
class Wake:
    """The time for which the mote set its timer."""

    radio_us: int


@dataclass(frozen=True, slots=True)
class ControlReceived:
    """Control was sent; only a mote that listens receives it."""

    radio_us: int
    control: Control


Event = PowerOn | Wake | ControlReceived


@dataclass(frozen=True, slots=True)
class SendPacket:
    """Send a packet, for which a real mote would need so many bits."""

    packet: Packet
    payload_bits: float = 0.0


@dataclass(frozen=True, slots=True)
class Announce:
    """Send an announcement."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Wake the mote at this radio time; replaces an earlier timer."""

    radio_us: int


Instruction = SendPacket | Announce | WakeAt

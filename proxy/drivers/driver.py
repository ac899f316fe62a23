"""The interface of drivers: capabilities, frames for the fleet, messages to devices, rejections, versions. Pure.

``radio_us`` is a clock of the proxy that never goes back, ``received_us`` real time, both in microseconds.

**Versions of bridges: which of them a mapping of fields is for.**

Versions are dotted numbers; what follows these (``2.1.0-dev``) does not count.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from protocols.wire.frames import DurationMicroseconds, PositiveMicroseconds
from protocols.wire.packets import Announcement, Packet
from protocols.wire.programs import SamplingProgram


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a device can do by itself; the rest is left to the proxy (:mod:`proxy.drivers.zigbee_reporting`).

    Parameters
    ----------
    changes_rate
        Its sampling or reporting period can be set.
    filters
        It filters out values that lie in no band.
    sends_on_change
        It filters out values within a dead band.
    aggregates
        It sends partial aggregates of panes.
    detects_events
        It finds vehicles in its samples.
    listens
        It receives controls only in the listen windows that it opens.
    shortest_period_us, longest_period_us
        Bounds of the rate, where it can be changed.
    publishes
        It publishes by its own rules: each message is a tuple of its own, and programs mean nothing to it.
    stored_always
        Its tuples are stored even while no query reads their stream.
    event_fields
        Fields of which each change counts: a query without SAMPLE sees it, however short its default period lasts.
    expected_every_us
        It publishes at least once in each period of this length; None if that is not known.
    mains
        It has no battery.
    max_delay_us
        How long after its instant a value may arrive; 0 if values are stamped on arrival.
    """

    changes_rate: bool = False
    filters: bool = False
    sends_on_change: bool = False
    aggregates: bool = False
    detects_events: bool = False
    listens: bool = False
    shortest_period_us: PositiveMicroseconds = 1
    longest_period_us: PositiveMicroseconds = 2**62
    publishes: bool = False
    stored_always: bool = False
    event_fields: tuple[str, ...] = ()
    expected_every_us: PositiveMicroseconds | None = None
    mains: bool = False
    max_delay_us: DurationMicroseconds = 0


PASSIVE = Capabilities(publishes=True)
"""A device that cannot be configured: it sends by its own rules."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to publish.

    Parameters
    ----------
    topic, payload, qos
        Of the MQTT message, which is never retained.
    before_radio_us
        Not to be sent from this instant on; None for no such limit.
    """

    topic: str
    payload: bytes
    qos: int = 1
    before_radio_us: int | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Something that a driver rejects; it is put into the quarantine, with the message that led to it.

    Parameters
    ----------
    reason
        One of a small fixed set of metric labels: see docs/how-to/connect-devices.md.
    detail
        A sentence for the operator.
    mote
        Name of the mote; empty if it is not known.
    """

    reason: str
    detail: str
    mote: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Information for the operator that is not an error, such as what a device cannot do."""

    mote: str
    text: str


class DriverOutput(msgspec.Struct, frozen=True, gc=False):
    """The output of a driver for an event.

    Parameters
    ----------
    frames
        To pass on to the fleet, in this order.
    publications
        To publish.
    rejections
        For the quarantine.
    notices
        For the log.
    waits
        The mote of which a tuple waits to be merged, to which the message belongs, and the number of that tuple; None
        for none.
    """

    frames: tuple[Announcement | Packet, ...] = ()
    publications: tuple[Publication, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    notices: tuple[Notice, ...] = ()
    waits: tuple[str, int] | None = None

    @property
    def only_packet(self) -> Packet | None:
        """The packet, if there is nothing else to deliver or to note, as with most messages; None otherwise."""
        frames = self.frames
        if len(frames) != 1 or self.rejections or self.notices or self.publications:
            return None
        return frames[0] if isinstance(frames[0], Packet) else None

    def __add__(self, other: DriverOutput) -> DriverOutput:
        return DriverOutput(
            self.frames + other.frames,
            self.publications + other.publications,
            self.rejections + other.rejections,
            self.notices + other.notices,
            self.waits or other.waits,
        )


NOTHING = DriverOutput()


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """A device from before a restart of the proxy.

    Parameters
    ----------
    mote
        Its name in Fjord.
    device
        Its own name, as :meth:`Driver.device_of` returned it; empty for one of an earlier version, which did not keep
        it: the driver that meets the device goes on with its stream.
    boot
        Of its frames from now on: higher than that of any frame before.
    announcement
        Its last one.
    state
        What :meth:`Driver.state_of` returned last; empty for nothing.
    low_watermark_us
        No value may be stamped before this; None for no such bound.
    """

    mote: str
    device: str
    boot: int
    announcement: Announcement
    state: bytes = b""
    low_watermark_us: int | None = None


class Driver(Protocol):
    """Translates between the devices of one kind and the fleet. No method raises because of a message's content."""

    @property
    def name(self) -> str:
        """The driver's name; unique within a proxy."""

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """MQTT topic filters of the messages it reads."""

    def capabilities_of(self, mote: str) -> Capabilities:
        """Return what one device can do."""

    def owns(self, mote: str) -> bool:
        """Return whether a mote is one of its devices."""

    def received(
        self, topic: str, payload: bytes, *, radio_us: int, received_us: int, retained: bool = False
    ) -> DriverOutput:
        """Return the output for a message; nothing if the topic is not one of its own."""

    def run(
        self,
        mote: str,
        program: SamplingProgram,
        *,
        radio_us: int,
        received_us: int,
        not_before_us: int | None = None,
    ) -> DriverOutput:
        """Let a device run a program; repeating it does no harm.

        The mote runs it once one of its packets carries the program's number, and no sooner.
        """

    def announce(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Announce a mote again, or request its announcement: the fleet does not know the mote."""

    def listen(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return an empty packet with a listen window, for controls; nothing if the mote opens windows itself."""

    def time_passed(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the output that is due; call it at least once a second."""

    def finish(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return what still waits, such as tuples for the rest of their fields: the proxy stops."""

    def hold_promises(self, *, held: bool) -> None:
        """Let low watermarks of devices stand, or move again: messages from before may still wait at the broker."""

    def waiting(self, mote: str) -> int | None:
        """Return the number of the tuple of a mote that waits to be merged; None if none waits."""

    def restore(self, devices: Sequence[KnownDevice], *, radio_us: int, received_us: int) -> DriverOutput:
        """Go on with devices from before a restart, before any message.

        Returns
        -------
        DriverOutput
            An announcement and an empty packet, which is a promise, of each device that the driver is still to drive.
        """

    def device_of(self, mote: str) -> str:
        """Return the name by which a device's own topics name it; empty if the mote is not one of its devices."""

    def state_of(self, mote: str) -> bytes:
        """Return what is to be kept of a device, as of the packets that were returned so far; empty for nothing."""

    def counts_of(self, mote: str) -> Mapping[str, int]:
        """Return what became of a device's messages and values, by reason: docs/how-to/connect-devices.md has them."""

    def trouble_of(self, mote: str) -> str:
        """Return what keeps values of a device from their stream, and what to do about it; empty for nothing."""


_VERSION = re.compile(r"\s*v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})(?![0-9])", re.ASCII | re.IGNORECASE)
_CONDITION = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})\s*", re.ASCII)
_OPERATORS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
SHOWN = 40
"""Letters of a version that messages show."""


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Conditions that hold all at once, such as ``>=1.30, <2``.

    Examples
    --------
    >>> VersionRange.parse(">=1.30, <2").includes((1, 42, 0)), VersionRange.parse("<2").includes((2, 0, 0))
    (True, False)
    """

    conditions: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Return the range written `text`.

        Raises
        ------
        ValueError
            If it has another form.
        """
        conditions = []
        for part in text.split(","):
            found = _CONDITION.fullmatch(part)
            if found is None:
                raise ValueError(f"{part.strip()[:SHOWN]!r} is no condition on a version; write <2 or >=1.30, <2")
            conditions.append((found[1], _numbers(found[2])))
        return cls(tuple(conditions))

    def includes(self, version: tuple[int, ...]) -> bool:
        """Return whether a version lies in this range."""
        return all(_OPERATORS[sign](_padded(version), _padded(bound)) for sign, bound in self.conditions)


def read_version(found: Any) -> tuple[int, ...] | None:
    """Return the numbers of a version as a bridge writes it; None if it begins with none.

    >>> read_version("2.1.0-dev"), read_version("V1.42"), read_version(None)
    ((2, 1, 0), (1, 42), None)
    """
    text = str(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else ""
    match = _VERSION.match(text[:256])
    return None if match is None else _numbers(match[1])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _padded(version: tuple[int, ...]) -> tuple[int, ...]:
    """Return a version as long as any: 2 is 2.0."""
    return version + (0,) * (8 - len(version))

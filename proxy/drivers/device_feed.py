"""One driven device as a mote: its values become samples, packets and low watermarks.

Pure. A mote of Fjord samples at whole multiples of its period, and queries rely on it. A driven device sends at any
time, so its value becomes the sample of its slot: it is stamped with the multiple of the period at or before its
instant, and only the first value of a slot counts. Between messages the feed makes empty packets, as motes send
them, so that the device does not hold back the watermark and can be sent another program.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement, Health, Packet, Record, Sample, SampleValue
from protocols.wire.programs import SECOND_US, SLEEP, SamplingProgram, program_number
from protocols.wire.streams import StreamSchema
from proxy.drivers.driver import Rejection
from proxy.drivers.residual_filter import ResidualFilter

ALWAYS_LISTENS_US = SECOND_US
"""The listen window of packets of a device that can be sent controls at any time."""

MOST_SLOTS = 10_000
"""Slots remembered as filled, where values may arrive out of order."""


@dataclass(frozen=True, slots=True)
class FeedTimes:
    """Bounds on the instants of values.

    Parameters
    ----------
    max_delay_us
        How long after its instant a value may arrive; None if values are stamped on arrival.
    max_ahead_us
        How far a value may be ahead of the proxy's clock.
    silence_after_us
        A device that sends no message for this long counts as offline, and no more empty packets are made.
    """

    max_delay_us: int | None = None
    max_ahead_us: int = 60 * SECOND_US
    silence_after_us: int = 3600 * SECOND_US


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """The fields of a device's announcement."""

    mote: str
    kind: str
    stream: StreamSchema
    properties: Mapping[str, SampleValue]
    default_period_us: int = SECOND_US
    minimum_period_us: int = 1


class DeviceFeed:
    """The state of one device.

    Parameters
    ----------
    description
        Of the device.
    times
        Bounds on the instants of its values.
    radio_us
        Radio clock now.
    boot
        Of its frames.
    low_watermark_us
        No value may be stamped before this; None for no such bound.
    """

    def __init__(
        self,
        description: DeviceDescription,
        times: FeedTimes,
        *,
        radio_us: int,
        boot: int = 1,
        low_watermark_us: int | None = None,
    ) -> None:
        self.description = description
        self.boot = boot
        self.program: SamplingProgram = SLEEP
        self._samples = 0
        self.offline = False
        self._times = times
        self._number = 0
        self._residual = ResidualFilter(SLEEP)
        self._sequence = 0
        self._low_watermark_us = low_watermark_us
        self._begins_us: int | None = None
        self._filled: set[int] = set()
        self._received_radio_us = radio_us
        self._sent_radio_us = radio_us
        self._battery: float | None = None
        self._battery_news = False

    def announcement(self) -> Announcement:
        """Return the announcement of the device."""
        description = self.description
        return Announcement(
            version=VERSION,
            mote=description.mote,
            boot=self.boot,
            kind=description.kind,
            stream=description.stream,
            properties=dict(description.properties),
            default_period_us=description.default_period_us,
            minimum_period_us=description.minimum_period_us,
        )

    def run(
        self,
        program: SamplingProgram,
        *,
        radio_us: int,
        received_us: int,
        not_before_us: int | None,
        on_device: Collection[str] = (),
    ) -> Packet:
        """Start a program; return the packet that acknowledges it."""
        self.program = program
        self._number = program_number(program)
        self._residual = ResidualFilter(program, on_device)
        if not_before_us is not None:
            self._begins_us = not_before_us if self._begins_us is None else max(self._begins_us, not_before_us)
        return self._packet((), radio_us, received_us)

    def empty(self, *, radio_us: int, received_us: int) -> Packet:
        """Return a packet without samples, in whose listen window the fleet may send controls."""
        return self._packet((), radio_us, received_us)

    def set_offline(self, *, offline: bool) -> None:
        """Set whether the device is offline: no empty packets are made then."""
        self.offline = offline

    def describe(self, description: DeviceDescription) -> None:
        """Set another description of the same device; the numbers of its packets continue."""
        self.description = description

    def message_received(self, *, radio_us: int, battery: float | None = None) -> None:
        """Note a message of the device; `battery` is the share that is left."""
        self._received_radio_us = radio_us
        if battery is not None and 0 <= battery <= 1 and battery != self._battery:
            self._battery = float(battery)
            self._battery_news = True

    def sample(
        self, values: Mapping[str, SampleValue], *, at_us: int, radio_us: int, received_us: int
    ) -> Packet | Rejection | None:
        """Return the packet for values of instant `at_us`, None if they are not needed, or why they are rejected."""
        self.message_received(radio_us=radio_us)
        if at_us - received_us > self._times.max_ahead_us:
            ahead = (at_us - received_us) / SECOND_US
            return self._rejection("clock", f"values are stamped {ahead:.1f} s ahead of the proxy's clock")
        if self.program.sleeping:
            return None
        period_us = self.program.period_us
        start_us = at_us // period_us * period_us
        if self._low_watermark_us is not None and start_us < self._low_watermark_us:
            return self._behind(at_us, period_us)
        begins = self._begins_us is None or start_us >= self._begins_us
        if not begins or start_us in self._filled:
            return None
        sampled = tuple(values.get(name) for name in self.program.fields)
        if not self._residual.passes(start_us, sampled):
            return None
        self._samples += 1
        self._fill(start_us)
        return self._packet(((start_us, sampled),), radio_us, received_us)

    def heartbeat(self, *, radio_us: int, received_us: int) -> Packet | None:
        """Return the empty packet that is due, if one is."""
        if self.offline or radio_us - self._received_radio_us >= self._times.silence_after_us:
            return None
        if radio_us - self._sent_radio_us < self.program.listen.every_us:
            return None
        return self._packet((), radio_us, received_us)

    def _behind(self, at_us: int, period_us: int) -> Rejection | None:
        """Return why values of a slot before the low watermark are rejected; None if they are just not needed."""
        behind_us = (self._low_watermark_us or 0) - at_us
        if behind_us <= (period_us if self._times.max_delay_us is None else 0):
            return None  # the slot was filled, or had begun when the program did
        if self._times.max_delay_us is None:
            detail = f"the proxy's clock went back: values are {behind_us / SECOND_US:.3f} s behind the low watermark"
            return self._rejection("clock", detail)
        return self._rejection("late", f"values came {behind_us / SECOND_US:.3f} s after the device's max_delay")

    def _fill(self, start_us: int) -> None:
        if self._times.max_delay_us is None:
            # Arrivals are in order, so the slot is over once it has its sample.
            self._raise_low_watermark(start_us + self.program.period_us)
            return
        self._filled.add(start_us)
        if len(self._filled) > MOST_SLOTS:
            # Raising the low watermark keeps the set bounded; older values are rejected as late.
            self._raise_low_watermark(sorted(self._filled)[MOST_SLOTS // 2])

    def _raise_low_watermark(self, instant_us: int) -> None:
        if self._low_watermark_us is None or instant_us > self._low_watermark_us:
            self._low_watermark_us = instant_us
            if self._filled:
                self._filled = {each for each in self._filled if each >= instant_us}

    def _packet(
        self, samples: tuple[tuple[int, tuple[SampleValue, ...]], ...], radio_us: int, received_us: int
    ) -> Packet:
        earliest_us = received_us - (self._times.max_delay_us or 0)
        if not self.program.sleeping:
            earliest_us = earliest_us // self.program.period_us * self.program.period_us
        self._raise_low_watermark(earliest_us)
        clock_us = max((received_us, *(start_us for start_us, _ in samples)))
        records: list[Record] = [Sample(clock_us - start_us, values) for start_us, values in samples]
        if self._battery_news:
            self._battery_news = False
            # The airtime of a driven device is not known.
            records.append(Health(self._battery, self._samples, self._sequence + 1, 0, 0))
        packet = Packet(
            version=VERSION,
            mote=self.description.mote,
            boot=self.boot,
            sequence=self._sequence,
            clock_us=clock_us,
            promise_us=self._low_watermark_us if self._low_watermark_us is not None else earliest_us,
            listen_us=ALWAYS_LISTENS_US,
            program=self._number,
            records=tuple(records),
        )
        self._sequence += 1
        self._sent_radio_us = radio_us
        return packet

    def _rejection(self, reason: str, detail: str) -> Rejection:
        return Rejection(reason, detail, self.description.mote)

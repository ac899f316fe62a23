"""One driven device as a mote: its values become samples, packets and low watermarks. Pure.

**Messages that belong together: copies of one that several gateways pass on, and halves of a tuple.**

Both are recognised within a bounded time and a bounded memory only.

**The residual filter of a device: bands and dead bands that it does not apply itself.**

The rules are those of a mote: NULL lies in no band, and a sample is sent when a field left its dead band.

What a device publishes is a tuple of its own, stamped by the device or on arrival, whatever queries run. Only
where all queries take changes alone, and the device is set to send nothing else, its values are put on the grid of its
program, as a mote's are: a value becomes the sample of its slot, the multiple of the period at or before its instant,
and only the first value of a slot counts. Between messages the feed makes empty packets, as motes send them, so that
the device does not hold back the watermark.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from dataclasses import field as default

from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement, Health, Packet, Record, Sample, SampleValue
from protocols.wire.programs import (
    SECOND_US,
    SLEEP,
    Band,
    SamplingProgram,
    SendOnChange,
    program_number,
    publishing_program,
)
from protocols.wire.streams import StreamSchema
from proxy.drivers.payloads import PayloadError

MOST_REMEMBERED = 256
"""Messages of a device that are compared with the next one."""


class RecentMessages:
    """The last messages of one device, by their content.

    Parameters
    ----------
    within_us
        A message of the same content as one received no longer ago is a copy of it; 0 if copies are not recognised.
    """

    def __init__(self, within_us: int) -> None:
        self._within_us = within_us
        self._received: OrderedDict[bytes, int] = OrderedDict()

    def is_copy(self, content: object, radio_us: int) -> bool:
        """Return whether a message is a copy; if it is none, remember it."""
        if not self._within_us:
            return False
        while self._received:
            oldest, received_us = next(iter(self._received.items()))
            if radio_us - received_us <= self._within_us and len(self._received) < MOST_REMEMBERED:
                break
            del self._received[oldest]
        digest = hashlib.blake2b(repr(content).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._received:
            return True
        self._received[digest] = radio_us
        return False


@dataclass(slots=True)
class HalfTuple:
    """A tuple that waits for the rest of its fields.

    Parameters
    ----------
    stamp_us
        Of its first message.
    due_radio_us
        When it waits no longer, on the radio clock.
    values
        By field, so far.
    """

    stamp_us: int
    due_radio_us: int
    values: dict[str, SampleValue]

    def takes(self, values: dict[str, SampleValue], stamp_us: int, within_us: int, events: Collection[str]) -> bool:
        """Return whether a message belongs to it: its stamp is near, and no event in it has another value."""
        if abs(stamp_us - self.stamp_us) > within_us:
            return False
        return not any(
            self.values.get(name) is not None and values.get(name) not in {None, self.values[name]} for name in events
        )

    def completes(self, values: dict[str, SampleValue]) -> bool:
        """Return whether a message has a field that it lacks, or says the same again: else it is of the next tuple."""
        given = {name: value for name, value in values.items() if value is not None}
        return any(self.values.get(name) is None for name in given) or given.items() <= self.values.items()

    def overlaps(self, values: dict[str, SampleValue]) -> bool:
        """Return whether a message has a value of a field that it has already."""
        return any(value is not None and self.values.get(name) is not None for name, value in values.items())

    def merge(self, values: dict[str, SampleValue]) -> int:
        """Merge another message; return how many fields it gave another value. NULL and absent ones change nothing."""
        changed = 0
        for name, value in values.items():
            before = self.values.get(name)
            if value is not None:
                changed += before is not None and before != value
                self.values[name] = value
            elif name not in self.values:
                self.values[name] = None
        return changed


Values = tuple[SampleValue, ...]


class ResidualFilter:
    """Decides which samples of a device pass.

    Parameters
    ----------
    program
        The program of the device.
    on_device
        Fields whose dead band the device applies. The proxy does not apply it again: the value could then deviate by
        the sum of both.
    """

    def __init__(self, program: SamplingProgram, on_device: Collection[str] = ()) -> None:
        self._bands: dict[int, list[Band]] = {}
        for band in program.bands:
            self._bands.setdefault(program.fields.index(band.field), []).append(band)
        self._period_us = program.period_us
        self._silence_us: int | None = None
        self._widths: list[float] = []
        if isinstance(program.report, SendOnChange):
            widths: Mapping[str, float] = {each.field: each.width for each in program.report.dead_bands}
            self._silence_us = program.report.maximum_silence_us
            self._widths = [0.0 if name in on_device else widths.get(name, 0.0) for name in program.fields]
        self._sent: tuple[int, Values] | None = None

    def passes(self, instant_us: int, values: Values) -> bool:
        """Return whether a sample passes."""
        if not all(any(_within(band, values[place]) for band in bands) for place, bands in self._bands.items()):
            return False
        if self._silence_us is None:
            return True
        if self._sent is not None:
            sent_us, before = self._sent
            changed = any(map(_left, before, values, self._widths))
            if not changed and instant_us + self._period_us - sent_us <= self._silence_us:
                return False
        self._sent = (instant_us, values)
        return True


def _within(band: Band, value: SampleValue) -> bool:
    if value is None or isinstance(value, str):
        return False
    return (band.low is None or band.low <= value) and (band.high is None or value <= band.high)


def _left(before: SampleValue, now: SampleValue, width: float) -> bool:
    if isinstance(before, int | float) and isinstance(now, int | float):
        return abs(now - before) > width
    return before != now


ALWAYS_LISTENS_US = SECOND_US
"""The listen window of packets of a device that can be sent controls at any time."""


@dataclass(frozen=True, slots=True)
class FeedTimes:
    """Bounds on the instants of values.

    Parameters
    ----------
    max_delay_us
        How long after its instant a value may arrive; None if values are stamped on arrival.
    max_ahead_us
        How far the proxy's own clock may go back, until values are rejected. Before, they are stamped with the latest
        instant that was promised.
    silence_after_us
        A device that sends no message for this long counts as offline, and no more empty packets are made.
    merge_within_us
        Messages within this time are one tuple; 0 if each is a tuple of its own.
    """

    max_delay_us: int | None = None
    max_ahead_us: int = 60 * SECOND_US
    silence_after_us: int = 3600 * SECOND_US
    merge_within_us: int = 0


@dataclass(slots=True)
class Promises:
    """Whether the low watermarks of a driver's devices stand, as messages from before may still wait at the broker."""

    held: bool = False


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """The fields of a device's announcement, and what its driver knows of it.

    Parameters
    ----------
    mote, kind, stream, properties, default_period_us, minimum_period_us
        As in an announcement.
    publishes
        Whether it publishes by its own rules.
    events
        Fields of which each change counts.
    defaults
        Values of fields that no message of a tuple has.
    """

    mote: str
    kind: str
    stream: StreamSchema
    properties: Mapping[str, SampleValue]
    default_period_us: int = SECOND_US
    minimum_period_us: int = 1
    publishes: bool = True
    events: Collection[str] = ()
    defaults: Mapping[str, SampleValue] = default(default_factory=dict)


def _count_nothing(reason: str, number: int = 1) -> None:
    _ = reason, number


class DeviceFeed:
    """The packets of one device.

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
        No value may be stamped before it; None for no such bound.
    promises
        Whether it may promise anything new.
    count
        Counts what becomes of messages, by a reason and how many.
    """

    def __init__(
        self,
        description: DeviceDescription,
        times: FeedTimes,
        *,
        radio_us: int,
        boot: int = 1,
        low_watermark_us: int | None = None,
        promises: Promises | None = None,
        count: Callable[[str, int], None] = _count_nothing,
    ) -> None:
        self.boot = boot
        self.offline = False
        self._times = times
        self._count = count
        self._samples = 0
        self._number = 0
        self._residual = ResidualFilter(SLEEP)
        self._sequence = 0
        self._low_watermark_us = low_watermark_us
        self._promises = promises or Promises()
        self._begins_us: int | None = None
        self._taken = range(0)
        """The last slot that has its sample, in microseconds."""
        self._half: HalfTuple | None = None
        self._halves = 0
        """How many tuples have waited."""
        self._received_radio_us = radio_us
        self._sent_radio_us = radio_us
        self._battery: float | None = None
        self._battery_news = False
        self.program: SamplingProgram = SLEEP
        self._on_grid = False
        self._published = False
        self.describe(description)

    @property
    def waits(self) -> bool:
        """Whether a tuple waits for the rest of its fields."""
        return self._half is not None

    @property
    def waiting(self) -> int | None:
        """The number of the tuple that waits for the rest of its fields; None if none does."""
        return None if self._half is None else self._halves

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

    def describe(self, description: DeviceDescription) -> None:
        """Set another description of the same device; the numbers of its packets continue."""
        published = self._published
        self.description, self._published = description, description.publishes
        self._names = tuple(each.name for each in description.stream.sampled)
        """The fields of a tuple of its own, whatever queries read."""
        if description.publishes:
            self._begins_us = None  # of a program that it does not run any more
            self._set_program(publishing_program(description.stream))
        elif published:
            self._set_program(SLEEP)

    def run(
        self,
        program: SamplingProgram,
        *,
        radio_us: int,
        received_us: int,
        not_before_us: int | None,
        on_device: Collection[str] = (),
    ) -> Packet:
        """Start a program of a configured device; return the packet that acknowledges it."""
        self._set_program(program, on_device)
        if not_before_us is not None:
            self._begins_us = not_before_us if self._begins_us is None else max(self._begins_us, not_before_us)
        return self._packet((), radio_us, received_us)

    def empty(self, *, radio_us: int, received_us: int) -> Packet:
        """Return a packet without samples, in whose listen window the fleet may send controls."""
        return self._packet((), radio_us, received_us)

    def set_offline(self, *, offline: bool) -> None:
        """Set whether the device is offline: no empty packets are made then."""
        self.offline = offline

    def message_received(self, *, radio_us: int, battery: float | None = None) -> None:
        """Note a message of the device; `battery` is the share that is left."""
        self._received_radio_us = radio_us
        if battery is not None and 0 <= battery <= 1 and battery != self._battery:
            self._battery = float(battery)
            self._battery_news = True

    def stamp(self, at_us: int | None, received_us: int) -> int:
        """Return the stamp of a message: the device's own, or that of its arrival if `at_us` is None.

        Raises
        ------
        PayloadError
            With reason ``late``, or ``clock`` if the proxy's clock went back further than is put up with.
        """
        stamp_us = received_us if at_us is None else at_us
        low_us = self._low_watermark_us
        if low_us is None or not self.is_late(stamp_us):
            return stamp_us
        behind_us = low_us - stamp_us
        if at_us is not None:
            raise PayloadError("late", f"values came {behind_us / SECOND_US:.3f} s after the device's max_delay")
        if stamp_us in self._taken:
            return stamp_us  # the slot has its sample: that is no fault of the clock
        if behind_us > self._times.max_ahead_us:
            detail = f"the proxy's clock went back: values are {behind_us / SECOND_US:.3f} s behind the low watermark"
            raise PayloadError("clock", detail)
        self._count("clock_back", 1)
        return low_us

    def is_late(self, stamp_us: int) -> bool:
        """Return whether :meth:`stamp` would refuse the device's own time as late."""
        low_us = self._low_watermark_us
        return low_us is not None and stamp_us < low_us and stamp_us < self._slot(low_us)

    def add(
        self, values: dict[str, SampleValue], stamp_us: int, *, radio_us: int, received_us: int
    ) -> tuple[Packet, ...]:
        """Return the packets that follow from values with a stamp that :meth:`stamp` returned."""
        within_us = self._times.merge_within_us
        if not within_us:
            return self._tuple(stamp_us, values, radio_us, received_us)
        half = self._half
        waits = half is not None and radio_us < half.due_radio_us
        # Messages that waited come all at once, at the broker or for this process: so what only has other values of
        # fields that are there is of the next tuple, and while it is known that they waited, whatever overwrites one.
        fits = half is not None and half.completes(values) and not (self._promises.held and half.overlaps(values))
        if half is not None and waits and fits and half.takes(values, stamp_us, within_us, self.description.events):
            self._count("merged", 1)
            self._count("field_overwritten", half.merge(values))
            return ()
        # The next tuple waits from now on, so that the packet of the last one does not promise beyond it.
        self._half = HalfTuple(stamp_us, radio_us + within_us, dict(values))
        self._halves += 1
        return () if half is None else self._tuple(half.stamp_us, half.values, radio_us, received_us)

    def due(self, *, radio_us: int, received_us: int, at_once: bool = False) -> tuple[Packet, ...]:
        """Return the tuple that has waited long enough for the rest of its fields, if there is one."""
        if self._half is None or (radio_us < self._half.due_radio_us and not at_once):
            return ()
        half, self._half = self._half, None
        return self._tuple(half.stamp_us, half.values, radio_us, received_us)

    @property
    def can_promise(self) -> bool:
        """Whether an empty packet has something to promise."""
        return not (self._promises.held and self._low_watermark_us is None and self._times.max_delay_us)

    def heartbeat(self, *, radio_us: int, received_us: int) -> Packet | None:
        """Return the empty packet that is due, if one is."""
        if not self.can_promise or self.offline or radio_us - self._received_radio_us >= self._times.silence_after_us:
            return None
        if radio_us - self._sent_radio_us < self.program.listen.every_us:
            return None
        return self._packet((), radio_us, received_us)

    def _set_program(self, program: SamplingProgram, on_device: Collection[str] = ()) -> None:
        self.program = program
        self._on_grid = isinstance(program.report, SendOnChange)
        self._number = program_number(program)
        self._residual = ResidualFilter(program, on_device)

    def _slot(self, instant_us: int) -> int:
        """Return the instant with which a value of an instant is stamped."""
        return instant_us // self.program.period_us * self.program.period_us if self._on_grid else instant_us

    def _tuple(
        self, stamp_us: int, values: Mapping[str, SampleValue], radio_us: int, received_us: int
    ) -> tuple[Packet, ...]:
        """Return the packet with a tuple; none if it is not needed, which is counted."""
        start_us = self._slot(stamp_us) if self._on_grid else stamp_us
        if self._begins_us is not None and start_us < self._begins_us:
            self._count("before_program", 1)
            return ()
        low_us = self._low_watermark_us
        if low_us is not None and start_us < low_us:
            # The slot has its sample, or had begun when the program did.
            self._count("slot_taken", 1)
            return ()
        defaults = self.description.defaults
        names = self.program.fields if self._on_grid else self._names
        sampled = tuple(map(({**defaults, **values} if defaults else values).get, names))
        if self._on_grid and not self._residual.passes(start_us, sampled):
            self._count("unchanged", 1)
            return ()
        self._samples += 1
        if self._on_grid:
            # Arrivals are in order, so the slot is over once it has its sample.
            self._taken = range(start_us, start_us + self.program.period_us)
            self._raise_low_watermark(self._taken.stop)
        return (self._packet(((start_us, sampled),), radio_us, received_us),)

    def _raise_low_watermark(self, instant_us: int) -> None:
        if self._half is not None:
            instant_us = min(instant_us, self._slot(self._half.stamp_us))
        if self._low_watermark_us is None or instant_us > self._low_watermark_us:
            self._low_watermark_us = instant_us

    def _packet(
        self, samples: tuple[tuple[int, tuple[SampleValue, ...]], ...], radio_us: int, received_us: int
    ) -> Packet:
        earliest_us = received_us - (self._times.max_delay_us or 0)
        if self._on_grid:
            earliest_us = self._slot(earliest_us)
        if not self._promises.held:
            self._raise_low_watermark(earliest_us)
        elif self._low_watermark_us is None:
            # The first of its messages that waited: later ones are older by no more than they may be late.
            stamps_us = [start_us - (self._times.max_delay_us or 0) for start_us, _ in samples]
            self._low_watermark_us = min((earliest_us, *stamps_us))
        clock_us = received_us
        for start_us, _ in samples:
            if start_us > clock_us:  # noqa: PLR1730 - a call of max would take several times as long
                clock_us = start_us
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

"""Devices of any driver: what their messages say becomes tuples of a stream, and what does not is counted. Pure.

**Counters of devices, unwrapped: a counter that is full or begins anew goes on from where it was.**

What is added to a device's own numbers is kept across restarts of the proxy (:class:`DeviceState`).

**The columns of a stream whose devices differ, or change: they may come and be absent, and nothing else.**

A column that a stream has is never changed: a table may have it already, and queries compare its values. So a
device, or a file of drivers, with another type or unit for it has NULL there, and the difference is named.

In this order: copies by several gateways are left out, values are checked, counters unwrapped, numbers scaled,
columns that do not fit the stream are left NULL, and halves are merged.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from protocols.wire.frames import KIBIBYTE
from protocols.wire.packets import Packet, SampleValue
from protocols.wire.streams import MOST_FIELDS, Field, StreamSchema, words_of_column
from proxy.drivers.device_feed import DeviceDescription, DeviceFeed, FeedTimes, Promises, RecentMessages
from proxy.drivers.driver import NOTHING, DriverOutput, Notice, Rejection
from proxy.drivers.field_mapping import FieldKind, FieldMapping, Reading, ValueFault
from proxy.drivers.payloads import MISSING, PayloadError

MAX_STATE_BYTES = 48 * KIBIBYTE
_STATE_VERSION = 1
_LARGEST = 2**63 - 1


class CounterState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A counter.

    Parameters
    ----------
    number
        The device's last number.
    base
        What is added to its numbers.
    before
        What was added until the last reset.
    stamp_us
        Instant of the last number.
    top
        The last number before the last reset.
    """

    number: int | float
    base: int | float = 0
    before: int | float = 0
    stamp_us: int = -(2**62)
    top: int | float = math.inf

    def next(self, number: float, stamp_us: int, modulus: float | None, *, in_order: bool = False) -> CounterState:
        """Return the state after a number; the same state for one that came out of order.

        Numbers that are stamped on arrival are `in_order`, whatever the proxy's clock does.
        """
        behind = stamp_us < self.stamp_us or (stamp_us == self.stamp_us and number < self.number)
        if behind and not in_order:
            return self
        if number >= self.number:
            return CounterState(number, self.base, self.before, stamp_us, self.top)
        added = self.number if modulus is None else modulus
        return CounterState(number, self.base + added, self.base, stamp_us, self.number)

    def value(self, number: float) -> int | float:
        """Return the unwrapped value of a number: the last one, or one that came out of order.

        A larger one is from before the last reset, or, with a stamp that is a little off, from after it: whichever is
        nearer.
        """
        since = number <= self.number or number - self.number < self.top - number < math.inf
        return number + (self.base if since else self.before)


class DeviceState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a driver keeps of a device.

    Parameters
    ----------
    version
        Of this form.
    counters
        By field.
    description
        What else the driver has to know at once after a restart.
    """

    version: int = _STATE_VERSION
    counters: Annotated[dict[str, CounterState], Meta(max_length=256)] = {}
    description: bytes = b""


_decoder = msgspec.msgpack.Decoder(DeviceState)


def encode_state(state: DeviceState) -> bytes:
    """Return the bytes of a state; none if nothing is to be kept."""
    return msgspec.msgpack.encode(state) if state.counters or state.description else b""


def decode_state(content: bytes) -> DeviceState | None:
    """Return the state in `content`; None if it cannot be read."""
    if not content:
        return DeviceState()
    try:
        state = _decoder.decode(content) if len(content) <= MAX_STATE_BYTES else None
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return state if state is not None and state.version == _STATE_VERSION else None


class Counters:
    """The counters of one device.

    Parameters
    ----------
    moduli
        Fields that are counters, each with its modulus or None.
    states
        From before a restart.
    """

    def __init__(
        self, moduli: Mapping[str, int | float | None], states: Mapping[str, CounterState] | None = None
    ) -> None:
        self._moduli = moduli
        self.states: dict[str, CounterState] = dict(states or {})

    def unwrap(self, values: dict[str, SampleValue], stamp_us: int, *, in_order: bool = False) -> list[str]:
        """Put unwrapped values for the numbers of counters; return what happened, by the names of counts."""
        happened: list[str] = []
        for name, modulus in self._moduli.items():
            number = values.get(name)
            if not isinstance(number, int | float):
                continue
            before = self.states.get(name)
            after = (
                CounterState(number, stamp_us=stamp_us)
                if before is None
                else before.next(number, stamp_us, modulus, in_order=in_order)
            )
            value = after.value(number)
            if not -_LARGEST <= value <= _LARGEST or not math.isfinite(value):
                # A counter of such numbers is none: what it had counted stays as it was.
                values[name] = None
                happened.append("field_out_of_range")
                continue
            if before is not None and after is before:
                happened.append("counter_behind")
            elif before is not None and after.base != before.base:
                happened.append("counter_reset" if modulus is None else "counter_wrap")
            values[name] = value
            # A new dictionary: the states of packets that were returned stay as they were.
            self.states = {**self.states, name: after}
        return happened


@dataclass(frozen=True, slots=True)
class MergedColumns:
    """A stream's columns, and those of a device among them.

    Parameters
    ----------
    schema
        Of the stream: the columns that it had, then those that it gets.
    names
        The stream's name of each of the device's columns that fits.
    mismatches
        Why others do not fit, by the device's name.
    absent
        Columns of the stream that the device does not have.
    """

    schema: StreamSchema
    names: Mapping[str, str]
    mismatches: Mapping[str, str]
    absent: tuple[str, ...]


def merge_columns(known: StreamSchema, offered: StreamSchema, *, units_may_come: bool = False) -> MergedColumns:
    """Merge a device's columns into those of its stream.

    Parameters
    ----------
    known
        The stream as it is.
    offered
        The columns of a device, or of the file that describes it.
    units_may_come
        Whether a unit may be given to a column that has none. Where devices name their units themselves it may not: a
        unit that appears is another unit.

    Examples
    --------
    >>> from protocols.wire.streams import FieldType
    >>> degrees = Field("t", FieldType.REAL, "degC")
    >>> known = StreamSchema("rooms", (degrees,))
    >>> merged = merge_columns(known, StreamSchema("rooms", (Field("T", FieldType.REAL, "degF"),)))
    >>> merged.mismatches["T"]
    "stream rooms has t REAL UNIT 'degC', not REAL UNIT 'degF'"
    """
    columns = {each.name.casefold(): each for each in known.fields}
    names: dict[str, str] = {}
    mismatches: dict[str, str] = {}
    for column in offered.fields:
        folded = column.name.casefold()
        old = columns.get(folded)
        if old is None and len(columns) >= MOST_FIELDS:
            mismatches[column.name] = f"stream {known.name} has {MOST_FIELDS} columns already"
            continue
        if old is not None and not _fits(old, column, units_may_come=units_may_come):
            mismatches[column.name] = (
                f"stream {known.name} has {old.name} {words_of_column(old)}, not {words_of_column(column)}"
            )
            continue
        name = column.name if old is None else old.name
        unit = column.unit if old is None else old.unit or column.unit
        columns[folded] = Field(name, column.type, unit, column.fixed)
        names[column.name] = name
    had = {column.name.casefold() for column in offered.fields}
    absent = tuple(column.name for folded, column in columns.items() if folded not in had)
    return MergedColumns(StreamSchema(known.name, tuple(columns.values())), names, mismatches, absent)


def _fits(old: Field, new: Field, *, units_may_come: bool) -> bool:
    one_sided = units_may_come and (not old.unit or not new.unit)
    return (old.type, old.fixed) == (new.type, new.fixed) and (one_sided or old.unit == new.unit)


class StreamColumns:
    """The streams of a driver, each with all columns that it has seen."""

    def __init__(self, *, units_may_come: bool = False) -> None:
        self._units_may_come = units_may_come
        self._schemas: dict[str, StreamSchema] = {}

    def merge(self, offered: StreamSchema) -> MergedColumns:
        """Merge the columns of a device into its stream, which gets those that it lacks."""
        known = self._schemas.get(offered.name)
        merged = merge_columns(known or offered, offered, units_may_come=self._units_may_come)
        self._schemas[offered.name] = merged.schema
        return merged

    def schema_of(self, stream: str) -> StreamSchema | None:
        """Return the columns of a stream; None if it has none yet."""
        return self._schemas.get(stream)


__all__ = ["MergedColumns", "StreamColumns", "merge_columns"]


LONGEST_TROUBLE: Final = 512
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    """What is configured for all devices of a driver.

    Parameters
    ----------
    times
        Bounds on the instants of values.
    same_within_us
        Messages of the same content within this time are copies of one; 0 if none are.
    remedy
        What to do where columns do not fit their stream.
    promises
        Whether they may promise anything new.
    """

    times: FeedTimes
    same_within_us: int = 0
    remedy: str = ""
    promises: Promises = field(default_factory=Promises)


class Device:
    """The state of one device.

    Parameters
    ----------
    name
        By which its own topics name it.
    description
        Of the device.
    traits
        Of all devices of its driver.
    radio_us
        Radio clock now.
    boot, state, low_watermark_us
        From before a restart of the proxy.
    """

    def __init__(
        self,
        name: str,
        description: DeviceDescription,
        traits: DeviceTraits,
        *,
        radio_us: int,
        boot: int = 1,
        state: DeviceState | None = None,
        low_watermark_us: int | None = None,
    ) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.troubles: dict[str, str] = {}
        """Sentences, each by what it is about."""
        self.feed = DeviceFeed(
            description,
            traits.times,
            radio_us=radio_us,
            boot=boot,
            low_watermark_us=low_watermark_us,
            promises=traits.promises,
            count=self.count,
        )
        self._traits = traits
        self._recent = RecentMessages(traits.same_within_us)
        self._fields: dict[str, FieldMapping] = {}
        self._columns: MergedColumns | None = None
        self._plain = False
        self._as_they_are = False
        """Whether values are those of the stream's columns as they were read."""
        self._counts_on = False
        """Whether there is a counter among its fields."""
        self._counters = Counters({}, {} if state is None else state.counters)
        self._kept = self._counters.states
        self._notices: list[Notice] = []
        self._noted: set[str] = set()

    @property
    def mote(self) -> str:
        """Its name in Fjord."""
        return self.feed.description.mote

    def map(self, fields: Sequence[FieldMapping], columns: MergedColumns) -> None:
        """Set how its values are read, and how its columns fit those of its stream."""
        self._fields = {each.field.name: each for each in fields}
        self._columns = columns
        self._plain = all(own == name for own, name in columns.names.items()) and not columns.mismatches
        self._as_they_are = self._plain and all(each.scale == 1 and each.offset == 0 for each in fields)
        moduli = {each.field.name: each.rules.modulus for each in fields if each.rules.kind is FieldKind.COUNTER}
        self._counts_on = bool(moduli)
        self._counters = Counters(moduli, self._counters.states)
        self.troubles.pop("columns", None)
        if columns.mismatches:
            named = "; ".join(list(columns.mismatches.values())[:_MOST_NAMED])
            self.troubles["columns"] = f"NULL, since they do not fit: {named}. {self._traits.remedy}".strip()

    def count(self, reason: str, number: int = 1) -> None:
        """Count something that became of its messages or values; the reasons are a small fixed set."""
        if number:
            self.counts[reason] += number

    def note(self, about: str, text: str) -> None:
        """Note something for the log, once for all that is about the same."""
        if about not in self._noted:
            self._noted.add(about)
            self._notices.append(Notice(self.mote, text))

    def trouble(self) -> str:
        """Return what keeps its values from their stream, in words; empty for nothing."""
        return "; ".join(self.troubles.values())[:LONGEST_TROUBLE]

    def state(self, description: bytes = b"") -> bytes:
        """Return what is to be kept of it, as of the packets that were returned so far."""
        return encode_state(DeviceState(counters=self._kept, description=description))

    def received(
        self,
        reading: Reading,
        at_us: int | None,
        *,
        content: Callable[[], object] | None,
        radio_us: int,
        received_us: int,
    ) -> DriverOutput:
        """Return the packets for the values of a message.

        Parameters
        ----------
        reading
            Its values.
        at_us
            Its instant by the device; None if it is stamped on arrival.
        content
            Returns what copies of it have in common; None if it has no copies.
        radio_us, received_us
            The time now.

        Raises
        ------
        PayloadError
            With reason ``late`` or ``clock``.
        """
        stamp_us = self.feed.stamp(at_us, received_us)
        if content is not None and self._traits.same_within_us and self._recent.is_copy(content(), radio_us):
            self.count("duplicate")
            return self._noticed(())
        for fault in reading.faults:
            self.count(fault.fault)
            self.note(fault.fault, f"the field is NULL, as {fault.detail}; further ones are counted as {fault.fault}")
        values, before = reading.values, self._counters.states
        if self._counts_on:
            for happened in self._counters.unwrap(values, stamp_us, in_order=at_us is None):
                self.count(happened)
        if not self._as_they_are:
            values = self._as_columns(values)
        packets = self.feed.add(values, stamp_us, radio_us=radio_us, received_us=received_us)
        if not self.feed.waits:
            self._kept = self._counters.states
        elif packets:
            self._kept = before  # this message waits, and those before it do not any more
        if not self._notices and not self.feed.waits:
            return DriverOutput(packets)
        return self._noticed(packets, self.feed.waiting)

    def time_passed(self, *, radio_us: int, received_us: int, at_once: bool = False) -> tuple[Packet, ...]:
        """Return the packets that are due; `at_once` a tuple that waits for the rest of its fields, too."""
        packets = self.feed.due(radio_us=radio_us, received_us=received_us, at_once=at_once)
        if not self.feed.waits:
            self._kept = self._counters.states
        beat = self.feed.heartbeat(radio_us=radio_us, received_us=received_us)
        return packets if beat is None else (*packets, beat)

    def rejected(self, error: PayloadError) -> DriverOutput:
        """Return the rejection of one of its messages, and count it."""
        self.count(error.reason)
        return DriverOutput(rejections=(Rejection(error.reason, str(error), self.mote),))

    def _as_columns(self, values: dict[str, SampleValue]) -> dict[str, SampleValue]:
        """Return scaled values by the stream's names."""
        columns = self._columns
        found: dict[str, SampleValue] = {}
        for name, value in values.items():
            scaled = self._fields[name].scaled(value)
            if scaled is None and value is not None:
                self.count(ValueFault.OUT_OF_RANGE)
            if self._plain or columns is None:
                found[name] = scaled
            elif name in columns.names:
                found[columns.names[name]] = scaled
            elif scaled is not None:
                self.count(ValueFault.MISMATCH)
        return found

    def _noticed(self, packets: tuple[Packet, ...], waiting: int | None = None) -> DriverOutput:
        notices, self._notices = tuple(self._notices), []
        waits = None if waiting is None else (self.mote, waiting)
        return DriverOutput(frames=packets, notices=notices, waits=waits)


def defaults_of(fields: Sequence[FieldMapping], columns: MergedColumns) -> dict[str, SampleValue]:
    """Return the values of fields that a message may leave out, by the stream's names."""
    return {
        columns.names[each.field.name]: each.scaled(each.rules.default)
        for each in fields
        if each.rules.default is not MISSING and each.field.name in columns.names
    }


def events_of(fields: Sequence[FieldMapping], columns: MergedColumns) -> tuple[str, ...]:
    """Return the fields of which each change counts, by the stream's names."""
    return tuple(
        columns.names[each.field.name]
        for each in fields
        if each.rules.kind is FieldKind.EVENT and each.field.name in columns.names
    )


Known = TypeVar("Known")


class DeviceDriver(ABC, Generic[Known]):
    """Devices by their motes, each with what its driver knows of it.

    Parameters
    ----------
    traits
        What the devices have in common.
    """

    def __init__(self, traits: DeviceTraits) -> None:
        self._traits = traits
        self._motes: dict[str, Known] = {}

    @staticmethod
    @abstractmethod
    def _unit(known: Known) -> Device:
        """Return the part that makes tuples of a device's values."""

    def _unit_of(self, mote: str) -> Device | None:
        known = self._motes.get(mote)
        return None if known is None else self._unit(known)

    def owns(self, mote: str) -> bool:
        """Return whether a mote is one of these devices."""
        return mote in self._motes

    def announce(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the announcement of a device again."""
        _ = radio_us, received_us
        unit = self._unit_of(mote)
        return NOTHING if unit is None else DriverOutput(frames=(unit.feed.announcement(),))

    def listen(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return an empty packet with a listen window: what speaks for a device can receive at any time."""
        unit = self._unit_of(mote)
        if unit is None or unit.feed.offline:
            return NOTHING
        return DriverOutput(frames=(unit.feed.empty(radio_us=radio_us, received_us=received_us),))

    def time_passed(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the tuples that waited for the rest of their fields, and the empty packets that are due."""
        return DriverOutput(frames=tuple(self._due(radio_us, received_us)))

    def finish(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the tuples that wait for the rest of their fields: it does not come any more."""
        return DriverOutput(frames=tuple(self._due(radio_us, received_us, at_once=True)))

    def _due(self, radio_us: int, received_us: int, *, at_once: bool = False) -> Iterator[Packet]:
        for unit in map(self._unit, self._motes.values()):
            yield from unit.time_passed(radio_us=radio_us, received_us=received_us, at_once=at_once)

    def hold_promises(self, *, held: bool) -> None:
        """Let low watermarks stand, or move again."""
        self._traits.promises.held = held

    def waiting(self, mote: str) -> int | None:
        """Return the number of the tuple of a device that waits for the rest of its fields; None if none does."""
        unit = self._unit_of(mote)
        return None if unit is None else unit.feed.waiting

    def device_of(self, mote: str) -> str:
        """Return the name of a device in its own topics."""
        unit = self._unit_of(mote)
        return "" if unit is None else unit.name

    def state_of(self, mote: str) -> bytes:
        """Return the counters of a device, and what its driver keeps besides: see :meth:`_kept`."""
        known = self._motes.get(mote)
        return b"" if known is None else self._unit(known).state(self._kept(known))

    @abstractmethod
    def _kept(self, known: Known) -> bytes:
        """Return what is kept of a device for the next start of the proxy."""

    def counts_of(self, mote: str) -> Mapping[str, int]:
        """Return what became of a device's messages and values, by reason."""
        unit = self._unit_of(mote)
        return {} if unit is None else dict(unit.counts)

    def trouble_of(self, mote: str) -> str:
        """Return what keeps values of a device from their stream."""
        unit = self._unit_of(mote)
        return "" if unit is None else unit.trouble()

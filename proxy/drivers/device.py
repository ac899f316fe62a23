"""One device of any driver: what its messages say becomes tuples of its stream, and what does not is counted.

Pure. In this order: copies by several gateways are left out, values are checked, counters unwrapped, numbers scaled,
columns that do not fit the stream are left NULL, and halves are merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocols.wire.packets import Packet, SampleValue
from proxy.drivers.counters import Counters, DeviceState, encode_state
from proxy.drivers.device_feed import DeviceDescription, DeviceFeed, FeedTimes, Promises
from proxy.drivers.driver import DriverOutput, Notice, Rejection
from proxy.drivers.field_mapping import FieldKind, FieldMapping, Reading, ValueFault
from proxy.drivers.joined_messages import RecentMessages
from proxy.drivers.payloads import MISSING, PayloadError
from proxy.drivers.stream_columns import MergedColumns

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

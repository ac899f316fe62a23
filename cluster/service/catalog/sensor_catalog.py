"""The catalog of sensors: the entries that proxies publish of their motes, as a relation ``sensors``.

Proxies retain an entry per mote and their own status. :class:`SensorCatalog`, a core without I/O, keeps the newest of
each: events in, state out. :func:`sensors_relation` makes a table of entries, one row per mote.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import polars as pl

from cluster.fjord.batch import instant_text
from protocols.acquisition.program_reports import has_energy_model
from protocols.errors import FrameError
from protocols.event_log import SparingLog, get_logger
from protocols.mqtt.link import Message, Subscription
from protocols.wire import topics
from protocols.wire.catalog import ClockFault, DeviceEntry, MoteEntry, Presence, decode_mote_entry, decode_status
from protocols.wire.packets import SampleValue

log = get_logger(__name__)

MOST_SENSORS = 100_000
MOST_PROXIES = 4_096
MOST_PROPERTIES = 256
"""Different properties in one catalog: each is a column."""
MOST_PROPERTIES_OF_PROXY = 64
"""Different properties of the sensors of one proxy."""
MOST_NAMED = 3
"""Devices in one trouble that are named."""
PROPERTY_PREFIX = "property_"
"""Stands before properties that are named like a column every sensor has."""

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class EntryPublished:
    """A proxy has published the entry of a mote."""

    entry: MoteEntry


@dataclass(frozen=True, slots=True)
class EntryRemoved:
    """A proxy has removed a mote."""

    proxy: str
    mote: str


@dataclass(frozen=True, slots=True)
class ProxyChanged:
    """A proxy has connected, or gone offline."""

    proxy: str
    online: bool


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker is about to send all retained messages; entries that it does not send have been removed."""


@dataclass(frozen=True, slots=True)
class DeviceTrouble:
    """What keeps messages of some devices from their stream.

    Parameters
    ----------
    stream, proxy
        The stream, and the proxy that drives the devices.
    reason
        What it is, and what to do about it.
    online
        Whether the proxy is online.
    devices, examples
        How many there are, and the names of some.
    """

    stream: str
    proxy: str
    reason: str
    online: bool
    devices: int
    examples: tuple[str, ...]


Event = EntryPublished | EntryRemoved | ProxyChanged | Connected


class SensorCatalog:
    """The newest entry of every mote.

    Parameters
    ----------
    accepted
        Called with each entry that is accepted.
    quarantine
        Keeps entries that were rejected: (kind, reason, origin, content).
    mismatches
        Returns, by proxy and stream, why sensors are not asked for samples; any thread may call it.
    proxy_clocks
        Returns, by proxy, the fault of its clock; any thread may call it.
    refused_demands
        Returns, by proxy and stream, the queries that the proxy leaves out, and why; any thread may call it.
    max_sensors, max_proxies, max_properties, max_properties_of_proxy
        Limits; what exceeds them is rejected and counted.
    """

    # Statuses first: properties of proxies that are offline may have to make room.
    subscriptions = (Subscription(topics.proxy_status("+")), Subscription(topics.mote_entry("+", "+")))

    def __init__(
        self,
        *,
        accepted: Callable[[MoteEntry], None] = lambda _: None,
        quarantine: Callable[[str, str, str, bytes], None] | None = None,
        mismatches: Callable[[], Mapping[tuple[str, str], str]] = dict,
        proxy_clocks: Callable[[], Mapping[str, ClockFault]] = dict,
        refused_demands: Callable[[], Mapping[tuple[str, str], str]] = dict,
        max_sensors: int = MOST_SENSORS,
        max_proxies: int = MOST_PROXIES,
        max_properties: int = MOST_PROPERTIES,
        max_properties_of_proxy: int = MOST_PROPERTIES_OF_PROXY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._accepted = accepted
        self._quarantine = quarantine
        self.mismatches = mismatches
        self.proxy_clocks = proxy_clocks
        self.refused_demands = refused_demands
        self._most_sensors = max_sensors
        self._most_proxies = max_proxies
        self._most_properties = max_properties
        self._most_properties_of_proxy = max_properties_of_proxy
        self._entries: dict[tuple[str, str], MoteEntry] = {}
        self._properties: dict[str, Counter[str]] = {}
        """By proxy: how many of its sensors have each property."""
        self.forgotten = 0
        """Sensors whose properties were forgotten to make room, as their proxy was offline."""
        self._troubled: dict[str, dict[tuple[str, str], DeviceEntry]] = {}
        """By stream: the devices whose messages something keeps from it."""
        self._online: set[str] = set()
        self._sparing = SparingLog()
        self.rejected: dict[str, int] = {}
        """Messages that were rejected, by reason."""
        self.connected_at: float | None = None
        """When the broker last began to send retained messages, by the monotonic clock."""

    def __len__(self) -> int:
        return len(self._entries)

    def snapshot(self) -> tuple[tuple[MoteEntry, ...], frozenset[str]]:
        """Return the entries, in no order, and the proxies that are online; later events do not change them."""
        return tuple(self._entries.values()), frozenset(self._online)

    def relation(self) -> pl.DataFrame:
        """Return the present relation ``sensors``; any thread may call it."""
        return sensors_relation(*self.snapshot(), self.mismatches(), self.proxy_clocks(), self.refused_demands())

    def troubles(self, streams: Iterable[str]) -> list[DeviceTrouble]:
        """Return what keeps messages of devices from some streams."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for stream in sorted(set(streams) & self._troubled.keys()):
            for (proxy, mote), entry in sorted(self._troubled[stream].items()):
                found.setdefault((stream, proxy, entry.trouble), []).append(mote)
        return [
            DeviceTrouble(stream, proxy, reason, proxy in self._online, len(motes), tuple(motes[:MOST_NAMED]))
            for (stream, proxy, reason), motes in found.items()
        ]

    def clock_faults(self) -> Mapping[str, int]:
        """Return how many sensors have a wrong clock, by kind of fault."""
        counts = dict.fromkeys((each.value for each in ClockFault), 0)
        for entry in self._entries.values():
            if entry.clock_fault is not None:
                counts[entry.clock_fault.value] += 1
        return counts

    def samples_rejected(self) -> Mapping[str, int]:
        """Return how many samples of the present sensors were rejected because of wrong clocks, by kind of fault."""
        return {
            ClockFault.AHEAD.value: sum(entry.samples_ahead for entry in self._entries.values()),
            ClockFault.BEHIND.value: sum(entry.samples_behind for entry in self._entries.values()),
        }

    def handle(self, message: Message, topic: topics.ParsedTopic) -> None:
        """Handle a message on one of :attr:`subscriptions`; bad ones are rejected and counted, others ignored."""
        try:
            event = event_of(message, topic)
            if event is not None:
                self.apply(event)
        except FrameError as error:
            self.rejected[error.reason] = self.rejected.get(error.reason, 0) + 1
            if times := self._sparing.due(error.reason, self._clock()):
                log.warning("sensor rejected", topic=message.topic, reason=error.reason, error=str(error), times=times)
            # The message is not at fault if the catalog is full; and the ingest keeps bad statuses.
            if self._quarantine is not None and topic.kind == "mote_entry" and error.reason != "full":
                self._quarantine(topic.kind, str(error), message.topic, message.payload[:4096])

    def apply(self, event: Event) -> None:
        """Apply an event.

        Raises
        ------
        FrameError
            With reason ``full`` if there is no room for it; nothing has changed then.
        """
        match event:
            case EntryPublished(entry):
                self._put(entry)
            case EntryRemoved(proxy, mote):
                self._remove((proxy, mote))
            case ProxyChanged(proxy, online=True):
                if proxy not in self._online and len(self._online) >= self._most_proxies:
                    raise FrameError(
                        "full", f"{self._most_proxies:,} proxies are online already; {proxy!r} is not shown"
                    )
                self._online.add(proxy)
            case ProxyChanged(proxy):
                self._online.discard(proxy)
            case Connected():
                self._entries.clear()
                self._properties.clear()
                self._troubled.clear()
                self._online.clear()
                self.connected_at = self._clock()

    def _put(self, entry: MoteEntry) -> None:
        key = entry.proxy, entry.mote
        if key not in self._entries and len(self._entries) >= self._most_sensors:
            raise FrameError("full", f"there are {self._most_sensors:,} sensors already; {entry.mote!r} is not shown")
        names = _folded(entry)
        self._make_room(entry, names)
        known = self._entries.get(key)
        self._remove(key)
        self._entries[key] = entry
        if isinstance(entry, DeviceEntry) and entry.trouble:
            self._troubled.setdefault(entry.stream, {})[key] = entry
            if not isinstance(known, DeviceEntry) or known.trouble != entry.trouble:
                what = {"stream": entry.stream, "proxy": entry.proxy, "device": entry.mote, "driver": entry.driver}
                log.warning("messages of a device do not get to its stream", **what, reason=entry.trouble)
        if names:
            self._properties.setdefault(entry.proxy, Counter()).update(names)
        self._accepted(entry)

    def _make_room(self, entry: MoteEntry, names: set[str]) -> None:
        """Make room for the properties of a sensor, at the expense of proxies that are offline; or raise."""
        hint = "give properties that mean the same one name in all streams"
        known = self._entries.get((entry.proxy, entry.mote))
        before = set() if known is None else _folded(known)
        held = self._properties.get(entry.proxy, Counter())
        if names <= held.keys():
            return  # as with most entries: it brings nothing that its proxy does not have
        own = {name for name, sensors in held.items() if sensors > (name in before)} | names
        if len(own) > self._most_properties_of_proxy:
            raise FrameError(
                "full",
                f"sensors of {entry.proxy!r} have {self._most_properties_of_proxy:,} different properties already; "
                f"{entry.mote!r} brings more",
                hint=hint,
            )
        if all(any(name in others for others in self._properties.values()) for name in names):
            return  # likewise, of all proxies
        kept = {proxy: set(held) for proxy, held in self._properties.items()} | {entry.proxy: own}
        stale = sorted(kept.keys() - self._online - {entry.proxy}, key=lambda proxy: (-len(kept[proxy]), proxy))
        given_up: list[str] = []
        while len(set[str]().union(*kept.values())) > self._most_properties:
            if len(given_up) == len(stale):
                raise FrameError(
                    "full",
                    f"sensors have {self._most_properties:,} different properties already; {entry.mote!r} brings more",
                    hint=hint,
                )
            given_up.append(stale[len(given_up)])
            del kept[given_up[-1]]
        for proxy in given_up:
            self._forget_properties(proxy)

    def _forget_properties(self, proxy: str) -> None:
        found = [key for key, entry in self._entries.items() if key[0] == proxy and entry.properties]
        for key in found:
            entry = self._entries[key] = msgspec.structs.replace(self._entries[key], properties={})
            if key in self._troubled.get(entry.stream, {}) and isinstance(entry, DeviceEntry):
                self._troubled[entry.stream][key] = entry
        del self._properties[proxy]
        self.forgotten += len(found)
        log.warning("properties of sensors forgotten: there are too many, and their proxy is offline", proxy=proxy)

    def _remove(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            held = self._properties.get(entry.proxy, Counter())
            held.subtract(_folded(entry))
            for name in [each for each in _folded(entry) if held[each] <= 0]:
                del held[name]
            if not held:
                self._properties.pop(entry.proxy, None)
            troubled = self._troubled.get(entry.stream, {})
            if troubled.pop(key, None) is not None and not troubled:
                del self._troubled[entry.stream]


def event_of(message: Message, topic: topics.ParsedTopic) -> Event | None:
    """Return the event that a message carries; None if it does not concern sensors.

    Raises
    ------
    FrameError
        If it is garbled, or carries the entry of another mote than its topic names.
    """
    match topic.kind, topic.names:
        case "mote_entry", (proxy, mote):
            if not message.payload:
                return EntryRemoved(proxy, mote)
            entry = decode_mote_entry(message.payload)
            if (entry.proxy, entry.mote) != topic.names:
                raise FrameError("identity", f"entry of {entry.proxy}/{entry.mote} came on {message.topic}")
            return EntryPublished(entry)
        case "proxy_status", (proxy,):
            online = bool(message.payload) and decode_status(message.payload).presence is Presence.ONLINE
            return ProxyChanged(proxy, online)
        case _:
            return None


def loss_of(entry: MoteEntry) -> float | None:
    """Return the share of a mote's packets that its proxy missed; None before the first packet."""
    sent = entry.packets_received + entry.packets_lost
    return entry.packets_lost / sent if sent else None


def counts_text(counts: Mapping[str, int]) -> str | None:
    """Return what became of a device's messages, the most frequent reason first; None for nothing.

    >>> counts_text({"duplicate": 3, "not_demanded": 12, "no_value": 0})
    'not_demanded 12, duplicate 3'
    """
    found = sorted((-count, reason) for reason, count in counts.items() if count)
    return ", ".join(f"{reason} {-count}" for count, reason in found) or None


ONLINE_COLUMN = "proxy_online"
MISMATCH_COLUMN = "mismatch"
"""Why a sensor receives no demands: its proxy does not offer its stream as it is declared."""
PROXY_CLOCK_COLUMN = "proxy_clock_fault"
"""The fault of its proxy's clock."""

REFUSED_COLUMN = "refused_demands"
"""The queries whose demands are not sent to a sensor, because its proxy cannot answer them."""


def _of_device(value: Callable[[DeviceEntry], str | float | None]) -> Callable[[MoteEntry], str | float | None]:
    """Return a value that the entries of devices have; it is NULL of other motes."""
    return lambda entry: value(entry) if isinstance(entry, DeviceEntry) else None


COLUMNS: dict[str, tuple[type[pl.DataType], Callable[[MoteEntry], str | float | None]]] = {
    "sensor": (pl.String, lambda entry: entry.mote),
    "proxy": (pl.String, lambda entry: entry.proxy),
    "type": (pl.String, lambda entry: entry.kind),
    "stream": (pl.String, lambda entry: entry.stream),
    "state": (pl.String, lambda entry: entry.state.value),
    "period_us": (pl.Int64, lambda entry: entry.period_us),
    "default_period_us": (pl.Int64, lambda entry: entry.default_period_us),
    "minimum_period_us": (pl.Int64, lambda entry: entry.minimum_period_us),
    "battery": (pl.Float64, lambda entry: entry.health.battery if entry.health else None),
    "packets_received": (pl.Int64, lambda entry: entry.packets_received),
    "packets_lost": (pl.Int64, lambda entry: entry.packets_lost),
    "packets_rejected": (pl.Int64, lambda entry: entry.packets_rejected),
    "samples_received": (pl.Int64, lambda entry: entry.samples_received),
    "samples_late": (pl.Int64, lambda entry: entry.samples_late),
    "loss": (pl.Float64, loss_of),
    "heard": (pl.String, lambda entry: instant_text(entry.heard_us) if entry.heard_us else None),
    "program": (pl.Int64, lambda entry: entry.program),
    "device": (pl.String, lambda entry: entry.device or None),
    "doing": (pl.String, lambda entry: entry.doing or None),
    # What no energy model knows is not shown, though a proxy may have estimated it.
    "milliwatts": (pl.Float64, lambda entry: (entry.milliwatts or None) if has_energy_model(entry) else None),
    "lifetime_days": (pl.Float64, lambda entry: entry.lifetime_days if has_energy_model(entry) else None),
    "stretched": (pl.Int64, lambda entry: entry.stretched),
    "lifetime_kept": (pl.Boolean, lambda entry: entry.lifetime_kept),
    "clock_offset_us": (pl.Int64, lambda entry: entry.clock_offset_us),
    "clock_fault": (pl.String, lambda entry: entry.clock_fault),
    "samples_ahead": (pl.Int64, lambda entry: entry.samples_ahead),
    "samples_behind": (pl.Int64, lambda entry: entry.samples_behind),
    "driver": (pl.String, _of_device(lambda entry: entry.driver or None)),
    "publishes": (pl.Boolean, _of_device(lambda entry: entry.publishes)),
    "mains": (pl.Boolean, _of_device(lambda entry: entry.mains)),
    "expected_every_us": (pl.Int64, _of_device(lambda entry: entry.expected_every_us or None)),
    "counts": (pl.String, _of_device(lambda entry: counts_text(entry.counts))),
    "trouble": (pl.String, _of_device(lambda entry: entry.trouble or None)),
}
"""Type and value of the columns that every sensor has, in order. A new field of an entry gets a line here."""

_BUILT_IN = {ONLINE_COLUMN, MISMATCH_COLUMN, PROXY_CLOCK_COLUMN, REFUSED_COLUMN, *COLUMNS}


def sensors_relation(
    entries: Iterable[MoteEntry],
    online: Collection[str] | None = None,
    mismatches: Mapping[tuple[str, str], str] | None = None,
    proxy_clocks: Mapping[str, ClockFault] | None = None,
    refused_demands: Mapping[tuple[str, str], str] | None = None,
) -> pl.DataFrame:
    """Return the relation ``sensors``: one row per entry, by proxy and mote.

    Parameters
    ----------
    entries
        Those of the catalog.
    online
        The proxies that are online; None if it is unknown.
    mismatches
        By proxy and stream, why the proxy does not feed it.
    proxy_clocks
        By proxy, the fault of its clock.
    refused_demands
        By proxy and stream, which queries the proxy leaves out, and why.

    Returns
    -------
    polars.DataFrame
        The columns of :data:`COLUMNS`, ``mismatch``, ``proxy_clock_fault``, ``refused_demands``, ``proxy_online``, and
        the properties of all motes by name. Names that differ in case only are one property.
    """
    rows = sorted(entries, key=lambda entry: (entry.proxy, entry.mote))
    built_in = [
        pl.Series(name, [value(entry) for entry in rows], dtype=kind) for name, (kind, value) in COLUMNS.items()
    ]
    presence = [None if online is None else entry.proxy in online for entry in rows]
    mismatched = [(mismatches or {}).get((entry.proxy, entry.stream)) for entry in rows]
    left_out = [(refused_demands or {}).get((entry.proxy, entry.stream)) for entry in rows]
    spellings: dict[str, str] = {}
    for name in sorted({name for entry in rows for name in entry.properties}):
        spellings.setdefault(name.casefold(), name)
    folded = [{name.casefold(): value for name, value in entry.properties.items()} for entry in rows]
    properties = [
        _property_series(property_column(spellings[name]), [values.get(name) for values in folded])
        for name in sorted(spellings)
    ]
    wrong = [(proxy_clocks or {}).get(entry.proxy) for entry in rows]
    own = [
        pl.Series(MISMATCH_COLUMN, mismatched, dtype=pl.String),
        pl.Series(PROXY_CLOCK_COLUMN, wrong, dtype=pl.String),
        pl.Series(REFUSED_COLUMN, left_out, dtype=pl.String),
        pl.Series(ONLINE_COLUMN, presence, dtype=pl.Boolean),
    ]
    return pl.DataFrame([*built_in, *own, *properties])


def property_column(name: str) -> str:
    """Return the column of a property; no two properties share one.

    >>> property_column("segment"), property_column("Type"), property_column("property_type")
    ('segment', 'property_Type', 'property_property_type')
    """
    folded = name.casefold()
    return f"{PROPERTY_PREFIX}{name}" if folded in _BUILT_IN or folded.startswith(PROPERTY_PREFIX) else name


def _folded(entry: MoteEntry) -> set[str]:
    return {name.casefold() for name in entry.properties}


def _property_series(name: str, values: Sequence[SampleValue]) -> pl.Series:
    """Return a column of one type: that of all values, real for numbers of both kinds, else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    if kinds == {int} and all(value is None or value in _INT64 for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    if kinds and kinds <= {int, float}:
        return pl.Series(name, [None if value is None else float(value) for value in values], dtype=pl.Float64)
    return pl.Series(name, [_text(value) for value in values], dtype=pl.String)


def _text(value: SampleValue) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)

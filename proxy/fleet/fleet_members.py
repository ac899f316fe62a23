"""The motes and streams of a proxy, those of its neighbours, and whether an announcement can be accepted. Pure.

**Other proxies at the same broker: which motes are theirs. A mote has one proxy, or its samples would count twice.**

It relies on the retained messages of other proxies: their statuses, and the catalog entries of their motes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from protocols.acquisition.program_reports import ProgramStyle
from protocols.errors import FrameError, SchemaError
from protocols.wire.catalog import ClockFault, MoteState, Presence, Status, decode_mote_entry, decode_status
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import StreamSchema
from protocols.wire.topics import ParsedTopic
from proxy.fleet.batching import BatchLimits, StoredStamps
from proxy.fleet.stream_state import StreamProgress, StreamState
from proxy.motes.mote_presence import TrackingLimits
from proxy.motes.mote_tracking import MoteTracking
from proxy.records.decoding import check_properties
from proxy.records.program_routes import ProgramTable
from proxy.records.waiting_tuples import LOWEST_US, MotePosition

MOST_PROXIES = 1_000
MOST_ENTRIES = 200_000
"""Of all other proxies together; further ones are ignored, and so their motes can be claimed by this proxy."""


@dataclass(frozen=True, slots=True)
class NeighbourChanges:
    """The changes that follow from a message of another proxy.

    Parameters
    ----------
    given_up
        Motes of ours that a proxy claims which has been online longer; the fleet keeps those with keys of their own.
    freed
        Motes that no other proxy has any more.
    """

    given_up: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()


NO_CHANGES = NeighbourChanges()


class Neighbours:
    """The other proxies, as one proxy sees them.

    Parameters
    ----------
    proxy
        Its own name.
    since_us
        Since when it has been online, as in its status.
    most_proxies, most_entries
        How many are remembered.
    """

    def __init__(
        self, proxy: str, since_us: int, *, most_proxies: int = MOST_PROXIES, most_entries: int = MOST_ENTRIES
    ) -> None:
        self._self = (since_us, proxy)
        self._most_proxies = most_proxies
        self._most_entries = most_entries
        self._online: dict[str, int] = {}
        self._motes: dict[str, set[str]] = {}
        self._proxies: dict[str, set[str]] = {}
        self._streams: dict[tuple[str, str], str] = {}
        self._entries = 0

    def claimant(self, mote: str, *, ours: bool, stream: str | None = None) -> str | None:
        """Return the proxy that a mote belongs to; None if it is ours, or free to be.

        A mote that is not in our catalog belongs to the proxy that has it. Where both have it, the one that has been
        online longer keeps it. A mote of another stream is another mote of the same name; without `stream`, streams
        are not compared.
        """
        online = (
            (self._online[each], each)
            for each in self._proxies.get(mote, ())
            if each in self._online and stream in (None, self._streams.get((each, mote)))
        )
        first = min(online, default=None)
        if first is None or (ours and self._self < first):
            return None
        return first[1]

    def received(self, topic: ParsedTopic, payload: bytes, ours: Callable[[str], bool]) -> NeighbourChanges:
        """Return what follows from a status or a mote's entry; `ours` returns whether a mote is in our catalog.

        Raises
        ------
        FrameError
            If it is no status or entry, or does not match its topic.
        """
        proxy = topic.names[0]
        if proxy == self._self[1]:
            return NO_CHANGES  # our own message
        if topic.kind == "proxy_status":
            return self._status(proxy, payload, ours)
        return self._entry(proxy, topic.names[1], payload, ours)

    def _status(self, proxy: str, payload: bytes, ours: Callable[[str], bool]) -> NeighbourChanges:
        status = decode_status(payload) if payload else None
        if status is not None and status.name != proxy:
            raise FrameError("proxy", f"status of {status.name!r} on the topic of proxy {proxy!r}")
        if status is None or status.presence is not Presence.ONLINE:
            was_online = self._online.pop(proxy, None) is not None
            return NeighbourChanges(freed=self._free(self._motes.get(proxy, ()))) if was_online else NO_CHANGES
        return self._began(status, ours)

    def _began(self, status: Status, ours: Callable[[str], bool]) -> NeighbourChanges:
        if status.name not in self._online and len(self._online) >= self._most_proxies:
            return NO_CHANGES
        self._online[status.name] = status.since_us
        return NeighbourChanges(given_up=self._lost(self._motes.get(status.name, ()), ours))

    def _entry(self, proxy: str, mote: str, payload: bytes, ours: Callable[[str], bool]) -> NeighbourChanges:
        known = self._motes.get(proxy)
        if not payload:
            if known is None or mote not in known:
                return NO_CHANGES
            self._forget(proxy, mote)
            return NeighbourChanges(freed=self._free((mote,)))
        if known is not None and mote in known:
            return NO_CHANGES  # entries are repeated; only their existence matters here
        entry = decode_mote_entry(payload)
        if (entry.proxy, entry.mote) != (proxy, mote):
            detail = f"entry of mote {entry.mote!r} of {entry.proxy!r} on the topic of {mote!r} of {proxy!r}"
            raise FrameError("mote", detail)
        if self._entries >= self._most_entries or (known is None and len(self._motes) >= self._most_proxies):
            return NO_CHANGES
        self._entries += 1
        self._streams[proxy, mote] = entry.stream
        self._motes.setdefault(proxy, set()).add(mote)
        self._proxies.setdefault(mote, set()).add(proxy)
        return NeighbourChanges(given_up=self._lost((mote,), ours))

    def _forget(self, proxy: str, mote: str) -> None:
        self._entries -= 1
        self._streams.pop((proxy, mote), None)
        for of, name, other in ((self._motes, proxy, mote), (self._proxies, mote, proxy)):
            of[name].discard(other)
            if not of[name]:
                del of[name]

    def _lost(self, motes: set[str] | tuple[str, ...], ours: Callable[[str], bool]) -> tuple[str, ...]:
        return tuple(sorted(mote for mote in motes if ours(mote) and self.claimant(mote, ours=True) is not None))

    def _free(self, motes: set[str] | tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(mote for mote in motes if self.claimant(mote, ours=False) is None))


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """How large a fleet may be, and how its motes, batches and programs are handled."""

    motes: int = 10_000
    streams: int = 1_000
    tracking: TrackingLimits = field(default_factory=TrackingLimits)
    batches: BatchLimits = field(default_factory=BatchLimits)
    style: ProgramStyle = field(default_factory=ProgramStyle)


class FleetMembers:
    """The members of one fleet.

    Parameters
    ----------
    proxy
        Its name.
    limits
        How many there may be, and how they are handled.
    programs, positions, losses, streams, stamps
        From before a restart: programs, the last accepted packet of each mote, until when samples of it were missing,
        the progress of each stream, and by stream and mote the stamps of published tuples.
    sealed
        Returns whether the frames of a mote are sealed with a key of its own.
    """

    def __init__(
        self,
        proxy: str,
        limits: FleetLimits,
        *,
        programs: Iterable[SamplingProgram] = (),
        positions: Mapping[str, MotePosition] | None = None,
        losses: Mapping[str, int] | None = None,
        streams: Iterable[StreamProgress] = (),
        stamps: Mapping[str, Mapping[str, Iterable[int]]] | None = None,
        sealed: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.sealed = sealed
        self.motes: dict[str, MoteTracking] = {}
        self._proxy = proxy
        self._limits = limits
        self.streams = {each.stream: self._new_stream(each) for each in streams}
        for name, known in (stamps or {}).items():
            if name in self.streams:
                self.streams[name].stamps = StoredStamps(known)
        self._programs = ProgramTable(programs)
        self._positions = dict(positions or {})
        self._losses_before = losses or {}
        self._losses: dict[str, int] = {}
        self._motes_of: dict[str, dict[str, MoteTracking]] = {}

    def stream(self, name: str) -> StreamState | None:
        """Return a stream, new or known; None if there are too many."""
        found = self.streams.get(name)
        if found is None and len(self.streams) < self._limits.streams:
            found = self.streams[name] = self._new_stream(StreamProgress(name))
        return found

    def mote(self, name: str, now_us: int) -> MoteTracking | None:
        """Return a mote, new or known; None if there are too many. `now_us` is the radio clock."""
        found = self.motes.get(name)
        if found is None and len(self.motes) < self._limits.motes:
            found = self.motes[name] = MoteTracking(
                name,
                proxy=self._proxy,
                programs=self._programs,
                limits=self._limits.tracking,
                started_us=now_us,
                position=self._positions.pop(name, None),
                lost_until_us=self._losses_before.get(name, LOWEST_US),
                sealed=self.sealed(name),
            )
        return found

    def stream_of(self, mote: MoteTracking) -> StreamState | None:
        """Return the stream that a mote feeds; None before it has announced itself."""
        announcement = mote.announcement
        return None if announcement is None else self.streams[announcement.stream.name]

    def motes_of(self, stream: str) -> Collection[MoteTracking]:
        """Return the motes that feed a stream."""
        return self._motes_of.get(stream, {}).values()

    def join(self, mote: MoteTracking, stream: StreamState) -> None:
        """Let a mote feed a stream."""
        feeding = self._motes_of.setdefault(stream.name, {})
        feeding[mote.mote] = mote
        stream.set_mote_count(len(feeding))

    def leave(self, mote: MoteTracking) -> None:
        """Let a mote feed no stream any more."""
        stream = self.stream_of(mote)
        if stream is not None:
            self._motes_of.get(stream.name, {}).pop(mote.mote, None)
            stream.note_change()

    def has(self, mote: str) -> bool:
        """Return whether a mote has announced itself to this proxy."""
        found = self.motes.get(mote)
        return found is not None and found.announcement is not None

    def live_mote(self, stream: str, except_for: str) -> str | None:
        """Return a mote, other than the one named, that feeds a stream in real time; None if there is none."""
        names = (each.mote for each in self.motes_of(stream) if each.mote != except_for and each.keeps_real_time)
        return min(names, default=None)

    def states(self) -> dict[MoteState, int]:
        """Return how many motes are in each state."""
        counts = dict.fromkeys(MoteState, 0)
        for mote in self.motes.values():
            if mote.announcement is not None:
                counts[mote.state] += 1
        return counts

    def clock_faults(self) -> dict[str, int]:
        """Return how many motes have a wrong clock, by fault."""
        counts = dict.fromkeys((each.value for each in ClockFault), 0)
        for mote in self.motes.values():
            if mote.clock.fault is not None:
                counts[mote.clock.fault.value] += 1
        return counts

    def positions(self) -> list[MotePosition]:
        """Return the last accepted packet of all motes that have no tuples waiting for a batch."""
        waiting = {name for name, stream in self.streams.items() if stream.waiting}
        return [
            mote.numbers.position
            for mote in self.motes.values()
            if mote.numbers.any_received and (mote.announcement is None or mote.announcement.stream.name not in waiting)
        ]

    def new_losses(self) -> dict[str, int]:
        """Return, by mote, until when samples are missing, of those of which that has changed since the last time."""
        changed = {
            name: until_us
            for name, each in self.motes.items()
            if (until_us := each.lost_until_us) > LOWEST_US and self._losses.get(name) != until_us
        }
        self._losses |= changed
        return changed

    def _new_stream(self, progress: StreamProgress) -> StreamState:
        return StreamState(progress, self._limits.batches, self._proxy, style=self._limits.style)

    @property
    def limits(self) -> FleetLimits:
        """How many members there may be, and how they are handled."""
        return self._limits


def problem_of(
    announcement: Announcement,
    members: FleetMembers,
    neighbours: Neighbours,
    same_driver: Callable[[str, str], bool] = lambda *_: False,
) -> tuple[str, str] | None:
    """Return why an announcement cannot be accepted, as a metric label and a sentence; None if it can.

    Parameters
    ----------
    announcement
        Of a mote.
    members
        Motes and streams of this proxy; the announced stream is added to them if there is room.
    neighbours
        What is known of other proxies.
    same_driver
        Returns whether two motes are devices of one driver.
    """
    name, mote = announcement.stream.name, announcement.mote
    # A mote with a key has that of one proxy: where it can be opened it is ours, whatever the entries of others claim.
    other = None if members.sealed(mote) else neighbours.claimant(mote, ours=members.has(mote), stream=name)
    if other is not None:
        return "two_proxies", f"mote {mote!r} is in the catalog of proxy {other!r}, which is online"
    try:
        check_properties(announcement)
    except SchemaError as error:
        return "properties", str(error)
    if announcement.replays and (live := members.live_mote(name, mote)):
        return "replay", f"mote {mote!r} replays a trace into stream {name!r}, which {live!r} feeds live"
    stream = members.stream(name)
    if stream is None:
        return "too_many_streams", f"there are {members.limits.streams} streams already"
    if stream.schema is None or stream.schema == announcement.stream:
        return None  # as nearly always: without a look at the other motes, of which there may be thousands
    others = (each.mote for each in members.motes_of(name) if each.mote != mote)
    first = next(others, None)
    if first is None:
        return None
    extended = extends(announcement.stream, stream.schema) and same_driver(mote, first)
    if not extended or not all(same_driver(mote, each) for each in others):
        return "schema", f"mote {mote!r} gives stream {name!r} other fields than {first!r} does"
    return None


def extends(longer: StreamSchema, schema: StreamSchema) -> bool:
    """Return whether a schema has the columns of another and further ones behind them; a unit may be new, too."""
    pairs = list(zip(schema.fields, longer.fields, strict=False))
    return len(pairs) == len(schema.fields) and all(
        (old.name, old.type, old.fixed) == (new.name, new.type, new.fixed) and old.unit in {"", new.unit}
        for old, new in pairs
    )

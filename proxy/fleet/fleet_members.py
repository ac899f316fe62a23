"""The motes and streams of a proxy, and which motes feed which stream. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from protocols.acquisition.program_reports import ProgramStyle
from protocols.wire.catalog import ClockFault, MoteState
from protocols.wire.programs import SamplingProgram
from proxy.fleet.batching import BatchLimits
from proxy.fleet.stored_stamps import StoredStamps
from proxy.fleet.stream_state import StreamProgress, StreamState
from proxy.motes.mote_tracking import MoteTracking
from proxy.motes.tracking_limits import TrackingLimits
from proxy.records.program_table import ProgramTable
from proxy.records.waiting_tuples import MotePosition
from proxy.records.watermarks import LOWEST_US


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

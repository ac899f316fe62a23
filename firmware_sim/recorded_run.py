"""What `fjord motes run` was asked for, and a fleet on a timeline: recorded while it runs, or replayed from its log.

**A fleet of simulated motes on a timeline: recorded while it runs, or replayed from its log. What runs is the same.**

Motes keep nothing on a disk, so a log begins with what they were asked for, and with the files that this names.
"""

from __future__ import annotations

import platform
import tempfile
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from firmware_sim.fleet import Fleet, FleetLink, FleetSettings, MakeFleetLink, radio_clock_us, run_until
from firmware_sim.mote.mote import USUAL_PRESET
from firmware_sim.phenomena.trace import Resampling, Trace, TraceColumns
from firmware_sim.phenomena.worlds import Phenomenon, make_world
from firmware_sim.power.battery import find_battery
from firmware_sim.radio.channel import read_faults
from protocols.errors import FjordError
from protocols.mqtt.link import BrokerAddress, MqttLink, Subscription
from protocols.recording.entries import FORMAT, Header, LogError
from protocols.recording.player import Player, play
from protocols.recording.reading import RecordedRun, decompressed
from protocols.recording.recorder import Recorder
from protocols.recording.segments import SegmentWriter
from protocols.recording.timeline import Timeline
from protocols.sealing.seals import FleetSeals, load_mote_keys
from protocols.wire.topics import check_name

DEFAULT_WORLD, DEFAULT_MOTES, DEFAULT_STREAM = "traffic", 64, "traffic"
MOST_MOTES = 100_000


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How motes run.

    Parameters
    ----------
    proxy
        The proxy that owns them.
    world, motes, period_us, seed
        The generated world, for how many motes, and their usual sample period; or that of a resampled trace.
    trace, stream, time_column, sensor_column, fields
        A recorded world instead: the path of its file, and what its columns mean; fields as ``NAME`` or ``NAME:UNIT``.
    as_recorded
        Whether a trace is replayed with its own stamps and gaps. Logs of earlier versions do not say: it was sampled
        again then.
    speed, hold_us, exit_at_end
        How a trace runs.
    seconds
        After which they stop; None for never.
    preset, radio
        The device profile and the faults of the radio: a name, or the path of a file; no faults if `radio` is None.
    keys
        The file of their keys; None for none.
    battery, lifetime_us
        The battery of each mote, and how long it must last.
    counted
        Whether their counters are read every second.
    """

    proxy: str = "roadside"
    world: str = DEFAULT_WORLD
    motes: Annotated[int, Meta(ge=1, le=MOST_MOTES)] = DEFAULT_MOTES
    period_us: Annotated[int, Meta(ge=1_000)] | None = None
    seed: int = 1
    trace: str | None = None
    stream: str = DEFAULT_STREAM
    time_column: str = "time"
    sensor_column: str = "sensor"
    fields: tuple[str, ...] = ()
    as_recorded: bool = False
    speed: Annotated[float, Meta(ge=0.001, le=1e6)] = 1.0
    hold_us: int = 30_000_000
    exit_at_end: bool = False
    seconds: float | None = None
    preset: str = USUAL_PRESET
    radio: str | None = None
    keys: str | None = None
    battery: str | None = None
    lifetime_us: int = 0
    counted: bool = False


def make_fleet(
    options: RunOptions,
    broker: BrokerAddress,
    *,
    clock: Callable[[], int] = radio_clock_us,
    make_link: MakeFleetLink | None = None,
) -> Fleet:
    """Return the fleet.

    Parameters
    ----------
    options
        What was asked for.
    broker
        The address of the broker.
    clock, make_link
        As in :class:`Fleet`.

    Raises
    ------
    FjordError
        If a file cannot be read, or there is no world, preset or battery of a name.
    """
    settings = FleetSettings(
        proxy=check_name(options.proxy, "proxy"),
        broker=broker,
        speed=options.speed,
        hold_us=options.hold_us,
        exit_at_end=options.exit_at_end,
        seed=options.seed,
        preset=options.preset,
        battery=None if options.battery is None else find_battery(options.battery),
        lifetime_us=options.lifetime_us,
        sealed=options.keys is not None,
        seals=seals_of(options) if make_link is None else None,
        faults=None if options.radio is None else read_faults(Path(options.radio)),
    )
    return Fleet(_phenomenon(options), settings, clock=clock, make_link=make_link)


def seals_of(options: RunOptions) -> FleetSeals | None:
    """Return what seals the frames of the motes, by the file of their keys; None without one; raises SettingsError."""
    return None if options.keys is None else FleetSeals(load_mote_keys(Path(options.keys)))


def _phenomenon(options: RunOptions) -> Phenomenon:
    if options.trace is None:
        return make_world(options.world, motes=options.motes, seed=options.seed, default_period_us=options.period_us)
    units = {name: unit for name, _, unit in (text.partition(":") for text in options.fields)}
    columns = TraceColumns(options.time_column, options.sensor_column, units)
    resampling = None if options.as_recorded else Resampling(options.period_us)
    stream = check_name(options.stream, "stream")
    return Trace(Path(options.trace), columns=columns, stream=stream, resampling=resampling)


PART: Final = "motes"
MAX_TRACE_BYTES: Final = 256 * 1024**2
"""A larger trace is not copied into a log."""
_OPTIONS: Final = "options"
_TRACE: Final = "trace"
_TABLES: Final = (".parquet", ".pq")


async def run_on(
    timeline: Timeline, options: RunOptions, broker: BrokerAddress, began: Callable[[Fleet], Callable[[], None]]
) -> Fleet:
    """Run motes on a timeline until that asks them to stop, and return them.

    Parameters
    ----------
    timeline
        Recorded, or replayed.
    options
        How they run.
    broker
        The address of the broker, where there is one.
    began
        Called before they run; returns what is called every second.
    """
    epoch_us = timeline.ahead_ns // 1_000  # from then on, their clock never steps
    clock = lambda: epoch_us + timeline.radio_us()  # noqa: E731 - as short as that
    fleet = make_fleet(options, broker, clock=clock, make_link=_taped(timeline, broker, options))
    look = began(fleet)
    await run_until(fleet, timeline.stopped, options.seconds, look)
    return fleet


def begin_recording(folder: Path, limit_bytes: int, options: RunOptions) -> Recorder:
    """Return a recorder of motes, in a folder of at most so many bytes; raises LogError."""

    def header(run: str, begins: bool, most_bytes: int) -> Header:  # noqa: FBT001 - see MakeHeader
        state, left_out = _copied_trace(options, most_bytes) if begins else ({}, ())
        return Header(
            format=FORMAT,
            part=PART,
            name=options.proxy,
            run=run,
            begins=begins,
            settings={},
            versions={"fjord": version("fjord"), "python": platform.python_version()},
            state=state,
            left_out=left_out,
            documents={_OPTIONS: msgspec.json.encode(options).decode(), **_documents(options)},
        )

    try:
        return Recorder(SegmentWriter(folder, limit_bytes, header))
    except UnicodeDecodeError as error:
        raise LogError(f"cannot record: a file that the motes read is no text: {error}") from error


def replay(run: RecordedRun) -> Player:
    """Run motes again as the log says, and return what they have done.

    Raises
    ------
    LogError
        The log does not hold what they begin with.
    """
    player = Player(run)
    with tempfile.TemporaryDirectory(prefix="fjord-replay-") as name:
        options = _options_of(run.header, Path(name))
        play(player, lambda: _replayed(player, options))
    if isinstance(player.failure, FjordError) and player.link is None:  # there were no motes yet
        raise LogError(f"the log of motes names what there is not: {player.failure.message}") from player.failure
    return player


async def _replayed(player: Player, options: RunOptions) -> None:
    await run_on(player, options, BrokerAddress(), lambda fleet: _look(fleet, counted=options.counted))


def _look(fleet: Fleet, *, counted: bool) -> Callable[[], None]:
    """Return what reads clocks and meters as `fjord motes run` does, and shows nothing."""

    def look() -> None:
        _void(fleet.progress)
        if counted:
            fleet.counters()

    return look


def _void(_: object) -> None:
    """Do nothing."""


def _taped(timeline: Timeline, broker: BrokerAddress, options: RunOptions) -> MakeFleetLink:
    def make(client_id: str, subscriptions: Sequence[Subscription]) -> FleetLink:
        return timeline.taped_link(
            lambda connect, disconnect: MqttLink(
                broker,
                client_id=client_id,
                subscriptions=subscriptions,
                on_connect=connect,
                on_disconnect=disconnect,
                seals=seals_of(options),
            ),
            None,
        )

    return make


def _documents(options: RunOptions) -> dict[str, str]:
    """Return the texts of files that the options name, by option."""
    named = {"radio": options.radio, "preset": options.preset if options.preset.endswith(".toml") else None}
    return {option: Path(path).read_text("utf-8") for option, path in named.items() if path is not None}


def _copied_trace(options: RunOptions, most_bytes: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
    if options.trace is None:
        return {}, ()
    path = Path(options.trace)
    if path.stat().st_size <= MAX_TRACE_BYTES:
        content = zlib.compress(path.read_bytes(), 1)
        if len(content) <= most_bytes:
            return {_TRACE: content}, ()
    return {}, (_TRACE,)


def _options_of(header: Header, folder: Path) -> RunOptions:
    """Return the options, with the log's files in a folder; names in the log are never used as paths."""
    try:
        options = msgspec.json.decode(header.documents.get(_OPTIONS, ""), type=RunOptions)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise LogError(f"the log of motes {header.name!r} has options that are none: {error}") from error
    found: dict[str, str | None] = {}
    for option in ("radio", "preset"):
        if option in header.documents:
            file = folder / f"{option}.toml"
            file.write_text(header.documents[option], "utf-8")
            found[option] = str(file)
        elif str(getattr(options, option)).endswith(".toml"):
            raise LogError(f"the log of motes {header.name!r} lacks the file of its {option}")
    if options.radio is not None and "radio" not in found:
        raise LogError(f"the log of motes {header.name!r} lacks the file of its radio")
    if options.trace is not None:
        if _TRACE not in header.state:
            raise LogError(
                f"the log of motes {header.name!r} lacks their trace",
                hint="it was too large for the log, or its first segment is gone: record with a larger --record-size",
            )
        ending = ".parquet" if Path(options.trace).suffix.lower() in _TABLES else ".csv"
        file = folder / f"{_TRACE}{ending}"
        file.write_bytes(decompressed(header.state[_TRACE], _TRACE, MAX_TRACE_BYTES))
        found[_TRACE] = str(file)
    return msgspec.structs.replace(options, **found)

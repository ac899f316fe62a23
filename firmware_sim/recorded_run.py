"""A fleet of simulated motes on a timeline: recorded while it runs, or replayed from its log. What runs is the same.

Motes keep nothing on a disk, so a log begins with what they were asked for, and with the files that this names.
"""

from __future__ import annotations

import platform
import tempfile
import zlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from firmware_sim.fleet import Fleet, FleetLink, MakeFleetLink
from firmware_sim.live_run import run_until
from firmware_sim.run_options import RunOptions, make_fleet, seals_of
from protocols.errors import FjordError
from protocols.mqtt.link import BrokerAddress, MqttLink, Subscription
from protocols.recording.entries import FORMAT, Header, LogError
from protocols.recording.player import Player, play
from protocols.recording.reading import RecordedRun, decompressed
from protocols.recording.recorder import Recorder
from protocols.recording.segments import SegmentWriter
from protocols.recording.timeline import Timeline

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

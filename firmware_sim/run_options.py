"""What `fjord motes run` was asked for, as data; and the fleet that this describes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from firmware_sim.fleet import Fleet, FleetSettings, MakeFleetLink, radio_clock_us
from firmware_sim.mote.mote import USUAL_PRESET
from firmware_sim.phenomena.trace import Resampling, Trace, TraceColumns
from firmware_sim.phenomena.worlds import Phenomenon, make_world
from firmware_sim.power.batteries import find_battery
from firmware_sim.radio.channel import read_faults
from protocols.mqtt.link import BrokerAddress
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

"""How long a proxy takes to merge the demands of many different queries over many sensors into sampling programs."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from protocols.acquisition.program_reports import ProgramStyle
from protocols.wire.demands import PaneDemand, PropertyBand, QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement
from protocols.wire.programs import Band, ListenSchedule, Measure
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits

SECOND = 1_000_000
SEGMENTS = 16
SCHEMA = StreamSchema(
    "traffic",
    (
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("flow", FieldType.REAL, "1/h"),
    ),
)


def merging(queries: int = 1_000, sensors: int = 1_000, rounds: int = 3) -> dict[str, Any]:
    """Return `merge_1000_s` for 1,000 queries: seconds from their demand until every sensor has its program."""
    seconds = []
    different = set()
    for turn in range(rounds):
        fleet = Fleet("p", FleetLimits(style=ProgramStyle(7, ListenSchedule(300 * SECOND, 50_000))), now_us=0)
        for number in range(sensors):
            properties = {"segment": number % SEGMENTS}
            mote = Announcement(VERSION, f"m{number}", 1, "loop", SCHEMA, dict(properties), 10 * SECOND, SECOND)
            fleet.receive_announcement(mote, radio_us=0, received_us=0)
        demand = StreamDemand(VERSION, "c", "traffic", 1, tuple(_demands(queries, random.Random(turn))))  # noqa: S311
        began = time.perf_counter()
        fleet.receive_demand("traffic", demand, radio_us=1)
        seconds.append(time.perf_counter() - began)
        different = {mote.desired for mote in fleet.motes.values()}
    return {f"merge_{queries}_s": statistics.median(seconds), "merge_programs": len(different)}


def _demands(count: int, dice: random.Random) -> list[QueryDemand]:
    """Return demands of which hardly two are alike in periods, fields, bands, sensors and panes."""
    found = []
    for number in range(count):
        period_us = dice.choice([None, 2, 5, 10, 30, 60])
        period_us = None if period_us is None else period_us * SECOND
        fields = tuple(sorted(dice.sample(["speed", "flow"], dice.randint(1, 2))))
        aggregated = dice.random() < 0.5  # noqa: PLR2004 - a coin
        # A demand for every sample would serve all the others: then there is nothing to choose.
        banded = dice.random() < (0.5 if aggregated else 0.99)
        bands = (Band("speed", high=float(dice.randint(50, 600)) / 10),) if banded else ()
        segment = dice.randrange(SEGMENTS)
        panes = None
        if aggregated:
            panes = PaneDemand(
                _form(period_us, bands), dice.choice([60, 300, 900]) * SECOND, (Measure.COUNT, Measure.SUM)
            )
        found.append(
            QueryDemand(f"q{number}", fields, period_us, bands, (PropertyBand("segment", segment, segment),), panes)
        )
    return found


def _form(period_us: int | None, bands: tuple[Band, ...]) -> str:
    return f"p{period_us or 0}b{'-'.join(f'{band.high or 0:.1f}' for band in bands)}".replace(".", "d").replace(
        "-", "m"
    )

"""Traffic on a road of several lanes: loops that report speed and flow, with rush hours and jams that travel upstream.

A loop's values are a function of (seed, mote, instant) alone, so that every run of a seed is the same and no history
is kept. They resemble traffic, but do not model drivers.
"""

from __future__ import annotations

import math
import random
from functools import cached_property

from firmware_sim.errors import SimulationError
from firmware_sim.mote.mote_events import MoteDescription
from protocols.wire.packets import SampleValue
from protocols.wire.streams import Field, FieldType, StreamSchema

LANES = 4
FREE_SPEED_MPH = (68.0, 65.0, 62.0, 58.0)
"""By lane, from the median to the shoulder."""
LARGEST_FLOW_PER_HOUR = 2_000.0
"""Largest flow of one lane (Highway Capacity Manual: about 2,000 to 2,400 vehicles an hour)."""
JAM_SPEED_MPH = 12.0
JAM_EVERY_SECONDS = 180.0
JAM_PASSES_SEGMENT_SECONDS = 12.0
"""A jam moves one segment upstream in this time."""
JAM_SHARE = 0.18
"""Share of the time during which a segment is jammed."""

TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("station", FieldType.INTEGER, fixed=True),
        Field("lane", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("flow", FieldType.REAL, "1/h"),
    ),
)
"""The fields of the paper's trace records (papers/fjords.md section 4), station and lane split up."""


class Traffic:
    """A road of as many segments as the motes fill, four lanes each.

    Parameters
    ----------
    motes
        How many loops there are.
    seed
        The seed of all random values.
    default_period_us
        Their sample period if no query demands another.
    """

    begins_us: int | None = None
    ends_us: int | None = None

    def __init__(self, motes: int, *, seed: int = 1, default_period_us: int = 1_000_000) -> None:
        if motes < 1:
            raise SimulationError(f"a road with {motes} loops")
        self._count = motes
        self._seed = seed
        self._default_period_us = default_period_us

    @cached_property
    def motes(self) -> tuple[MoteDescription, ...]:
        """The loops, segment by segment."""
        return tuple(
            MoteDescription(
                name=f"s{place // LANES + 1:03}l{place % LANES + 1}",
                kind="loop",
                stream=TRAFFIC,
                properties={
                    "sensor": f"s{place // LANES + 1:03}l{place % LANES + 1}",
                    "segment": place // LANES + 1,
                    "station": 100 + place // LANES,
                    "lane": place % LANES + 1,
                },
                default_period_us=self._default_period_us,
                minimum_period_us=5_000,
            )
            for place in range(self._count)
        )

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        """Return the sampled ones of speed (mph) and flow (vehicles an hour)."""
        segment, lane = divmod(mote, LANES)
        seconds = instant_us / 1e6
        chance = random.Random(f"{self._seed}/{mote}/{instant_us}")  # noqa: S311 - a simulation, not a secret
        rush = rush_hour(seconds)
        jam = self._jam(segment, seconds)
        flowing = FREE_SPEED_MPH[lane] * (1.0 - 0.25 * rush)
        speed = max(1.0, flowing + (JAM_SPEED_MPH - flowing) * jam + chance.gauss(0.0, 2.5))
        mean_flow = LARGEST_FLOW_PER_HOUR * (0.15 + 0.75 * rush) * (1.0 - 0.6 * jam)
        flow = max(0.0, chance.gauss(mean_flow, math.sqrt(mean_flow * 12.0)))
        values: dict[str, SampleValue] = {"speed": round(speed, 2), "flow": float(round(flow))}
        return tuple(values[name] for name in fields)

    def _jam(self, segment: int, seconds: float) -> float:
        """Return how jammed a segment is, 0 to 1; the same jam reaches the next segment upstream a little later."""
        phase = (seconds + segment * JAM_PASSES_SEGMENT_SECONDS + self._seed * 37.0) % JAM_EVERY_SECONDS
        share = phase / JAM_EVERY_SECONDS
        return math.sin(math.pi * share / JAM_SHARE) if share < JAM_SHARE else 0.0


def rush_hour(seconds: float) -> float:
    """Return how busy the road is at a time of day, 0 to 1: peaks about 08:00 and 17:00."""
    hour = seconds / 3600.0 % 24.0
    return max(
        math.exp(-(((hour - peak + 12.0) % 24.0 - 12.0) ** 2) / width) for peak, width in ((8.0, 3.0), (17.0, 5.0))
    )

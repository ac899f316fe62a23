"""A road of several lanes with stations of two sensors each: vehicles pass, and each sensor sees what covers it.

Two motes of a station stand less than a car's length apart in one lane (papers/fjords.md section 6). Their event pairs
give each vehicle's speed and length.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from firmware_sim.errors import SimulationError
from firmware_sim.mote.mote_events import MoteDescription
from firmware_sim.phenomena.car_following import METRES_PER_FOOT, Lane, LaneSettings, Passage
from firmware_sim.phenomena.traffic import rush_hour
from protocols.wire.packets import SampleValue
from protocols.wire.streams import Field, FieldType, StreamSchema

LANE_MPH = (68.0, 65.0, 62.0, 58.0)
"""Preferred speed of drivers, from the median to the shoulder."""
SENSOR_METRES = 0.6
"""Length of road in the range of a sensor; its level is the share of it that a vehicle covers."""
WARM_UP_SECONDS = 120.0
LOOK_AHEAD_SECONDS = 60.0
"""A vehicle is known when it has left; one that takes longer than this is missing until then."""
REMEMBERED_SECONDS = 600.0
DEFAULT_PERIOD_US = 5_556
"""180 Hz, which the paper needs for lengths to one foot."""

ROAD = StreamSchema(
    "road",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("station", FieldType.INTEGER, fixed=True),
        Field("lane", FieldType.INTEGER, fixed=True),
        Field("place", FieldType.REAL, "ft", fixed=True),
        Field("level", FieldType.REAL),
    ),
)


@dataclass(frozen=True, slots=True)
class RoadSettings:
    """The properties of the road.

    Parameters
    ----------
    stations, lanes
        Their numbers; each station has two motes in each lane.
    apart_feet
        Distance of the two motes of a station.
    station_every_metres
        Distance of two stations.
    vehicles_per_hour
        In each lane; at rush hours if `rush` is set, and then less at other times.
    rush
        Whether traffic follows the time of day.
    bottleneck_share
        After the last station drivers prefer only this share of their speed; 1 for no bottleneck.
    """

    stations: int = 2
    lanes: int = 4
    apart_feet: float = 10.0
    station_every_metres: float = 500.0
    vehicles_per_hour: float = 1200.0
    rush: bool = False
    bottleneck_share: float = 1.0


class Road:
    """A road on which every run of a seed has the same vehicles.

    Parameters
    ----------
    settings
        The properties of the road.
    seed
        The seed of all random values.
    origin_us
        Instant at which the first vehicles have spread over it; None for the first instant of a sample.
    default_period_us
        Sample period of its motes if no query demands another; 180 Hz if None.
    """

    begins_us: int | None = None
    ends_us: int | None = None

    def __init__(
        self,
        settings: RoadSettings | None = None,
        *,
        seed: int = 1,
        origin_us: int | None = None,
        default_period_us: int | None = None,
    ) -> None:
        self.settings = settings or RoadSettings()
        if self.settings.stations < 1 or not 1 <= self.settings.lanes <= len(LANE_MPH):
            raise SimulationError(
                f"a road with {self.settings.stations} stations and {self.settings.lanes} lanes",
                hint=f"at least one of each, and at most {len(LANE_MPH)} lanes",
            )
        self._origin_us = origin_us
        self._default_period_us = default_period_us or DEFAULT_PERIOD_US
        places = [
            100.0 + station * self.settings.station_every_metres + side * self.settings.apart_feet * METRES_PER_FOOT
            for station in range(self.settings.stations)
            for side in (0, 1)
        ]
        self._places = tuple(places)
        self._lanes = [
            Lane(
                LaneSettings(
                    length_metres=places[-1] + 300.0,
                    wanted_mph=LANE_MPH[lane],
                    truck_share=0.04 * lane,
                    slow_from_metres=places[-1] + 100.0,
                    slow_share=self.settings.bottleneck_share,
                ),
                self._places,
                np.random.default_rng([seed, lane]),
                begins=-WARM_UP_SECONDS,
            )
            for lane in range(self.settings.lanes)
        ]
        self._passages: list[list[deque[Passage]]] = [[deque() for _ in places] for _ in self._lanes]

    @cached_property
    def motes(self) -> tuple[MoteDescription, ...]:
        """Lane by lane, and in each in the direction of traffic."""
        return tuple(
            MoteDescription(
                name=f"r{place // 2 + 1:02}l{lane + 1}{'ud'[place % 2]}",
                kind="magnetometer",
                stream=ROAD,
                properties={
                    "sensor": f"r{place // 2 + 1:02}l{lane + 1}{'ud'[place % 2]}",
                    "station": place // 2 + 1,
                    "lane": lane + 1,
                    "place": round(metres / METRES_PER_FOOT, 2),
                },
                default_period_us=self._default_period_us,
                minimum_period_us=1_000,
            )
            for lane in range(self.settings.lanes)
            for place, metres in enumerate(self._places)
        )

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        """Return the level, 0 for an empty road to 1 for a vehicle right over the sensor."""
        level = self.level(mote, instant_us)
        return tuple(level if name == "level" else None for name in fields)

    def level(self, mote: int, instant_us: int) -> float:
        """Return the covered share of the range of a mote."""
        lane, sensor = divmod(mote, len(self._places))
        seconds = self._until(instant_us)
        level = 0.0
        for passage in reversed(self._passages[lane][sensor]):
            if passage.rear < seconds - 10.0:
                break
            half = SENSOR_METRES / 2 / max(passage.speed_mps, 0.1)
            if passage.front - half <= seconds <= passage.rear + half:
                rising = (seconds - passage.front) / (2 * half) + 0.5
                falling = (passage.rear - seconds) / (2 * half) + 0.5
                level = max(level, min(rising, falling, 1.0))
        return max(level, 0.0)

    def passages(self, mote: int) -> list[Passage]:
        """Return the true passages of vehicles at a mote, in seconds since the origin, as far back as they are kept."""
        lane, sensor = divmod(mote, len(self._places))
        return list(self._passages[lane][sensor])

    def _until(self, instant_us: int) -> float:
        """Move all vehicles far enough to know which is over a sensor at an instant; return the instant in seconds."""
        if self._origin_us is None:
            self._origin_us = instant_us
        seconds = (instant_us - self._origin_us) / 1e6
        # A vehicle must have left to be known, so look ahead; in a standstill that may not be enough.
        ahead = seconds + LOOK_AHEAD_SECONDS
        for lane, passages in zip(self._lanes, self._passages, strict=True):
            while lane.seconds < ahead:
                for sensor, passage in lane.step(self._flow(lane.seconds)):
                    passages[sensor].append(passage)
                    while passages[sensor][0].rear < lane.seconds - REMEMBERED_SECONDS:
                        passages[sensor].popleft()
        return seconds

    def _flow(self, seconds: float) -> float:
        if not self.settings.rush:
            return self.settings.vehicles_per_hour
        time_of_day = seconds + (self._origin_us or 0) / 1e6
        return self.settings.vehicles_per_hour * (0.15 + 0.85 * rush_hour(time_of_day))

"""A road of several lanes with stations of two sensors each: vehicles follow each other, sensors see them.

**One lane of vehicles that follow each other: the intelligent driver model (Treiber, Hennecke, Helbing 2000).**

Each driver accelerates towards a preferred speed and brakes for the vehicle ahead. Where more vehicles come than a
slow stretch can carry, a jam forms by itself and travels upstream.

Two motes of a station stand less than a car's length apart in one lane (papers/fjords.md section 6). Their event pairs
give each vehicle's speed and length.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from firmware_sim.errors import SimulationError
from firmware_sim.mote.mote_events import MoteDescription
from firmware_sim.phenomena.traffic import rush_hour
from protocols.wire.packets import SampleValue
from protocols.wire.streams import Field, FieldType, StreamSchema

Floats = npt.NDArray[np.float64]

STEP_SECONDS = 0.25
METRES_PER_FOOT = 0.3048
MPH = 0.44704
"""Metres a second in one mile an hour."""
HEADWAY_SECONDS = 1.2
"""Time gap that drivers keep (Treiber et al.: 1.0 to 1.8 s)."""
STANDING_GAP_METRES = 2.0
ACCELERATION = 1.2
COMFORTABLE_BRAKING = 1.8
HARDEST_BRAKING = 8.0
"""Metres per second squared."""
CAR_METRES = (4.5, 0.4)
TRUCK_METRES = (13.0, 1.5)
"""Mean length and its standard deviation."""


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """The properties of a lane.

    Parameters
    ----------
    length_metres
        Length of the road; vehicles enter at 0 and leave at the end.
    wanted_mph, wanted_spread_mph
        Preferred speed of drivers: mean and standard deviation.
    truck_share
        Share of vehicles that are trucks.
    slow_from_metres, slow_share
        From here on drivers prefer only this share of their speed: a bottleneck. With a share of 1 there is none.
    """

    length_metres: float = 2000.0
    wanted_mph: float = 65.0
    wanted_spread_mph: float = 4.0
    truck_share: float = 0.08
    slow_from_metres: float = 1e9
    slow_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Passage:
    """A vehicle passes a place: times of its front and its rear, in seconds, and its kind."""

    front: float
    rear: float
    speed_mps: float
    length_metres: float


class Lane:
    """Vehicles of one lane, moved step by step; sensors at given places report which vehicles pass.

    Parameters
    ----------
    settings
        The properties of the lane.
    sensors
        Places in metres.
    generator
        The random generator.
    begins
        Time of the empty road, in seconds.
    """

    def __init__(
        self, settings: LaneSettings, sensors: tuple[float, ...], generator: np.random.Generator, *, begins: float
    ) -> None:
        self.settings = settings
        self.seconds = begins
        self._sensors = sensors
        self._generator = generator
        # Front to back: the vehicle ahead has the smaller index.
        self._front: Floats = np.empty(0)
        self._speed: Floats = np.empty(0)
        self._length: Floats = np.empty(0)
        self._wanted: Floats = np.empty(0)
        self._number: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._entered = 0
        self._next_arrival = begins
        self._arrived: list[dict[int, float]] = [{} for _ in sensors]

    @property
    def vehicles(self) -> int:
        """The number of vehicles on the road."""
        return len(self._front)

    def step(self, vehicles_per_hour: float) -> list[tuple[int, Passage]]:
        """Move on by one step; return the vehicles that have passed a sensor completely."""
        self._enter(vehicles_per_hour)
        before, speed = self._front, self._speed
        acceleration = self._accelerations()
        self._speed = np.maximum(speed + acceleration * STEP_SECONDS, 0.0)
        self._front = before + 0.5 * (speed + self._speed) * STEP_SECONDS
        passed = self._crossings(before)
        self.seconds += STEP_SECONDS
        staying = self._front - self._length < self.settings.length_metres
        if not staying.all():
            self._front, self._speed = self._front[staying], self._speed[staying]
            self._length, self._wanted = self._length[staying], self._wanted[staying]
            self._number = self._number[staying]
        return passed

    def _accelerations(self) -> Floats:
        if not len(self._front):
            return np.empty(0)
        slow = self._front >= self.settings.slow_from_metres
        wanted = np.where(slow, self._wanted * self.settings.slow_share, self._wanted)
        gap = np.full(len(self._front), np.inf)
        closing = np.zeros(len(self._front))
        gap[1:] = np.maximum(self._front[:-1] - self._length[:-1] - self._front[1:], 0.1)
        closing[1:] = self._speed[1:] - self._speed[:-1]
        braking = self._speed * closing / (2 * np.sqrt(ACCELERATION * COMFORTABLE_BRAKING))
        kept = STANDING_GAP_METRES + np.maximum(self._speed * HEADWAY_SECONDS + braking, 0.0)
        free = 1 - (self._speed / wanted) ** 4
        return np.asarray(np.clip(ACCELERATION * (free - (kept / gap) ** 2), -HARDEST_BRAKING, ACCELERATION))

    def _enter(self, vehicles_per_hour: float) -> None:
        """Let the next vehicle in when it is due and there is space for it."""
        if vehicles_per_hour <= 0:
            self._next_arrival = max(self._next_arrival, self.seconds)
            return
        if self.seconds < self._next_arrival:
            return
        settings = self.settings
        wanted = max(20.0, self._generator.normal(settings.wanted_mph, settings.wanted_spread_mph)) * MPH
        speed = wanted
        if len(self._front):
            rear = float(self._front[-1] - self._length[-1])
            if rear < STANDING_GAP_METRES + float(self._speed[-1]) * HEADWAY_SECONDS:
                return
            speed = min(wanted, float(self._speed[-1]) + rear / 10.0)
        mean, spread = TRUCK_METRES if self._generator.random() < settings.truck_share else CAR_METRES
        length = float(np.clip(self._generator.normal(mean, spread), mean - 2 * spread, mean + 2 * spread))
        self._front, self._speed = np.append(self._front, 0.0), np.append(self._speed, speed)
        self._length, self._wanted = np.append(self._length, length), np.append(self._wanted, wanted)
        self._number = np.append(self._number, self._entered)
        self._entered += 1
        self._next_arrival = max(self._next_arrival, self.seconds - 30.0)
        self._next_arrival += float(self._generator.exponential(3600.0 / vehicles_per_hour))

    def _crossings(self, before: Floats) -> list[tuple[int, Passage]]:
        """Return the passages that this step completed; instants are interpolated within the step."""
        passed: list[tuple[int, Passage]] = []
        after = self._front
        moved = np.maximum(after - before, 1e-9)
        for sensor, place in enumerate(self._sensors):
            waiting = self._arrived[sensor]
            for which in np.flatnonzero((before < place) & (after >= place)):
                share = float((place - before[which]) / moved[which])
                waiting[int(self._number[which])] = self.seconds + share * STEP_SECONDS
            rear_place = place + self._length
            for which in np.flatnonzero((before < rear_place) & (after >= rear_place)):
                share = float((rear_place[which] - before[which]) / moved[which])
                front = waiting.pop(int(self._number[which]), None)
                if front is not None:
                    rear = self.seconds + share * STEP_SECONDS
                    length = float(self._length[which])
                    passed.append((sensor, Passage(front, rear, length / max(rear - front, 1e-9), length)))
        return passed


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

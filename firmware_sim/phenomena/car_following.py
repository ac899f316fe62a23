"""One lane of vehicles that follow each other: the intelligent driver model (Treiber, Hennecke, Helbing 2000).

Each driver accelerates towards a preferred speed and brakes for the vehicle ahead. Where more vehicles come than a
slow stretch can carry, a jam forms by itself and travels upstream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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

"""Rooms: temperature, humidity and light through the day, and doors that let the outside in.

A mote's values are a function of (seed, mote, instant) alone. Its fields belong together: a door that opens moves
temperature and humidity, and warm air is drier.
"""

from __future__ import annotations

import math
import random
from functools import cached_property, lru_cache

from firmware_sim.errors import SimulationError
from firmware_sim.mote.mote_events import MoteDescription
from protocols.wire.packets import SampleValue
from protocols.wire.streams import Field, FieldType, StreamSchema

DAY_SECONDS = 86_400.0
SLOT_SECONDS = 600.0
"""A door opens at most once in each period."""
OPEN_SHARE = 0.25
"""Share of the periods by day in which a door opens."""
RECOVERS_IN_SECONDS = 700.0
"""Time constant of a room's air after a door has closed."""
RIPPLE_SECONDS = 900.0

INDOOR_CLIMATE = StreamSchema(
    "climate",
    (
        Field("room", FieldType.TEXT, fixed=True),
        Field("floor", FieldType.INTEGER, fixed=True),
        Field("temperature", FieldType.REAL, "degC"),
        Field("humidity", FieldType.REAL, "%"),
        Field("light", FieldType.REAL, "lx"),
        Field("door_open", FieldType.BOOLEAN),
    ),
)


class IndoorClimate:
    """A building with one mote in each room.

    Parameters
    ----------
    motes
        How many rooms.
    seed
        The seed of all random values.
    default_period_us
        Their sample period if no query demands another.
    """

    begins_us: int | None = None
    ends_us: int | None = None

    def __init__(self, motes: int, *, seed: int = 1, default_period_us: int = 30_000_000) -> None:
        if motes < 1:
            raise SimulationError(f"a building with {motes} rooms")
        self._count = motes
        self._seed = seed
        self._default_period_us = default_period_us
        self._door = lru_cache(maxsize=65_536)(self._draw_door)

    @cached_property
    def motes(self) -> tuple[MoteDescription, ...]:
        """The rooms, ten on each floor."""
        return tuple(
            MoteDescription(
                name=f"room{place // 10 + 1}{place % 10 + 1:02}",
                kind="climate",
                stream=INDOOR_CLIMATE,
                properties={"room": f"{place // 10 + 1}{place % 10 + 1:02}", "floor": place // 10 + 1},
                default_period_us=self._default_period_us,
                minimum_period_us=100_000,
            )
            for place in range(self._count)
        )

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        """Return the values of the sampled fields."""
        seconds = instant_us / 1e6
        draught, is_open = self._draught(mote, seconds)
        outside = outside_c(seconds)
        inside = 21.0 + 1.5 * math.cos((seconds / DAY_SECONDS - 15 / 24) * math.tau) + self._ripple(mote, seconds, 0.4)
        temperature = inside + (outside - inside) * draught
        humidity = 45.0 - 1.8 * (temperature - 21.0) + 12.0 * draught + self._ripple(mote + 7919, seconds, 1.5)
        chance = random.Random(f"{self._seed}/{mote}/{instant_us}")  # noqa: S311 - a simulation, not a secret
        values: dict[str, SampleValue] = {
            "temperature": round(temperature + chance.gauss(0.0, 0.02), 2),
            "humidity": round(min(max(humidity + chance.gauss(0.0, 0.1), 0.0), 100.0), 1),
            "light": round(max(0.0, light_lx(seconds) * (0.8 + 0.05 * (mote % 5)) + chance.gauss(0.0, 2.0)), 1),
            "door_open": is_open,
        }
        return tuple(values[name] for name in fields)

    def _draught(self, mote: int, seconds: float) -> tuple[float, bool]:
        """Return the share of outside air in the room, 0 to 1, and whether its door is open."""
        slot = math.floor(seconds / SLOT_SECONDS)
        draught, is_open = 0.0, False
        for each in range(slot - 7, slot + 1):
            begin, long = self._door(mote, each)
            if long == 0 or seconds < begin:
                continue
            opened = min(seconds - begin, long)
            since = max(0.0, seconds - begin - long)
            draught += 0.5 * (1 - math.exp(-opened / 60.0)) * math.exp(-since / RECOVERS_IN_SECONDS)
            is_open |= since == 0.0
        return min(draught, 0.9), is_open

    def _draw_door(self, mote: int, slot: int) -> tuple[float, float]:
        """Return when the door opens in a period, and for how long; 0 s if it does not."""
        chance = random.Random(f"{self._seed}/{mote}/door/{slot}")  # noqa: S311 - a simulation, not a secret
        begin = slot * SLOT_SECONDS + chance.uniform(0.0, SLOT_SECONDS - 120.0)
        by_day = 8 <= begin / 3600 % 24 < 18  # noqa: PLR2004 - office hours
        opens = chance.random() < (OPEN_SHARE if by_day else OPEN_SHARE / 20)
        return begin, chance.uniform(10.0, 120.0) if opens else 0.0

    def _ripple(self, mote: int, seconds: float, size: float) -> float:
        """Return noise that changes slowly: random points, joined smoothly."""
        place = seconds / RIPPLE_SECONDS
        before = math.floor(place)
        share = place - before
        smooth = share * share * (3 - 2 * share)
        left, right = (_point(self._seed, mote, before + each) for each in (0, 1))
        return size * (left + (right - left) * smooth)


@lru_cache(maxsize=65_536)
def _point(seed: int, mote: int, place: int) -> float:
    return random.Random(f"{seed}/{mote}/ripple/{place}").gauss(0.0, 1.0)  # noqa: S311 - a simulation, not a secret


def outside_c(seconds: float) -> float:
    """Return the temperature outside: 8 degC, 6 more in the afternoon."""
    return 8.0 + 6.0 * math.cos((seconds / DAY_SECONDS - 15 / 24) * math.tau)


def light_lx(seconds: float) -> float:
    """Return the light in a room: the sun through a window, and lamps in office hours."""
    hour = seconds / 3600 % 24
    sun = 600.0 * max(0.0, math.sin((hour - 6) / 12 * math.pi))
    lamps = 350.0 if 8 <= hour < 18 else 0.0  # noqa: PLR2004 - office hours
    return sun + lamps

"""The surroundings of a mote: its temperature, and the sun on its panel."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from firmware_sim.power.battery import RATED_C

DAY_SECONDS = 86_400.0
YEAR_DAYS = 365.25
TILT_DEGREES = 23.44
"""Tilt of the earth's axis."""
ABSOLUTE_ZERO_C, MOST_DEGREES = -273.15, 200.0
"""No place has a mean temperature below or above, or changes by more."""
WARMEST_HOUR = 15.0
WARMEST_DAY = 200.0
"""About the 19th of July."""

Floats = npt.NDArray[np.float64]


class Climate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Temperature by day and season: a mean, and the swing to either side."""

    mean_c: Annotated[float, Meta(ge=ABSOLUTE_ZERO_C, le=MOST_DEGREES)] = RATED_C
    day_swing_c: Annotated[float, Meta(ge=0, le=MOST_DEGREES)] = 0.0
    season_swing_c: Annotated[float, Meta(ge=0, le=MOST_DEGREES)] = 0.0

    def temperature_c(self, seconds: float) -> float:
        """Return the temperature at a time since the first of January, 00:00."""
        hour = seconds % DAY_SECONDS / 3600
        day = seconds / DAY_SECONDS
        return (
            self.mean_c
            + self.day_swing_c * math.cos((hour - WARMEST_HOUR) / 24 * math.tau)
            + self.season_swing_c * math.cos((day - WARMEST_DAY) / YEAR_DAYS * math.tau)
        )


class Solar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flat panel.

    Parameters
    ----------
    peak_mw
        Power into the battery with the sun overhead and no cloud.
    latitude_deg
        Its latitude.
    cloud_share
        Mean share of the light that clouds take; each day has its own.
    """

    peak_mw: Annotated[float, Meta(ge=0)]
    latitude_deg: Annotated[float, Meta(ge=-90, le=90)] = 40.0
    cloud_share: Annotated[float, Meta(ge=0, lt=1)] = 0.4

    def clear_sky_mw(self, seconds: float) -> float:
        """Return the power under a clear sky at a time since the first of January, 00:00 (solar time)."""
        return self.peak_mw * max(0.0, sine_of_elevation(seconds, self.latitude_deg))

    def day_clearness(self, generator: np.random.Generator) -> float:
        """Draw the share of the light that a day lets through."""
        if self.cloud_share == 0:
            return 1.0
        return float(generator.beta(2 * (1 - self.cloud_share), 2 * self.cloud_share))

    def mean_mw(self) -> float:
        """Return the mean over a year."""
        hours = np.arange(0.0, YEAR_DAYS * DAY_SECONDS, 3600.0)
        return float(np.mean([self.clear_sky_mw(each) for each in hours])) * (1 - self.cloud_share)


def sine_of_elevation(seconds: float, latitude_deg: float) -> float:
    """Return the sine of the sun's elevation; negative at night."""
    day = seconds / DAY_SECONDS
    declination = -math.radians(TILT_DEGREES) * math.cos(math.tau * (day + 10) / YEAR_DAYS)
    hour_angle = math.tau * (seconds % DAY_SECONDS / DAY_SECONDS - 0.5)
    latitude = math.radians(latitude_deg)
    return math.sin(latitude) * math.sin(declination) + math.cos(latitude) * math.cos(declination) * math.cos(
        hour_angle
    )

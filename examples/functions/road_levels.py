"""Functions for queries about roads; docs/how-to/write-functions.md shows how they are created and called.

A function is given whole columns, and returns one as long. What it returns for a row depends on that row only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import pyarrow as pa

LIMITS_MPH = pl.Series([15.0, 30.0, 45.0, 55.0, 65.0])
LETTERS = pl.Series(["F", "E", "D", "C", "B", "A"])


def service_level(speed: pl.Series) -> pl.Series:
    """Return the level of service at a speed in mph, from A, free, to F, a jam; NULL where the speed is NULL."""
    reached = LIMITS_MPH.search_sorted(speed.fill_null(0.0), side="right")
    return LETTERS.gather(reached).set(speed.is_null(), None)


def braking_feet(speed: pl.Series, friction: pl.Series) -> pl.Series:
    """Return the way in feet in which a car stops from a speed in mph; no friction gives NULL, as it is infinite."""
    return speed**2 / (30 * friction)


def is_number(sensor: pa.Array) -> pa.Array:
    """Return whether a sensor is called by a number: of arrays of Arrow."""
    import pyarrow.compute as pc  # noqa: PLC0415 - only where it is called

    return pc.utf8_is_decimal(sensor)

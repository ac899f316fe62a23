"""Columns of instants as the JSON in which they are published, formatted by arithmetic over whole columns.

Each value equals :func:`cluster.fjord.batch.instant_text`. The calendar is computed as days and eras of 400 years, in
which March is the first month, so that a leap day is the last day of its year.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

Integers: TypeAlias = "NDArray[np.int64]"

NEVER = 2**62
"""As cluster.fjord.batch has it, which imports more than a publisher needs."""
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last instant of the years 1 to 9999; others are written as numbers."""
_TEMPLATE = np.frombuffer(b'"0000-00-00T00:00:00.000000Z"', np.uint8)
_TWO_DIGITS = np.array([[ord(digit) for digit in f"{number:02}"] for number in range(100)], np.uint8)
_DAYS_TO_1970, _DAYS_AN_ERA = 719_468, 146_097
"""From the first of March of the year 0."""
_SECOND_US, _DAY_SECONDS = 1_000_000, 86_400


def instant_column(instants: Integers) -> pa.BinaryArray:
    """Return instants as JSON: texts in ISO 8601 with microseconds and ``Z``, or null for :data:`NEVER` and beyond.

    Parameters
    ----------
    instants
        Microseconds since 1970.

    Examples
    --------
    >>> [each.as_py() for each in instant_column(np.array([1_330_560_000_000_000, NEVER, 2**61]))]
    [b'"2012-03-01T00:00:00.000000Z"', b'null', b'"2305843009213693952us"']
    """
    written = (instants >= FIRST_US) & (instants <= LAST_US)
    texts = _texts(instants if written.all() else np.where(written, instants, 0))
    if written.all():
        return texts
    numbers = pa.array(instants).cast(pa.string()).cast(pa.binary())
    others = pc.binary_join_element_wise(b'"', numbers, b'us"', b"")
    others = pc.if_else(pa.array(instants >= NEVER), pa.scalar(b"null"), others)
    return pc.if_else(pa.array(written), texts, others)


def _texts(instants: Integers) -> pa.BinaryArray:
    seconds, micros = np.divmod(instants, _SECOND_US)
    days, second = np.divmod(seconds, _DAY_SECONDS)
    year, month, day = _dates(days)
    octets = np.tile(_TEMPLATE, (len(instants), 1))
    for place, numbers in (
        (1, year // 100), (3, year % 100), (6, month), (9, day),
        (12, second // 3_600), (15, second // 60 % 60), (18, second % 60),
        (21, micros // 10_000), (23, micros // 100 % 100), (25, micros % 100),
    ):  # fmt: skip
        octets[:, place : place + 2] = _TWO_DIGITS[numbers]
    ends = np.arange(len(instants) + 1, dtype=np.int32) * len(_TEMPLATE)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.binary(), len(instants), buffers)


def _dates(days: Integers) -> tuple[Integers, Integers, Integers]:
    """Return years, months and days of the month of days since 1970."""
    distinct, places = np.unique(days, return_inverse=True)  # rows of one commit lie close together
    eras, day_of_era = np.divmod(distinct + _DAYS_TO_1970, _DAYS_AN_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = np.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)  # noqa: PLR2004 - January on
    year = year_of_era + 400 * eras + (month <= 2)  # noqa: PLR2004 - January and February end a year
    return year[places], month[places], day[places]

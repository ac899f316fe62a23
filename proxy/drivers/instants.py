"""Instants as devices write them: since 1970 in some unit, as ISO 8601, or as a time of day.

Pure. A device's clock may be wrong: what is far from the time of receipt is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from protocols.wire.programs import SECOND_US
from proxy.drivers.payloads import MISSING, PayloadError, finder

HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US
_LARGEST_US = 2**62
_LONGEST = 64
_SHOWN = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIGITS = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?", re.ASCII)
_TIME_OF_DAY = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?", re.ASCII)


class TimeForm(StrEnum):
    """How a device writes the time."""

    SECONDS = "seconds"
    """Since 1970-01-01T00:00:00Z, with or without a fraction."""
    MILLISECONDS = "milliseconds"
    MICROSECONDS = "microseconds"
    ISO8601 = "iso8601"
    TIME_OF_DAY = "time_of_day"
    """``07:30:00``, on the day that brings it nearest to its receipt."""
    AUTO = "auto"
    """Any of these by its looks; a number is of seconds, milliseconds or microseconds if that puts it after 2001."""


_UNITS_US = {TimeForm.SECONDS: 1_000_000.0, TimeForm.MILLISECONDS: 1_000.0, TimeForm.MICROSECONDS: 1.0}
_MAGNITUDES = {
    TimeForm.SECONDS: (10**9, 10**10),
    TimeForm.MILLISECONDS: (10**12, 10**13),
    TimeForm.MICROSECONDS: (10**15, 10**16),
}
"""Numbers of each unit from 2001 to 2286: no number fits two of them."""


class Implausible(StrEnum):
    """What becomes of a message whose instant cannot be believed, read or found."""

    REJECT = "reject"
    RECEIPT = "receipt"
    """Its values are stamped with the time of their receipt."""


@dataclass(frozen=True, slots=True)
class TimeMapping:
    """The instant of the values.

    Parameters
    ----------
    path, form
        Where it is, and how it is written.
    zone
        Of times that have none.
    implausible
        What becomes of a message whose instant cannot be used.
    plausible_us
        No instant is believed that is further from its receipt than this, before it or after it.
    max_ahead_us
        No instant is believed that is further ahead than this.
    find
        Returns what is at the path of a payload; :data:`MISSING` for nothing.
    unit_us
        Of whole numbers; 0 if that is not known before.
    """

    path: tuple[str, ...]
    form: TimeForm
    zone: tzinfo = UTC
    implausible: Implausible = Implausible.REJECT
    plausible_us: int = 366 * DAY_US
    max_ahead_us: int = 60 * SECOND_US
    find: Callable[[Any], Any] = field(init=False, repr=False, compare=False)
    unit_us: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "find", finder(self.path))
        object.__setattr__(self, "unit_us", int(_UNITS_US.get(self.form, 0)))

    def stamp_us(self, payload: Any, received_us: int) -> int | None:
        """Return the instant in a payload; None if its values are to be stamped with the time of their receipt.

        Raises
        ------
        PayloadError
            With reason ``missing``, ``time``, ``clock`` or ``implausible``.
        """
        found = self.find(payload)
        if found.__class__ is int and self.unit_us:  # most instants
            distance_us = found * self.unit_us - received_us
            if -self.plausible_us <= distance_us <= min(self.plausible_us, self.max_ahead_us):
                return received_us + distance_us
        try:
            return self._believed(self.instant_us(payload, received_us), received_us)
        except PayloadError:
            if self.implausible is Implausible.RECEIPT:
                return None
            raise

    def instant_us(self, payload: Any, received_us: int) -> int:
        """Return the instant in a payload, whether it can be believed or not.

        Raises
        ------
        PayloadError
            With reason ``missing`` or ``time``.
        """
        found = self.find(payload)
        if found is MISSING or found is None:
            raise PayloadError("missing", f"the time (at {'.'.join(self.path)}) is missing")
        try:
            return self._read(found, received_us)
        except (TypeError, ValueError, OverflowError) as error:
            raise PayloadError("time", f"{str(found)[:_SHOWN]!r} is not {_WORDS[self.form]}") from error

    def _believed(self, instant_us: int, received_us: int) -> int:
        distance_us = instant_us - received_us
        if abs(distance_us) > self.plausible_us:
            side = "after" if distance_us > 0 else "before"
            hours = abs(distance_us) // HOUR_US
            raise PayloadError("implausible", f"values are stamped {hours:,} hours {side} their receipt")
        if distance_us > self.max_ahead_us:
            ahead = distance_us / SECOND_US
            raise PayloadError("clock", f"values are stamped {ahead:.1f} s ahead of the proxy's clock")
        return instant_us

    def _read(self, found: Any, received_us: int) -> int:
        form = self.form
        if isinstance(found, str):
            found = found.strip()
            if len(found) > _LONGEST:
                raise ValueError("too long")
            if _DIGITS.fullmatch(found):
                found = float(found) if "." in found else int(found)
            elif form is TimeForm.TIME_OF_DAY or (form is TimeForm.AUTO and _TIME_OF_DAY.fullmatch(found)):
                return self._time_of_day(found, received_us)
            elif form in {TimeForm.ISO8601, TimeForm.AUTO}:
                return self._written(datetime.fromisoformat(found), received_us)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise TypeError("no number")
        if form is TimeForm.AUTO:
            fitting = (each for each, (low, high) in _MAGNITUDES.items() if low <= found < high)
            form = next(fitting, TimeForm.AUTO)
        unit_us = _UNITS_US.get(form)
        # Comparing before multiplying keeps huge numbers and infinity out.
        if unit_us is None or not abs(found) <= _LARGEST_US / unit_us:
            raise ValueError("out of range")
        return round(found * int(unit_us))

    def _written(self, instant: datetime, received_us: int) -> int:
        if instant.tzinfo is not None:
            return (instant - _EPOCH) // _MICROSECOND
        # When clocks are set back, an hour is there twice: the one is meant that is nearer to the receipt.
        both = (instant.replace(tzinfo=self.zone, fold=fold) for fold in (0, 1))
        return min(((each - _EPOCH) // _MICROSECOND for each in both), key=lambda us: abs(us - received_us))

    def _time_of_day(self, text: str, received_us: int) -> int:
        if _TIME_OF_DAY.fullmatch(text) is None:
            raise ValueError("no time of day")
        shown = time.fromisoformat(text.zfill(len(text) + 1) if text[1] == ":" else text)
        today = (_EPOCH + received_us * _MICROSECOND).astimezone(self.zone).date()
        days = (datetime.combine(today + timedelta(days=day), shown) for day in (-1, 0, 1))
        return min((self._written(day, received_us) for day in days), key=lambda us: abs(us - received_us))


_WORDS = {
    **{form: f"a number of {form.value}" for form in _UNITS_US},
    TimeForm.ISO8601: "an ISO 8601 time",
    TimeForm.TIME_OF_DAY: "a time of day",
    TimeForm.AUTO: "a time of a known form after 2001",
}


def parse_zone(text: str) -> tzinfo:
    """Return the time zone written ``+01:00`` or ``Europe/Berlin``.

    Raises
    ------
    ValueError
        If it has another form, or is not known on this machine.
    """
    found = re.fullmatch(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])", text)
    if found is not None:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"{text[:_SHOWN]!r} is not a known time zone; write Europe/Berlin, +01:00 or -05:30"
        ) from error

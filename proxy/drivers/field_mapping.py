"""How values of a stream's fields are read from a JSON payload, and converted."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

from protocols.errors import SchemaError
from protocols.wire.packets import SampleValue
from protocols.wire.streams import Field, FieldType, check_value
from proxy.drivers.payloads import MISSING, PayloadError, look_up

LONGEST_TEXT = 1024
_LARGEST_US = 2**62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """One field.

    Parameters
    ----------
    field
        Of the stream.
    path
        Where its value is.
    optional
        Whether it may be missing; it is NULL then.
    scale, offset
        Real fields: the value is the device's number times `scale`, plus `offset`.
    true, false
        Boolean fields: the words of the device for JSON's own.
    """

    field: Field
    path: tuple[str, ...]
    optional: bool = False
    scale: float = 1.0
    offset: float = 0.0
    true: SampleValue = True
    false: SampleValue = False

    def value(self, payload: Any) -> SampleValue:
        """Return the field's value in a payload.

        Raises
        ------
        PayloadError
            With reason ``missing`` or ``type``.
        """
        where = f"{self.field.name!r} (at {'.'.join(self.path) or 'the payload itself'})"
        found = look_up(payload, self.path)
        if found is MISSING:
            if self.optional:
                return None
            raise PayloadError("missing", f"field {where} is missing", hint="set optional = true if it may be")
        if found is None:
            return None
        if self.field.type is FieldType.BOOLEAN:
            return self._boolean(found, where)
        try:
            value = check_value(self.field, found)
        except (SchemaError, OverflowError) as error:
            raise PayloadError("type", f"field {where}: {error}") from error
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise PayloadError("type", f"field {where} has {len(value):,} characters, the limit is {LONGEST_TEXT:,}")
        if self.field.type is FieldType.REAL and isinstance(value, float):
            value = value * self.scale + self.offset
            if not math.isfinite(value):
                raise PayloadError("type", f"field {where} is not a finite number")
        return value

    def _boolean(self, found: Any, where: str) -> bool:
        for word, meaning in ((self.true, True), (self.false, False)):
            if type(found) is type(word) and found == word:
                return meaning
        raise PayloadError("type", f"field {where} is {str(found)[:40]!r}, neither {self.true!r} nor {self.false!r}")


class TimeForm(StrEnum):
    """How a device writes the time."""

    SECONDS = "seconds"
    """Since 1970-01-01T00:00:00Z, with or without a fraction."""
    MILLISECONDS = "milliseconds"
    ISO8601 = "iso8601"


@dataclass(frozen=True, slots=True)
class TimeMapping:
    """The instant of the values.

    Parameters
    ----------
    path, form
        Where it is, and how it is written.
    zone
        Of ISO 8601 times that have none.
    """

    path: tuple[str, ...]
    form: TimeForm
    zone: timezone = UTC

    def instant_us(self, payload: Any) -> int:
        """Return the instant in a payload.

        Raises
        ------
        PayloadError
            With reason ``missing`` or ``time``.
        """
        found = look_up(payload, self.path)
        if found is MISSING or found is None:
            raise PayloadError("missing", f"the time (at {'.'.join(self.path)}) is missing")
        if self.form is TimeForm.ISO8601:
            return self._written(found)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise PayloadError("time", f"{str(found)[:40]!r} is not a number of {self.form.value}")
        unit_us = 1_000_000 if self.form is TimeForm.SECONDS else 1_000
        # Comparing before multiplying keeps huge numbers and infinity out.
        if not abs(found) <= _LARGEST_US / unit_us:
            raise PayloadError("time", f"{str(found)[:40]} {self.form.value} are out of range")
        return round(found * unit_us)

    def _written(self, found: Any) -> int:
        try:
            instant = datetime.fromisoformat(found)
            if instant.tzinfo is None:
                instant = instant.replace(tzinfo=self.zone)
            return (instant - _EPOCH) // _MICROSECOND
        except (TypeError, ValueError, OverflowError) as error:
            raise PayloadError("time", f"{str(found)[:40]!r} is not an ISO 8601 time") from error


def parse_zone(text: str) -> timezone:
    """Return the time zone written ``+01:00``.

    Raises
    ------
    ValueError
        If it has another form.
    """
    found = re.fullmatch(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time zone; write +01:00 or -05:30")
    offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return timezone(-offset if found[1] == "-" else offset)

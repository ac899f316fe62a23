"""How values and instants of a stream's fields are read from a payload, checked and converted. Pure.

**Instants as devices write them: since 1970 in some unit, as ISO 8601, or as a time of day.**

A device's clock may be wrong: what is far from the time of receipt is not believed.

A value that cannot be used costs its field only: it is NULL there, and counted by one of these reasons.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from dataclasses import field as default
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from protocols.errors import SchemaError
from protocols.wire.packets import SampleValue
from protocols.wire.programs import SECOND_US
from protocols.wire.streams import Field, FieldType, check_value
from proxy.drivers.payloads import MISSING, NOT_A_NUMBER, PayloadError, finder

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


LONGEST_TEXT = 1024
_LONGEST_NUMBER = 64
_WITH_POINT = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?", re.ASCII)
_WITH_COMMA = re.compile(r"[-+]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+)(,[0-9]+)?", re.ASCII)


class FieldKind(StrEnum):
    """What the values of a field are."""

    LEVEL = "level"
    """What is measured: the next value may be any other."""
    EVENT = "event"
    """What happens: each change counts, however short it lasts."""
    COUNTER = "counter"
    """What only grows, until the device begins anew or its counter is full."""


class ValueFault(StrEnum):
    """Why a field is NULL although the message has a value for it."""

    BROKEN = "field_broken"
    """It is of another type, or no number."""
    OUT_OF_RANGE = "field_out_of_range"
    """It is outside of the valid range."""
    NO_VALUE = "field_no_value"
    """It is one of the numbers that the device sends for lack of a value."""
    MISMATCH = "field_mismatch"
    """The stream has another type or unit for this field."""


@dataclass(frozen=True, slots=True)
class FieldRules:
    """What is known of a field beyond its type.

    Parameters
    ----------
    kind
        What its values are.
    modulus
        Counters: the number at which the device's own counter begins again at 0; None if only resets make it smaller.
    low, high
        The valid range of the number as the device sends it, both included; None for no bound.
    no_value
        Numbers that the device sends for lack of a value.
    default
        Its value where the message has none; :data:`MISSING` for none.
    decimal_comma
        Whether numbers in texts have a decimal comma, and points between groups of three digits.
    """

    kind: FieldKind = FieldKind.LEVEL
    modulus: int | float | None = None
    low: float | None = None
    high: float | None = None
    no_value: tuple[float, ...] = ()
    default: SampleValue = MISSING
    decimal_comma: bool = False


NO_RULES = FieldRules()


class FaultyValueError(Exception):
    """A value that costs its field."""

    def __init__(self, fault: ValueFault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail


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
    rules
        What else is known of it.
    find
        Returns its value in a payload; :data:`MISSING` if there is none.
    as_it_is
        The class of JSON's values that only have to be checked for their size; None if more is to be done.
    """

    field: Field
    path: tuple[str, ...]
    optional: bool = False
    scale: float = 1.0
    offset: float = 0.0
    true: SampleValue = True
    false: SampleValue = False
    rules: FieldRules = NO_RULES
    find: Callable[[Any], Any] = default(init=False, repr=False, compare=False)
    as_it_is: type | None = default(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "find", finder(self.path))
        object.__setattr__(self, "as_it_is", self._class_as_it_is())

    def raw(self, found: Any) -> SampleValue:
        """Return the field's value as the device has it, before it is scaled.

        Raises
        ------
        FaultyValueError
            If it cannot be used.
        """
        if found is None:
            return None
        if found == NOT_A_NUMBER:
            raise FaultyValueError(ValueFault.BROKEN, f"{self._where} is not a number")
        if self.field.type is FieldType.BOOLEAN:
            return self._boolean(found)
        numeric = self.field.type in {FieldType.INTEGER, FieldType.REAL}
        try:
            value = check_value(self.field, self._number(found) if numeric and isinstance(found, str) else found)
        except (SchemaError, OverflowError, ValueError) as error:
            raise FaultyValueError(ValueFault.BROKEN, f"{self._where}: {str(error)[:200]}") from error
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            detail = f"{self._where} has {len(value):,} characters, the limit is {LONGEST_TEXT:,}"
            raise FaultyValueError(ValueFault.BROKEN, detail)
        if numeric and isinstance(value, int | float):
            self._check_number(value)
        return value

    def scaled(self, value: SampleValue) -> SampleValue:
        """Return a value in the field's unit; NULL for one that is no finite number then."""
        if self.scale == 1 and self.offset == 0:
            return value
        if self.field.type is FieldType.REAL and isinstance(value, int | float):
            value = value * self.scale + self.offset
            return value if math.isfinite(value) else None
        return value

    def _class_as_it_is(self) -> type | None:
        rules = self.rules
        match self.field.type:
            case FieldType.TEXT:
                return str
            case FieldType.BOOLEAN:
                return bool if self.true is True and self.false is False else None
            case numeric:
                if rules.no_value or (rules.modulus, rules.low, rules.high) != (None, None, None):
                    return None
                return int if numeric is FieldType.INTEGER else float

    @property
    def _where(self) -> str:
        return f"{self.field.name!r} (at {'.'.join(self.path) or 'the payload itself'})"

    def _number(self, text: str) -> int | float:
        text = text.strip()
        shape = _WITH_COMMA if self.rules.decimal_comma else _WITH_POINT
        if len(text) > _LONGEST_NUMBER or shape.fullmatch(text) is None:
            raise ValueError(f"{text[:_SHOWN]!r} is not a number")
        if self.rules.decimal_comma:
            text = text.replace(".", "").replace(",", ".")
        return int(text) if self.field.type is FieldType.INTEGER else float(text)

    def _check_number(self, value: float) -> None:
        rules = self.rules
        if not math.isfinite(value):
            raise FaultyValueError(ValueFault.BROKEN, f"{self._where} is not a finite number")
        if value in rules.no_value:
            raise FaultyValueError(ValueFault.NO_VALUE, f"{self._where} is {value}, which stands for no value")
        out_of_range = (rules.low is not None and value < rules.low) or (rules.high is not None and value > rules.high)
        if out_of_range or (rules.modulus is not None and not 0 <= value < rules.modulus):
            raise FaultyValueError(ValueFault.OUT_OF_RANGE, f"{self._where} is {value}, which is out of its range")

    def _boolean(self, found: Any) -> bool:
        for word, meaning in ((self.true, True), (self.false, False)):
            if type(found) is type(word) and found == word:
                return meaning
        detail = f"{self._where} is {str(found)[:_SHOWN]!r}, neither {self.true!r} nor {self.false!r}"
        raise FaultyValueError(ValueFault.BROKEN, detail)


@dataclass(slots=True)
class Reading:
    """The values of one message.

    Parameters
    ----------
    values
        As the device has them, by field; a field that the message does not have is left out.
    faults
        Why fields are NULL although the message has values for them.
    """

    values: dict[str, SampleValue] = default(default_factory=dict)
    faults: list[FaultyValueError] = default(default_factory=list)


def read_fields(mappings: Iterable[FieldMapping], payload: Any) -> Reading:
    """Return the values of a payload.

    Raises
    ------
    PayloadError
        With reason ``missing`` if a field is missing that may not, ``type`` if a value is broken and there is no other.
    """
    reading = Reading({}, [])
    values = reading.values
    for mapping in mappings:
        found = mapping.find(payload)
        name, given = mapping.field.name, found.__class__
        # Most values. JSON has finite numbers only.
        if given is mapping.as_it_is and (given is float or _fits(found)):
            values[name] = found
            continue
        if found is MISSING and mapping.rules.kind is FieldKind.COUNTER:
            found = mapping.rules.default  # it is unwrapped, as others are
        if found is MISSING:
            if mapping.optional or mapping.rules.default is not MISSING:
                continue
            where = ".".join(mapping.path) or "the payload itself"
            hint = "set optional = true if it may be"
            raise PayloadError("missing", f"field {name!r} (at {where}) is missing", hint=hint)
        try:
            values[name] = mapping.raw(found)
        except FaultyValueError as fault:
            values[name] = None
            reading.faults.append(fault)
    if reading.faults:
        broken = next((each for each in reading.faults if each.fault is ValueFault.BROKEN), None)
        if broken is not None and all(value is None for value in values.values()):
            raise PayloadError("type", f"field {broken.detail}")
    return reading


def _fits(value: bool | int | str) -> bool:  # noqa: FBT001 - a value of JSON
    """Return whether a value of the field's own class is none too large, and no mark."""
    if value.__class__ is str:
        return len(value) <= LONGEST_TEXT and value != NOT_A_NUMBER
    return -(2**63) <= value < 2**63  # type: ignore[operator] # it is an integer, or a boolean

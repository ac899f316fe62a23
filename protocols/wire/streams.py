"""Stream schemas: the fields of a stream, their types and units, and how columns that proxies offer match them.

**Matching the columns that a proxy offers of a stream with those that the cluster has declared.**

Columns match by name without regard to case and order. Other offered columns are left out. A column that is missing, of
another type, sampled instead of fixed (or the other way round), or in another unit does not match: nothing is converted
on the way, since sensors compare and add up values themselves. A unit that only one side states is no mismatch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.errors import SchemaError
from protocols.wire.frames import Name, Value
from protocols.wire.names import IDENTIFIER_PATTERN, LONGEST_NAME, fault_of_identifier, fault_of_name

_SHOWN = 40
"""Letters of a value that an error message shows."""

RESERVED_PREFIX = "fjord_"
"""Field names that begin so belong to Fjord's own columns."""

LONGEST_UNIT = 32
MOST_FIELDS = 256

FieldName = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=IDENTIFIER_PATTERN)]


class FieldType(StrEnum):
    """Type of a value, named as in FjordSQL; each has one meaning on every machine.

    Fields have one of :data:`FIELD_TYPES`; the others exist in queries only.
    """

    BOOLEAN = "boolean"
    INTEGER = "integer"
    """64 bit, signed."""
    REAL = "real"
    """64 bit IEEE 754."""
    TEXT = "text"
    """Unicode."""
    TIMESTAMP = "timestamp"
    """An instant, in microseconds since 1970 (UTC); only computed, never a field's."""
    LOCAL_TIMESTAMP = "local_timestamp"
    """What a clock of some place shows, in microseconds since it showed 1970; only computed, never a field's."""
    INTERVAL = "interval"
    """A difference of instants, in microseconds; only computed, never a field's."""


FIELD_TYPES = (FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT)
"""The types that a field may have."""


class Field(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One field of a stream.

    Parameters
    ----------
    name
        As written in queries; see :mod:`protocols.wire.names`.
    type
        Type of its values.
    unit
        Unit of measure as text (``mph``, ``degC``), empty for none.
    fixed
        True if the value is a property of the mote (its position, its segment) and not sampled: it is announced once
        and never costs radio time.

    Raises
    ------
    SchemaError
        If its type is one of values that are only computed.
    """

    name: FieldName
    type: FieldType
    unit: Annotated[str, Meta(max_length=LONGEST_UNIT)] = ""
    fixed: bool = False

    def __post_init__(self) -> None:
        if self.type not in FIELD_TYPES:
            types = ", ".join(FIELD_TYPES)
            raise SchemaError(f"field {self.name!r} cannot be a {self.type.value}", hint=f"fields are {types}")


class StreamSchema(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Name and fields of a stream. The time stamp is not a field (papers/pipes_algebra.md section 0.8).

    Raises
    ------
    SchemaError
        If two fields have one name (compared without case), or a name is reserved or has letters that none may have.
    """

    name: Name
    fields: Annotated[tuple[Field, ...], Meta(min_length=1, max_length=MOST_FIELDS)]

    def __post_init__(self) -> None:
        _check_letters("stream", self.name, fault_of_name)
        seen: set[str] = set()
        for field in self.fields:
            _check_letters("field", field.name, fault_of_identifier)
            folded = field.name.casefold()
            if folded in seen:
                raise SchemaError(f"stream {self.name!r} has two fields named {field.name!r}")
            if folded.startswith(RESERVED_PREFIX):
                raise SchemaError(
                    f"field {field.name!r} of stream {self.name!r} has a reserved name",
                    hint=f"names that begin with {RESERVED_PREFIX!r} are Fjord's own",
                )
            seen.add(folded)

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of all fields, in order."""
        return tuple(field.name for field in self.fields)

    @property
    def sampled(self) -> tuple[Field, ...]:
        """The fields a mote has to sample."""
        return tuple(field for field in self.fields if not field.fixed)

    @property
    def fixed(self) -> tuple[Field, ...]:
        """The fields that are properties of the mote."""
        return tuple(field for field in self.fields if field.fixed)

    def field(self, name: str) -> Field:
        """Return the field called `name`.

        Raises
        ------
        SchemaError
            If there is none; names those there are.
        """
        for field in self.fields:
            if field.name == name:
                return field
        raise SchemaError(
            f"stream {self.name!r} has no field {name!r}", hint=f"its fields are {', '.join(self.field_names)}"
        )


def _check_letters(what: str, name: str, fault: Callable[[str], str | None]) -> None:
    """Raise if a name has letters that none may have; ASCII is checked while frames are decoded."""
    if not name.isascii() and (why := fault(name)) is not None:
        raise SchemaError(f"{what} {name!r} cannot have this name: {why}")


def check_value(field: Field, value: Value) -> Value:
    """Return `value` as `field` holds it; a whole number is taken for a real one.

    Raises
    ------
    SchemaError
        If the value is of another type or does not fit 64 bits.
    """
    if value is None:
        return None
    match field.type:
        case FieldType.REAL if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
            return float(value)
        case FieldType.INTEGER if isinstance(value, int) and not isinstance(value, bool):
            if -(2**63) <= value < 2**63:
                return value
        case FieldType.BOOLEAN if isinstance(value, bool):
            return value
        case FieldType.TEXT if isinstance(value, str):
            return value
        case _:
            pass
    raise SchemaError(f"field {field.name!r} holds {field.type.value}, not {_shorten(value)}")


def _shorten(value: Value) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


MOST_NAMED = 8
"""The most columns that a sentence names; of further ones it gives the number."""


@dataclass(frozen=True, slots=True)
class ColumnMismatch:
    """A declared column that is not offered as declared.

    Parameters
    ----------
    column
        As declared.
    declared, offered
        Its type and unit in FjordSQL; `offered` is None if no column has this name.
    """

    column: FieldName
    declared: str
    offered: str | None

    def __str__(self) -> str:
        offered = "not offered" if self.offered is None else f"offered as {self.offered}"
        return f"{self.column} is declared as {self.declared} and {offered}"


@dataclass(frozen=True, slots=True)
class ColumnMatch:
    """The result of matching offered columns with declared ones.

    Parameters
    ----------
    names
        The name in the offer by declared name, for all columns that match.
    mismatches
        Declared columns that do not match; if there are none, the offer fits.
    ignored
        Columns that are offered and not declared.
    """

    names: Mapping[FieldName, FieldName]
    mismatches: tuple[ColumnMismatch, ...] = ()
    ignored: tuple[FieldName, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every declared column is offered as declared."""
        return not self.mismatches

    def reasons(self) -> tuple[str, ...]:
        """Return why the offer does not fit, a sentence per column; empty if it does."""
        found = _some([str(each) for each in self.mismatches], "and {} more columns do not match")
        if any(each.offered is None for each in self.mismatches) and self.ignored:
            # Often the missing column is among them, under another name.
            found.append(f"offered and not declared: {', '.join(_some(self.ignored, 'and {} more'))}")
        return tuple(found)


@lru_cache(maxsize=4096)
def match_columns(declared: StreamSchema, offered: StreamSchema) -> ColumnMatch:
    """Match the columns of `offered` with those of `declared`.

    Examples
    --------
    >>> from protocols.wire.streams import FieldType
    >>> lane, speed = Field("lane", FieldType.INTEGER), Field("speed", FieldType.REAL)
    >>> loop = StreamSchema("roads", (Field("Speed", FieldType.REAL, "mph"), lane))
    >>> match_columns(StreamSchema("roads", (lane, speed)), loop).names["speed"]
    'Speed'
    >>> match_columns(StreamSchema("roads", (Field("lane", FieldType.REAL),)), loop).reasons()
    ('lane is declared as REAL and offered as INTEGER',)
    """
    by_folded = {field.name.casefold(): field for field in offered.fields}
    names: dict[FieldName, FieldName] = {}
    mismatches: list[ColumnMismatch] = []
    for field in declared.fields:
        found = by_folded.pop(field.name.casefold(), None)
        if found is not None and _matches(field, found):
            names[field.name] = found.name
        else:
            offer = None if found is None else words_of_column(found)
            mismatches.append(ColumnMismatch(field.name, words_of_column(field), offer))
    return ColumnMatch(MappingProxyType(names), tuple(mismatches), tuple(field.name for field in by_folded.values()))


def words_of_column(field: Field) -> str:
    """Return a column's type and unit as in CREATE STREAM: ``REAL UNIT 'mph'``."""
    unit = f" UNIT {field.unit!r}" if field.unit else ""
    return f"{field.type.value.upper()}{unit}{' FIXED' if field.fixed else ''}"


def _matches(declared: Field, offered: Field) -> bool:
    same_unit = not declared.unit or not offered.unit or declared.unit == offered.unit
    return same_unit and (declared.type, declared.fixed) == (offered.type, offered.fixed)


def _some(texts: Sequence[str], more: str) -> list[str]:
    shown = list(texts[:MOST_NAMED])
    return [*shown, more.format(len(texts) - MOST_NAMED)] if len(texts) > MOST_NAMED else shown


__all__ = ["ColumnMatch", "ColumnMismatch", "match_columns", "words_of_column"]

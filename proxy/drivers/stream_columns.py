"""The columns of a stream whose devices differ, or change: they may come and be absent, and nothing else.

Pure. A column that a stream has is never changed: a table may have it already, and queries compare its values. So a
device, or a file of drivers, with another type or unit for it has NULL there, and the difference is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocols.wire.column_matching import words_of_column
from protocols.wire.streams import MOST_FIELDS, Field, StreamSchema


@dataclass(frozen=True, slots=True)
class MergedColumns:
    """A stream's columns, and those of a device among them.

    Parameters
    ----------
    schema
        Of the stream: the columns that it had, then those that it gets.
    names
        The stream's name of each of the device's columns that fits.
    mismatches
        Why others do not fit, by the device's name.
    absent
        Columns of the stream that the device does not have.
    """

    schema: StreamSchema
    names: Mapping[str, str]
    mismatches: Mapping[str, str]
    absent: tuple[str, ...]


def merge_columns(known: StreamSchema, offered: StreamSchema, *, units_may_come: bool = False) -> MergedColumns:
    """Merge a device's columns into those of its stream.

    Parameters
    ----------
    known
        The stream as it is.
    offered
        The columns of a device, or of the file that describes it.
    units_may_come
        Whether a unit may be given to a column that has none. Where devices name their units themselves it may not: a
        unit that appears is another unit.

    Examples
    --------
    >>> from protocols.wire.streams import FieldType
    >>> degrees = Field("t", FieldType.REAL, "degC")
    >>> known = StreamSchema("rooms", (degrees,))
    >>> merged = merge_columns(known, StreamSchema("rooms", (Field("T", FieldType.REAL, "degF"),)))
    >>> merged.mismatches["T"]
    "stream rooms has t REAL UNIT 'degC', not REAL UNIT 'degF'"
    """
    columns = {field.name.casefold(): field for field in known.fields}
    names: dict[str, str] = {}
    mismatches: dict[str, str] = {}
    for field in offered.fields:
        folded = field.name.casefold()
        old = columns.get(folded)
        if old is None and len(columns) >= MOST_FIELDS:
            mismatches[field.name] = f"stream {known.name} has {MOST_FIELDS} columns already"
            continue
        if old is not None and not _fits(old, field, units_may_come=units_may_come):
            mismatches[field.name] = (
                f"stream {known.name} has {old.name} {words_of_column(old)}, not {words_of_column(field)}"
            )
            continue
        name = field.name if old is None else old.name
        unit = field.unit if old is None else old.unit or field.unit
        columns[folded] = Field(name, field.type, unit, field.fixed)
        names[field.name] = name
    had = {field.name.casefold() for field in offered.fields}
    absent = tuple(field.name for folded, field in columns.items() if folded not in had)
    return MergedColumns(StreamSchema(known.name, tuple(columns.values())), names, mismatches, absent)


def _fits(old: Field, new: Field, *, units_may_come: bool) -> bool:
    one_sided = units_may_come and (not old.unit or not new.unit)
    return (old.type, old.fixed) == (new.type, new.fixed) and (one_sided or old.unit == new.unit)


class StreamColumns:
    """The streams of a driver, each with all columns that it has seen."""

    def __init__(self, *, units_may_come: bool = False) -> None:
        self._units_may_come = units_may_come
        self._schemas: dict[str, StreamSchema] = {}

    def merge(self, offered: StreamSchema) -> MergedColumns:
        """Merge the columns of a device into its stream, which gets those that it lacks."""
        known = self._schemas.get(offered.name)
        merged = merge_columns(known or offered, offered, units_may_come=self._units_may_come)
        self._schemas[offered.name] = merged.schema
        return merged

    def schema_of(self, stream: str) -> StreamSchema | None:
        """Return the columns of a stream; None if it has none yet."""
        return self._schemas.get(stream)


__all__ = ["MergedColumns", "StreamColumns", "merge_columns"]

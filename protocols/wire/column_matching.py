"""Matching the columns that a proxy offers of a stream with those that the cluster has declared.

Columns match by name without regard to case and order. Other offered columns are left out. A column that is missing, of
another type, sampled instead of fixed (or the other way round), or in another unit does not match: nothing is converted
on the way, since sensors compare and add up values themselves. A unit that only one side states is no mismatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from protocols.wire.streams import Field, FieldName, StreamSchema

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

"""Samples become tuples: values in the order of a program become a row in the order of the stream's schema."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.errors import SchemaError
from protocols.frames import Value
from protocols.packets import Announcement
from protocols.programs import SamplingProgram
from protocols.streams import Field, FieldType, check_value

_EXACT: dict[FieldType, type] = {FieldType.REAL: float, FieldType.TEXT: str, FieldType.BOOLEAN: bool}


class RowDecoder:
    """Turns the samples of one mote and program into rows of its stream.

    Fixed fields take their values from the announcement; fields the program does not sample are NULL.

    Parameters
    ----------
    announcement
        What the mote is.
    program
        Under which the samples were taken.

    Raises
    ------
    SchemaError
        If the program samples a field the mote does not have.
    """

    def __init__(self, announcement: Announcement, program: SamplingProgram) -> None:
        names = announcement.stream.field_names
        self._template: list[Value] = [announcement.properties.get(name) for name in names]
        self._slots: list[tuple[int, type | None, Field]] = []
        for name in program.fields:
            field = announcement.stream.field(name)
            if field.fixed:
                raise SchemaError(f"field {name!r} is a property of the mote and cannot be sampled")
            self._slots.append((names.index(name), _EXACT.get(field.type), field))

    @property
    def blank(self) -> tuple[Value, ...]:
        """The row of a mote of which nothing was sampled: its fixed fields only."""
        return tuple(self._template)

    def row(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Return the row of a sample.

        Raises
        ------
        SchemaError
            If the number of values or the type of one is wrong.
        """
        if len(values) != len(self._slots):
            raise SchemaError(f"sample has {len(values)} values, its program samples {len(self._slots)} fields")
        row = self._template.copy()
        for value, (place, exact, field) in zip(values, self._slots, strict=True):
            row[place] = value if type(value) is exact else check_value(field, value)
        return tuple(row)


def check_properties(announcement: Announcement) -> None:
    """Check that the properties of a mote are values of its stream's fixed fields.

    Raises
    ------
    SchemaError
        If one is no fixed field, or of another type.
    """
    for name, value in announcement.properties.items():
        field = announcement.stream.field(name)
        if not field.fixed:
            raise SchemaError(f"property {name!r} of mote {announcement.mote!r} is a field that is sampled")
        check_value(field, value)

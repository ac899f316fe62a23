"""Samples become tuples: values in the order of a program become a row in the order of the stream's schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from protocols.errors import SchemaError
from protocols.wire.frames import Value
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import Field, FieldType, check_value

_KINDS: dict[FieldType, Any] = {
    FieldType.INTEGER: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None,
    FieldType.REAL: float | None,
    FieldType.TEXT: str | None,
    FieldType.BOOLEAN: bool | None,
}
"""The values that :func:`protocols.wire.streams.check_value` accepts, as types of msgspec."""
_MOST_STRUCTS = 1_024


class SampleValues(msgspec.Struct, array_like=True, gc=False):
    """The values of the samples of a packet. msgspec checks them ten times as fast as Python."""

    values: list[tuple[Value, ...]]


@lru_cache(maxsize=_MOST_STRUCTS)
def _struct_of(types: tuple[FieldType, ...]) -> type[SampleValues]:
    """Return the struct of samples of fields of these types."""
    values: Any = tuple.__class_getitem__(tuple(_KINDS[each] for each in types))
    struct: Any = msgspec.defstruct("SampleValues", [("values", list[values])], bases=(SampleValues,), gc=False)
    return cast("type[SampleValues]", struct)


class RowDecoder:
    """Turns the samples of one mote and program into rows of its stream.

    Fixed fields have the values of the announcement; fields that the program does not sample are NULL.

    Parameters
    ----------
    announcement
        Of the mote.
    program
        Under which the samples were taken.

    Raises
    ------
    SchemaError
        If the program samples a field the mote does not have.
    """

    def __init__(self, announcement: Announcement, program: SamplingProgram) -> None:
        names = announcement.stream.field_names
        self._blank: tuple[Value, ...] = tuple(announcement.properties.get(name) for name in names)
        self._fields: list[Field] = []
        places = list(range(len(names)))
        for name in program.fields:
            field = announcement.stream.field(name)
            if field.fixed:
                raise SchemaError(f"field {name!r} is a property of the mote and cannot be sampled")
            places[names.index(name)] = len(names) + len(self._fields)
            self._fields.append(field)
        self._struct = _struct_of(tuple(field.type for field in self._fields))
        self._fixed, self._arrange = self._blank, None
        before = len(names) - len(self._fields)
        if places == [*range(before), *range(len(names), len(names) + len(self._fields))]:
            self._fixed = self._blank[:before]  # sampled fields come last, in order
        else:
            self._arrange = _picker(places)

    @property
    def blank(self) -> tuple[Value, ...]:
        """The row of a mote without sampled values: its fixed fields only."""
        return self._blank

    def row(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Return the row of a sample; raises as :meth:`rows`."""
        return self.rows((tuple(values),))[0]

    def rows(self, samples: Sequence[tuple[Value, ...]]) -> tuple[tuple[Value, ...], ...]:
        """Return the rows of samples.

        Raises
        ------
        SchemaError
            If the number of values or the type of one is wrong.
        """
        try:
            given: Iterable[tuple[Value, ...]] = msgspec.convert((samples,), self._struct).values
        except (msgspec.ValidationError, OverflowError):
            given = [self._checked(values) for values in samples]  # raises an error that names the value
        fixed, arrange = self._fixed, self._arrange
        if arrange is None:
            return tuple([fixed + values for values in given])
        return tuple([arrange(fixed + values) for values in given])

    def _checked(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Check values one by one: NULL is of every type, and a whole number may stand for a real one."""
        if len(values) != len(self._fields):
            raise SchemaError(f"sample has {len(values)} values, its program samples {len(self._fields)} fields")
        return tuple(check_value(field, value) for field, value in zip(self._fields, values, strict=True))


def _picker(places: Sequence[int]) -> Callable[[tuple[Value, ...]], tuple[Value, ...]]:
    """Return a function that picks the values in these places."""
    if len(places) == 1:
        (place,) = places
        return lambda values: (values[place],)
    return itemgetter(*places)


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

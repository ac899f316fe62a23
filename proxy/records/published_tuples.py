"""Tuples that a device stamps at instants of its own: which devices make them, which changes of them count. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocols.wire.frames import Value
from protocols.wire.streams import FieldName, StreamSchema


class Publishing(NamedTuple):
    """How a driven device publishes.

    Parameters
    ----------
    freely
        Whether it does so by its own rules, whatever its program. Otherwise its driver sets how often it reports, and a
        query without SAMPLE reads the first tuple of each default period.
    event_fields
        The fields of which each change counts for a query without SAMPLE.
    """

    freely: bool
    event_fields: tuple[FieldName, ...] = ()


class FieldChanges:
    """The last known values of the fields of one device of which each change counts.

    Parameters
    ----------
    schema
        Of its stream.
    fields
        Which fields; those that the stream lacks are ignored.
    """

    def __init__(self, schema: StreamSchema, fields: Sequence[FieldName]) -> None:
        names = schema.field_names
        self._places = [names.index(each) for each in fields if each in names]
        self._known: dict[int, Value] = {}

    def found_in(self, rows: Sequence[tuple[Value, ...]]) -> tuple[bool, ...]:
        """Return which of these rows, in the order of their arrival, show a change; nothing if none does.

        The first value that is known of a field counts as a change; NULL does not.
        """
        if not self._places:
            return ()
        found = tuple([self._changes(row) for row in rows])
        return found if any(found) else ()

    def _changes(self, row: tuple[Value, ...]) -> bool:
        changed = False
        for place in self._places:
            value = row[place]
            if value is not None and (place not in self._known or self._known[place] != value):
                self._known[place] = value
                changed = True
        return changed

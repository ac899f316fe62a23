"""Where batches have the columns of their stream: found by name, once for all batches that have the same columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from protocols.errors import SchemaError
from protocols.wire.batches import (
    COMPLETENESS_FIELDS,
    DEVICE_MEASURES,
    EXPECTED_COLUMN,
    FINGERPRINT_COLUMN,
    PREVIOUS_COLUMN,
    PUBLISHED_FIELDS,
    START_COLUMN,
    aggregate_fields,
    measure_column,
    wire_fields,
)
from protocols.wire.packed_batches import NEVER_NULL, BufferLayout, PackedBatch, read_description
from protocols.wire.streams import (
    RESERVED_PREFIX,
    ColumnMatch,
    Field,
    FieldName,
    FieldType,
    StreamSchema,
    match_columns,
)

Header = tuple[tuple[str, FieldType, str], ...]
"""Name, type and unit of each column of a batch."""

MOST_LAYOUTS = 256
"""Of a stream, that are remembered."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a batch has the columns of its stream.

    Parameters
    ----------
    match
        How its columns match those of the stream.
    buffer
        Where the columns are in its buffer.
    places
        By stored column: the place of the batch's column; empty if they do not match.
    never_null
        Name and place of the columns that say that they may have NULL, and in which no row may.
    aggregates, completeness, published
        Whether it has the columns of aggregates, those that count missing samples, and those of published tuples.
    first_stamp
        How many bytes a row takes before its stamp.
    """

    match: ColumnMatch
    buffer: BufferLayout
    places: Mapping[FieldName, int]
    never_null: tuple[tuple[FieldName, int], ...] = ()
    aggregates: bool = False
    completeness: bool = False
    published: bool = False
    first_stamp: int = 0


class Layouts:
    """The layouts of the batches of one stream.

    Parameters
    ----------
    schema
        Of the stream.
    """

    def __init__(self, schema: StreamSchema) -> None:
        self._schema = schema
        self._of = lru_cache(maxsize=MOST_LAYOUTS)(partial(find_layout, schema))
        self._last: tuple[bytes, Layout] | None = None

    def mismatch(self, batch: PackedBatch) -> str | None:
        """Return why the rows of a batch cannot be stored as the stream's; None if they can, or are malformed anyway.

        The batch itself names its columns: it may be of an older offer than the last one.
        """
        if not batch.rows:
            return None
        try:
            found = self._of(batch.description)
        except SchemaError:
            return None
        return None if found.match.fits else mismatch_text(batch.proxy, self._schema.name, found.match)

    def of(self, batch: PackedBatch) -> Layout:
        """Return the layout of a batch that has rows, all of which can be converted.

        Raises
        ------
        SchemaError
            If the batch lacks columns of the stream, or has others of their names; or if it is malformed.
        """
        last = self._last
        if last is None or batch.description != last[0]:  # to compare is quicker than to hash
            last = self._last = batch.description, self._of(batch.description)
        found = last[1]
        if not found.match.fits:
            raise SchemaError(mismatch_text(batch.proxy, self._schema.name, found.match))
        for name, place in found.never_null:
            if found.buffer.present(batch.data, place, batch.rows):
                raise SchemaError(f"batch has a sample without {name}")
        return found


def find_layout(schema: StreamSchema, description: bytes) -> Layout:
    """Return the layout of batches whose columns are described so.

    Raises
    ------
    SchemaError
        If such a batch is malformed.
    """
    buffer = read_description(description)
    header = tuple((each.name, each.type, each.unit) for each in buffer.columns)
    found = _match(schema, header)
    if not found.fits:
        return Layout(found, buffer, {})
    there = {name: (place, kind) for place, (name, kind, _) in enumerate(header)}
    aggregates, completeness = FINGERPRINT_COLUMN in there, EXPECTED_COLUMN in there
    published = PREVIOUS_COLUMN in there
    names_in_batch = dict(found.names) | _names_of_measures(schema, found)
    fields = stored_fields(schema, aggregates=aggregates, completeness=completeness, published=published)
    places = {field.name: _place(there, names_in_batch.get(field.name, field.name), field) for field in fields}
    never_null = tuple((name, places[name]) for name in NEVER_NULL if places[name] in buffer.nullable)
    first_stamp = buffer.starts[places[START_COLUMN]]
    return Layout(found, buffer, places, never_null, aggregates, completeness, published, first_stamp)


def stored_fields(schema: StreamSchema, *, aggregates: bool, completeness: bool, published: bool) -> tuple[Field, ...]:
    """Return name and type of the columns that are stored, in order."""
    return (
        *wire_fields(schema),
        *(aggregate_fields(schema) if aggregates else ()),
        *(COMPLETENESS_FIELDS if completeness else ()),
        *(PUBLISHED_FIELDS if published else ()),
    )


def mismatch_text(proxy: str, stream: str, found: ColumnMatch) -> str:
    """Return in a sentence why the columns that a proxy sends are not those of the stream."""
    return f"proxy {proxy!r} sends stream {stream!r} with other columns: {'; '.join(found.reasons())}"


def _match(schema: StreamSchema, header: Header) -> ColumnMatch:
    """Return how the columns of a batch match those of the stream; raises SchemaError if they are malformed."""
    folded = [name.casefold() for name, _, _ in header]
    if len(set(folded)) != len(folded):
        doubled = next(name for name in folded if folded.count(name) > 1)
        raise SchemaError(f"batch has two columns {doubled!r}")
    own = {name for name, _, _ in header if name.casefold().startswith(RESERVED_PREFIX)}
    # A batch does not carry whether a column is fixed.
    fixed = {field.name.casefold(): field.fixed for field in schema.fields}
    offered = StreamSchema(
        schema.name,
        tuple(
            Field(name, kind, unit, fixed.get(name.casefold(), False)) for name, kind, unit in header if name not in own
        ),
    )
    if unknown := sorted(own - _own_columns(offered)):
        raise SchemaError(f"batch has a column {unknown[0]!r} that no stream has")
    return match_columns(schema, offered)


def _own_columns(offered: StreamSchema) -> frozenset[str]:
    measures = {measure_column(measure, field.name) for field in offered.fields for measure in DEVICE_MEASURES}
    own = (*wire_fields(offered)[:3], *aggregate_fields(offered), *COMPLETENESS_FIELDS, *PUBLISHED_FIELDS)
    return frozenset({field.name for field in own} | measures)


def _names_of_measures(schema: StreamSchema, found: ColumnMatch) -> dict[str, str]:
    """Return, by the stored column of a measure, the column in the batch, where the names differ."""
    return {
        measure_column(measure, field.name): measure_column(measure, found.names[field.name])
        for field in schema.sampled
        if found.names[field.name] != field.name
        for measure in DEVICE_MEASURES
    }


def _place(there: Mapping[str, tuple[int, FieldType]], name: str, field: Field) -> int:
    place, kind = there.get(name, (0, None))
    if kind is not field.type:
        has = "none" if kind is None else f"one of {kind.value}"
        raise SchemaError(f"batch should have a column {name!r} of {field.type.value} and has {has}")
    return place

"""What samples say about a stream's values: on it depends which sampling program is the cheapest. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.acquisition.observed import Observed
from protocols.wire.streams import FieldType, StreamSchema
from proxy.batching import WaitingTuple


def observe(observed: Observed, schema: StreamSchema, tuples: Sequence[WaitingTuple]) -> None:
    """Take note of the samples of one packet, from which nothing was left out."""
    for place, field in enumerate(schema.fields):
        if field.fixed or field.type is FieldType.TEXT:
            continue
        before: float | None = None
        for each in tuples:
            value = each.values[place]
            if isinstance(value, int | float) and (each.aggregated is None or each.aggregated.form is None):
                observed.see(field.name, float(value), before)
                before = float(value)

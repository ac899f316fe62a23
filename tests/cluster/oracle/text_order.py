"""Which queries keep the order in which tuples of one stream arrive: what a window by rows goes by at equal stamps."""

from __future__ import annotations

from tests.cluster.oracle.text_expressions import Scalar
from tests.cluster.oracle.text_forms import Nested, Query, Select, Stream, Zipped


def keeps_order(query: Query) -> bool:
    """Return whether tuples come as they do from one stream."""
    if (
        not isinstance(query, Select)
        or query.grouped
        or query.distinct
        or len(query.items) != 1
        or query.top is not None
        or query.ranked
        or (query.where and _asks(query.where))
    ):
        return False
    item = query.items[0]
    if isinstance(item, Zipped) or item.granule > 1:
        return False
    window = item.window
    if window is not None and not (window.kind == "RANGE" and window.size == window.slide == 1):
        return False
    source = item.source
    return isinstance(source, Stream) or (isinstance(source, Nested) and keeps_order(source.query))


def _asks(scalar: Scalar) -> bool:
    return scalar.query is not None or any(_asks(part) for part in scalar.parts)

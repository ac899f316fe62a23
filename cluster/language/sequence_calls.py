"""Functions over the tuples of a stream in the order of their stamps: what a :class:`Sequence` computes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocols.wire.streams import FieldType

SequenceFunction = Literal["lag", "lead", "first", "last", "count", "sum", "avg", "min", "max"]


class SequenceCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One function over the tuples of a key, in the order of their stamps.

    Parameters
    ----------
    name
        Name of the output column.
    function
        ``lag`` and ``lead`` give the value of the tuple that lies `rows` before or behind; the others are of a frame,
        which ends with the tuple itself or before it.
    argument
        The column that it reads; None only for ``COUNT(*)``.
    type, unit
        Of the result.
    rows
        How far away the tuple is, or how many tuples before it the frame has; None for a frame by time or of all.
    range_us
        How much older than the tuple those of its frame may be; None for a frame by count or of all.
    peers
        True if tuples of the same stamp are part of the frame even if they come behind in the order.
    default
        The column with the result where there is no tuple so far back; None for NULL.
    within_us
        How far apart the two tuples of ``lag`` and ``lead`` may be; None for any distance.
    known
        True if tuples with NULL do not count for ``first`` and ``last``.
    until_rows
        How many tuples before the tuple the last one of its frame is; of a frame by count, or of all.
    until_us
        How much older than the tuple those of its frame are at least; of a frame by time, or of all with `peers`.
    """

    name: str
    function: SequenceFunction
    argument: str | None
    type: FieldType
    unit: str = ""
    rows: Annotated[int, Meta(ge=0)] | None = None
    range_us: Annotated[int, Meta(ge=0)] | None = None
    peers: bool = False
    default: str | None = None
    within_us: Annotated[int, Meta(ge=0)] | None = None
    known: bool = False
    until_rows: Annotated[int, Meta(ge=0)] = 0
    until_us: Annotated[int, Meta(ge=0)] = 0

    @property
    def whole(self) -> bool:
        """True if its frame begins with the first tuple that ever came."""
        return self.function not in ("lag", "lead") and self.rows is None and self.range_us is None

    @property
    def reach_us(self) -> int | None:
        """How old the tuples may be that it needs; None for any age."""
        if self.function == "lead":
            return 0
        return self.within_us if self.function == "lag" else self.range_us

    @property
    def span_us(self) -> int:
        """How far it looks in time, back or ahead; 0 if time does not bound it."""
        return self.range_us or self.within_us or self.until_us

    @property
    def reach_rows(self) -> int:
        """How many tuples before one it needs, if their age does not bound them."""
        if self.reach_us is not None:
            return 0
        return max(1, self.until_rows) if self.rows is None else self.rows

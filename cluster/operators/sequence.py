"""Functions over the tuples of a stream in the order of their stamps (``LAG``, ``SUM(...) OVER``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal, final

import msgspec
from msgspec import Meta

from cluster.operators.characteristics import Characteristics, Expected, Measured, combinations
from cluster.operators.columns import Column, Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import CountsCopies, Instantaneous, Keyed, OneInput, WholeTuples
from cluster.operators.operation import Prompt, listed, own, signed, tuples_counted
from cluster.shared_nodes import remembered
from protocols.text.quantities import format_duration
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


@final
class Sequence(Keyed, CountsCopies, WholeTuples, Instantaneous, OneInput, frozen=True, tag="Sequence"):
    """Tuples, valid at their own instant only, each with what functions compute over those of its `keys` in order.

    The order is that of stamps; of equal stamps it is that of the columns of `ties`, with NULLs last.
    """

    written_as: ClassVar[str] = "OVER"
    keys: tuple[str, ...]
    ties: tuple[str, ...]
    calls: tuple[SequenceCall, ...]

    @property
    @remembered
    def schema(self) -> Schema:
        """The columns of the tuples, and what is computed."""
        return (*self.input.schema, *(Column(call.name, call.type, call.unit) for call in self.calls))

    @property
    def never_null(self) -> frozenset[str]:
        """Those of the tuples."""
        return self.input.never_null

    def describe(self) -> str:
        """Return the functions."""
        return sequence_words(self.calls, self.keys)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows; so many are kept as the calls reach."""
        del measured
        rows = max((call.reach_rows for call in self.calls), default=0) * combinations(self.keys)
        reach_us = max((call.reach_us or call.until_us for call in self.calls), default=0)
        return Expected(below[0], rows + reach_us * below[0].rate)

    def operation(self, lag_us: int | None = None) -> SequenceOperation:
        """Return what runs of it."""
        del lag_us
        return SequenceOperation(self.input.schema, self.keys, self.ties, self.calls)

    @remembered
    def reach_us(self) -> int:
        """Return that of the tuples, and the longest frame."""
        return self.input.reach_us() + _frame_us(self.calls)

    @remembered
    def published_us(self) -> int:
        """Return that of the tuples, and an instant."""
        return self.input.published_us() + 1

    @remembered
    def delay_us(self) -> int:
        """Return that of the tuples, and how far it looks ahead."""
        return self.input.delay_us() + _frame_us(call for call in self.calls if call.function == "lead")

    @property
    @remembered
    def full_after_us(self) -> int:
        """The longest frame after the tuples."""
        return self.input.full_after_us + max([call.span_us for call in self.calls], default=0)


@final
class SequenceOperation(Prompt, frozen=True, tag="Sequence"):
    """Rows with functions over those before and behind them, in order; fields as of the node."""

    columns: Schema
    keys: tuple[str, ...]
    ties: tuple[str, ...]
    calls: tuple[SequenceCall, ...]

    def describe(self) -> str:
        """Return one line about it."""
        return sequence_words(self.calls, own(self.keys))


def _frame_us(calls: Iterable[SequenceCall]) -> int:
    found = 1
    for call in calls:
        bound = call.within_us if call.function in ("lag", "lead") else call.range_us
        if bound is None:
            raise UnboundedPlanError(f"{call.function.upper()} over tuples without a bound of time (WITHIN, RANGE)")
        found = max(found, bound + 1)
    return found


def sequence_words(calls: tuple[SequenceCall, ...], keys: tuple[str, ...]) -> str:
    """Return one line about functions over tuples in order."""
    of_each = f" of each {listed(keys)}" if keys else ""
    return f"in order{of_each}: {listed(tuple(_call_words(call) for call in calls))}"


def _call_words(call: SequenceCall) -> str:
    argument = "*" if call.argument is None else call.argument
    if call.function in ("lag", "lead"):
        default = "" if call.default is None else f", {call.default}"
        within = "" if call.within_us is None else f" within {signed(call.within_us)}"
        return f"{call.function.upper()}({argument}, {call.rows}{default}){within}"
    known = " IGNORE NULLS" if call.known else ""
    return f"{call.function.upper()}({argument}{known}) {_frame_words(call)}"


def _frame_words(call: SequenceCall) -> str:
    if call.rows is not None:
        if call.until_rows:
            return f"from {call.rows} to {call.until_rows} tuples before"
        return f"of {tuples_counted(call.rows)} before and this one"
    end = format_duration(call.until_us) if call.until_us else ""
    if call.range_us is not None:
        begin = format_duration(call.range_us)
        return f"from {begin} to {end} before" if end else f"of the last {begin}"
    if call.until_rows:
        end = "1 tuple" if call.until_rows == 1 else tuples_counted(call.until_rows)
    return f"until {end} before" if end else "so far"

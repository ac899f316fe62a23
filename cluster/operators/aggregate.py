"""Groups and their aggregates (``GROUP BY``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

import msgspec

from cluster.operators.aggregate_functions import AGGREGATE_FUNCTIONS
from cluster.operators.characteristics import (
    Characteristics,
    Expected,
    Measured,
    aggregated,
    combinations,
    grouped,
    kept_by_aggregate,
    kept_by_groups,
    lasting,
    stepped,
)
from cluster.operators.columns import AggregateCall, Column, Schema
from cluster.operators.count_window import CountWindow, PartitionedWindow
from cluster.operators.families import Keyed, Snapshotwise
from cluster.operators.greatest_values import Greatest
from cluster.operators.node import Conditions, Need, lasts_us
from cluster.operators.operation import listed, readable
from cluster.operators.scalar_expressions import columns_of_all
from cluster.operators.time_window import TimeWindow
from cluster.shared_nodes import remembered


@final
class Aggregate(Keyed, Snapshotwise, frozen=True, tag="Aggregate"):
    """Aggregates per instant and combination of `keys`; nothing at an instant without tuples (section 0.7)."""

    written_as: ClassVar[str] = "an aggregate"
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]

    @property
    @remembered
    def schema(self) -> Schema:
        """The keys, and the aggregates."""
        by_name = {column.name: column for column in self.input.schema}
        calls = tuple(Column(call.name, call.type, call.unit) for call in self.calls)
        return tuple(by_name[key] for key in self.keys) + calls

    def describe(self) -> str:
        """Return aggregates and keys."""
        return aggregate_words(self.calls, self.keys)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return a row for each change of a group; with a window that moves, at each of its steps, or with each row."""
        del measured
        groups, (flow, *_) = combinations(self.keys), below
        kept = kept_by_groups(flow, groups) if self.keys else kept_by_aggregate(flow)
        window = self.input.below_filters
        if isinstance(window, TimeWindow) and window.slide_us > 1:
            return Expected(stepped(flow, groups), kept)
        if isinstance(window, CountWindow | PartitionedWindow):
            return Expected(lasting(flow, min(flow.distance * groups, flow.validity)), kept)
        return Expected(grouped(flow, groups) if self.keys else aggregated(flow), kept)

    def operation(self, lag_us: int | None = None) -> None:
        """Return nothing: it is more than one node."""
        del lag_us

    def multiplicity_sensitive(self, *, above: bool) -> tuple[bool, ...]:
        """Return whether any aggregate counts copies."""
        del above
        return (not all(ignores_copies(call) for call in self.calls),)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all tuples with the keys, and what the wanted aggregates read."""
        del conditions
        arguments = [scalar for call in self.calls if call.name in wanted for scalar in call.reads]
        yield self.input, frozenset(self.keys) | columns_of_all(arguments), ()

    @remembered
    def delay_us(self) -> int:
        """Return that of the input, and how long a row of a group lasts."""
        step_us = self.input.step_us
        return self.input.delay_us() + (lasts_us(self) if step_us is None else step_us)

    @property
    @remembered
    def never_null(self) -> frozenset[str]:
        """Counts, and the keys that are never NULL."""
        counts = {call.name for call in self.calls if call.function == "count"}
        return frozenset(counts | (self.input.never_null & set(self.keys)))

    def greatest_below(self, greatest: Greatest) -> tuple[Greatest, ...]:
        """Return those of the keys."""
        return ({name: most for name, most in greatest.items() if name in self.keys},)

    @property
    def single_row(self) -> bool:
        """Unless there are keys."""
        return not self.keys

    @property
    def unique_columns(self) -> frozenset[str]:
        """The keys."""
        return frozenset(self.keys)

    @property
    def duplicate_free(self) -> bool:
        """Yes."""
        return True


def ignores_copies(call: AggregateCall) -> bool:
    """Return whether an aggregate has the same value for a bag of tuples and for its set."""
    return call.distinct or AGGREGATE_FUNCTIONS[call.function].ignores_copies


def aggregate_words(calls: tuple[AggregateCall, ...], keys: tuple[str, ...]) -> str:
    """Return one line about an aggregate."""
    what = f" {listed(tuple(call_words(call) for call in calls))}" if calls else ""
    return f"aggregate{what}{f' by {listed(keys)}' if keys else ''}"


def call_words(call: AggregateCall) -> str:
    """Return one aggregate, with its name if that differs from the call."""
    if call.argument is None:
        plain = "COUNT(*)" if call.function == "count" else f"{call.function.upper()}()"
        # Aggregates that share panes have names that describe them in full.
        return plain if call.name in (call.function, f"fjord_{call.function}(*)") else f"{call.name} = {plain}"
    distinct = "DISTINCT " if call.distinct else ""
    share = "" if call.parameter is None else f", {call.parameter:g}"
    compared = "" if call.by is msgspec.UNSET else f", {readable(call.by)}"
    return f"{call.function.upper()}({distinct}{readable(call.argument)}{compared}{share}{call.joined})"

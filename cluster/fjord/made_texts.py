"""How many characters of long texts a plan makes and answers in a second: an upper estimate, before anything runs.

    SELECT LPAD(sensor, 9000) AS x FROM traffic WHERE LENGTH(RPAD(sensor, 500)) > 5        four tuples a second
           made: 4 * 9,000, answered: 4 * 9,000                made: 4 * 500

What an expression makes of a row counts once for each query group, whether or not it reaches an answer; an answer, for
each query. Conditions drop no rows, as in :mod:`cluster.fjord.made_rows`. Texts that are not long
(:data:`~cluster.fjord.text_widths.LONG_TEXT`) do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from cluster.fjord.made_rows import RowFlows, approximate, exact, known_at_rates
from cluster.fjord.row_flow import RowFlow
from cluster.fjord.text_widths import (
    LONG_TEXT,
    Widths,
    characters_made,
    long_texts,
    longest,
    widths_of_calls,
    widths_of_outputs,
)
from cluster.operators.columns import Scalar
from cluster.physical.nodes import Fragment, OperatorNode, PhysicalPlan, Subscriber
from cluster.physical.operations import GroupedFilter, MergeAggregate, PaneAggregate, PerQueryFilter, Project
from cluster.physical.successors import summed, summed_subscribers
from cluster.plan.called_functions import scalars_in
from cluster.scalars.texts import LONGEST_TEXT

_Known = tuple[tuple[str, int], ...]
"""Widths that can be compared."""


def characters_per_second(plan: PhysicalPlan, tuples_per_second: Mapping[str, float]) -> float:
    """Return how many characters of long texts a plan makes and answers in a second."""
    return approximate(summed(plan, _characters_per_second, tuples_per_second))


def characters_of(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> float:
    """Return how many characters of long texts a fragment makes and answers in a second."""
    texts = _Texts(fragment, RowFlows(fragment, tuples_per_second))
    return len(fragment.tally.groups) * texts.made() + texts.of_conditions() + texts.answered()


@known_at_rates
def _characters_per_second(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> int:
    return exact(characters_of(fragment, tuples_per_second))


def _known(widths: Widths) -> _Known:
    return tuple(sorted(widths.items()))


class _Texts:
    """The texts of a fragment at given flows of rows."""

    def __init__(self, fragment: Fragment, flows: RowFlows) -> None:
        self._fragment = fragment
        self._flows = flows
        self._widths: dict[str, Widths] = {}

    def made(self) -> float:
        """Return what the nodes make for one query group; widths are known from then on."""
        found = 0.0
        for node, flow in self._flows:
            below = self._below(node)
            self._widths[node.id] = below
            match node.operation:
                case MergeAggregate(calls=calls, keys=keys) | PaneAggregate(calls=calls, keys=keys):
                    # What their arguments make, first halves of aggregates have made.
                    joined = self._joined(node, flow, below)
                    found += flow.per_second * sum(long_texts(joined.values()))
                    kept = {key.name: below[key.name] for key in keys if key.name in below}
                    self._widths[node.id] = {**kept, **widths_of_calls(calls, below), **joined}
                case operation:
                    rows = max(flow.per_second, *(self._flows.of(each).per_second for each in node.inputs), 0.0)
                    found += rows * _made_by(scalars_in(operation), below)
                    if isinstance(operation, Project):
                        self._widths[node.id] = widths_of_outputs(operation.outputs, below)
        return found

    def of_conditions(self) -> float:
        """Return what the conditions of all query groups make."""
        filters = [each for each in self._fragment.nodes if isinstance(each.operation, GroupedFilter | PerQueryFilter)]
        if not filters:
            return 0.0
        below: dict[str, int] = {}
        for node in filters:
            below |= self._below(node)
        characters = summed_subscribers(self._fragment, _Conditions(_known(below)), of_groups=True)
        return characters * max(self._flows.of(each.inputs[0]).per_second for each in filters)

    def answered(self) -> float:
        """Return what is answered to all subscribers, with what their last operations make."""
        widths = self._widths[self._fragment.sink.id]
        subscribers = self._fragment.subscribers
        if not any(isinstance(each, Project) for each in subscribers[0].finish):
            characters = float(len(subscribers) * sum(long_texts(widths.values())))
            return characters * self._flows.answers.per_second
        called = {call.name: call.function == "string_agg" for call in self._fragment.tally.calls}
        keys = _known({name: width for name, width in widths.items() if name not in called})
        joined = max((widths.get(name, 0) for name, joins in called.items() if joins), default=0)
        # Rounded up, as a length that follows rates would have each subscriber looked at again whenever these change.
        rounded = min(1 << (joined - 1).bit_length(), LONGEST_TEXT) if joined > LONG_TEXT else 0
        return summed_subscribers(self._fragment, _Finish(keys, rounded)) * self._flows.answers.per_second

    def _below(self, node: OperatorNode) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in node.inputs:
            found |= self._widths[each]
        return found

    def _joined(self, node: OperatorNode, flow: RowFlow, below: Widths) -> dict[str, int]:
        """Return how long texts are that an aggregate joins: no more is joined than what comes, in each window."""
        rows, found = self._flows.of(node.inputs[0]), {}
        window = self._flows.window_of(node)
        in_windows = math.inf
        if window is not None and rows.per_tuple:
            in_windows = rows.per_second * max(flow.per_tuple / rows.per_tuple, 1.0)
            in_windows = max(in_windows, rows.valid * 1e6 / window.slide_us)
        for call in node.operation.calls if isinstance(node.operation, MergeAggregate | PaneAggregate) else ():
            if call.function == "string_agg" and call.argument is not None and flow.per_second:
                separator = "" if call.joining is msgspec.UNSET else call.joining.separator
                one = longest(call.argument.expression, below) + len(separator)
                found[call.name] = math.ceil(min(LONGEST_TEXT, in_windows * one / flow.per_second))
        return found


@dataclass(frozen=True, slots=True)
class _Conditions:
    """What the conditions of a subscriber make of a row with columns of these widths."""

    below: _Known

    def __call__(self, subscriber: Subscriber) -> int:
        return _made_by(scalars_in((subscriber.conditions, subscriber.choices)), dict(self.below))


@dataclass(frozen=True, slots=True)
class _Finish:
    """What a subscriber's last operations make of a row and answer, given the widths of keys and of joined texts."""

    keys: _Known
    joined: int

    def __call__(self, subscriber: Subscriber) -> int:
        widths: Widths = {**dict(self.keys), **widths_of_calls(subscriber.calls, {}, self.joined)}
        made = 0
        for operation in subscriber.finish:
            made += _made_by(scalars_in(operation), widths)
            if isinstance(operation, Project):
                widths = widths_of_outputs(operation.outputs, widths)
        return made + sum(long_texts(widths.values()))


def _made_by(scalars: Iterable[Scalar], below: Widths) -> int:
    return sum(characters_made(each.expression, below) for each in scalars)

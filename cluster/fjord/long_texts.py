"""How long the texts get that a query makes, and how many characters a second: upper estimates.

**How long the texts of a query's answers may get that it makes itself: an upper estimate, made before anything runs.**

    SELECT LPAD(sensor, 10000) AS a, UPPER(sensor) AS b        a: 10,000 characters, b: those of a column

A thousand of the former are ten million characters a row: few rows take as long to store and publish as very many.

**How many characters of long texts a plan makes and answers in a second: an upper estimate, before anything runs.**

    SELECT LPAD(sensor, 9000) AS x FROM traffic WHERE LENGTH(RPAD(sensor, 500)) > 5        four tuples a second
           made: 4 * 9,000, answered: 4 * 9,000                made: 4 * 500

What an expression makes of a row counts once for each query group, whether or not it reaches an answer; an answer, for
each query. Conditions drop no rows, as in :mod:`cluster.fjord.upper_estimates`. Texts that are not long
(:data:`~cluster.fjord.long_texts.LONG_TEXT`) do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from cluster.expressions.nodes import (
    Among,
    Between,
    Binary,
    Call,
    Cast,
    Chain,
    Column,
    Expression,
    Group,
    Like,
    Literal,
    Negative,
    Not,
)
from cluster.expressions.walks import from_below
from cluster.fjord.row_flow import RowFlow
from cluster.fjord.upper_estimates import RowFlows, approximate, exact, known_at_rates
from cluster.operators.columns import AggregateCall, Output, Scalar
from cluster.physical.nodes import Fragment, OperatorNode, PhysicalPlan, Subscriber
from cluster.physical.operations import (
    GroupedFilter,
    MergeAggregate,
    PaneAggregate,
    PartialAggregate,
    PerQueryFilter,
    Project,
)
from cluster.physical.successors import summed, summed_subscribers
from cluster.plan.names_read import scalars_in
from cluster.scalars import SCALAR_FUNCTIONS
from cluster.scalars.texts import LONGEST_TEXT
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

USUAL_TEXT = 20
"""Characters of a column that a stream brings."""
LONG_TEXT = 100
"""A text of more characters is long: up to so many, it takes hardly more time than any other value."""

_NO_TEXTS = frozenset(FieldType) - {FieldType.TEXT}

Widths = Mapping[str, int]
"""By column: how many characters it may have; columns that are missing are those of streams."""


def characters_of_answers(fragment: Fragment) -> int:
    """Return how many characters the texts of one answer may have that a fragment makes longer than streams bring."""
    known: dict[str, Widths] = {}
    for node in fragment.nodes:
        below: dict[str, int] = {}
        for each in node.inputs:
            below |= known[each]
        known[node.id] = _widths(node, below)
    widths = known[fragment.sink.id]
    for operation in fragment.subscribers[0].finish:
        if isinstance(operation, Project):
            widths = widths_of_outputs(operation.outputs, widths)
    return sum(widths.values())


def _widths(node: OperatorNode, below: Widths) -> Widths:
    match node.operation:
        case Project(outputs=outputs):
            return widths_of_outputs(outputs, below)
        case PartialAggregate(calls=calls) | MergeAggregate(calls=calls) | PaneAggregate(calls=calls):
            return {**below, **widths_of_calls(calls, below)}
        case _:
            return below


def widths_of_outputs(outputs: tuple[Output, ...], below: Widths) -> Widths:
    """Return the widths of what a projection computes of columns with these widths."""
    texts = (each for each in outputs if each.scalar.type is FieldType.TEXT)
    found = {each.name: longest(each.scalar.expression, below) for each in texts}
    return {name: characters for name, characters in found.items() if characters > USUAL_TEXT}


def widths_of_calls(calls: tuple[AggregateCall, ...], below: Widths, joined: int = LONGEST_TEXT) -> Widths:
    """Return the widths of what aggregates compute of columns with these widths; texts that are joined have one."""
    found = {}
    for call in calls:
        if call.type is FieldType.TEXT and call.argument is not None:
            joins = call.function == "string_agg"
            found[call.name] = joined if joins else longest(call.argument.expression, below)
    return {name: characters for name, characters in found.items() if characters > USUAL_TEXT}


def long_texts(widths: Iterable[int]) -> Iterator[int]:
    """Yield the widths of texts that are long."""
    return (characters for characters in widths if characters > LONG_TEXT)


def longest(expression: Expression, below: Widths) -> int:
    """Return how many characters a text may have, as far as what it is made of tells.

    >>> longest(Call("LPAD", (Column("x"), Literal(FieldType.INTEGER, "500"))), {})
    500
    >>> longest(Chain("||", (Column("x"), Literal(FieldType.TEXT, "abc"), Column("y"))), {"y": 1000})
    1023
    """
    return _lengths(expression, below)[id(expression)]


def characters_made(expression: Expression, below: Widths) -> int:
    """Return how many characters the long texts have that an expression makes or looks at on its way to its value.

    >>> characters_made(Call("LENGTH", (Call("LPAD", (Column("x"), Literal(FieldType.INTEGER, "500"))),)), {})
    500
    >>> characters_made(Call("UPPER", (Column("x"),)), {})
    0
    """
    return _made(expression, below) if below else _made_of_streams(expression)


@remembered
def _made_of_streams(expression: Expression) -> int:
    return _made(expression, {})


def _made(expression: Expression, below: Widths) -> int:
    lengths = _lengths(expression, below)
    made = (node for node in from_below(expression) if node.operands and not isinstance(node, Group))
    return sum(long_texts(lengths[id(node)] for node in made))


def _lengths(expression: Expression, below: Widths) -> dict[int, int]:
    """Return how many characters the value of each node may have, by the node's id; 0 if it is no text."""
    found: dict[int, int] = {}
    for node in from_below(expression):
        made = [found[id(operand)] for operand in node.operands]
        match node:
            case Column():
                characters = below.get(node.name, USUAL_TEXT)
            case Literal():
                characters = len(node.text)
            case Chain(word="||") | Call(function="CONCAT"):
                characters = sum(made)
            case Call(function="LPAD" | "RPAD", arguments=(_, Literal(text=text), *_)) if text.isdecimal():
                characters = int(text)
            case Call(function="LPAD" | "RPAD"):
                characters = LONGEST_TEXT
            case Call(function="REPLACE" | "REGEXP_REPLACE"):
                characters = made[0] * max(1, made[-1])
            case _ if _is_no_text(node):
                characters = 0
            case _:
                characters = max(made, default=0)
        found[id(node)] = min(characters, LONGEST_TEXT)
    return found


def _is_no_text(node: Expression) -> bool:
    match node:
        case Call(function=name):
            function = SCALAR_FUNCTIONS.get(name)
            return function is not None and function.result in _NO_TEXTS
        case Cast(target=target):
            return target is not FieldType.TEXT
        case _:
            return isinstance(node, Among | Between | Binary | Chain | Like | Negative | Not)


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

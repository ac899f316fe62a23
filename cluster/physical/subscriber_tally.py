"""What the subscribers of a fragment need together, counted: one more or one fewer is a matter of its own needs only.

All dictionaries are copied before they change, which takes no time to speak of, whereas a loop over thousands of
subscribers for each new query does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from cluster.layered_map import LayeredMap
from cluster.operators.columns import AggregateCall
from cluster.physical.operations import Measures

K = TypeVar("K", bound=Hashable)
Length = tuple[int, int]
"""Size and slide of a window."""


class Window(Protocol):
    """The window of a subscriber."""

    @property
    def size_us(self) -> int:
        """Its size."""

    @property
    def slide_us(self) -> int:
        """How far it moves at a time."""


class Reports(Protocol):
    """What devices report to a subscriber."""

    @property
    def measures(self) -> Measures:
        """By field: the measures."""


class Counted(Protocol):
    """What is counted of a subscriber (:class:`cluster.physical.nodes.Subscriber`)."""

    @property
    def group(self) -> int:
        """Its query group."""

    @property
    def calls(self) -> tuple[AggregateCall, ...]:
        """The aggregates that it needs of its window."""

    @property
    def window(self) -> Window | None:
        """Its window, where windows share panes."""

    @property
    def devices(self) -> Reports | None:
        """What devices report to it."""

    @property
    def missing(self) -> object | None:
        """What proxies report to it of missing samples."""


@dataclass(frozen=True, slots=True)
class SubscriberTally:
    """Counts of subscribers.

    Parameters
    ----------
    groups
        By query group.
    calls
        By aggregate, of windows that share panes.
    windows
        By size and slide: how many query groups have such a window.
    by_group
        The windows of the subscribers of each query group.
    spans
        By query group: its longest window and slide together.
    span_us
        The sum of those.
    measures
        By what devices report, in the order in which subscribers first needed it.
    missing
        How many need counts of missing samples.
    """

    groups: LayeredMap[int, int] = field(default_factory=LayeredMap)
    calls: dict[AggregateCall, int] = field(default_factory=dict)
    windows: dict[Length, int] = field(default_factory=dict)
    by_group: LayeredMap[int, tuple[Length, ...]] = field(default_factory=LayeredMap)
    spans: LayeredMap[int, int] = field(default_factory=LayeredMap)
    span_us: int = 0
    measures: dict[Measures, int] = field(default_factory=dict)
    missing: int = 0

    @classmethod
    def of(cls, subscribers: Iterable[Counted]) -> SubscriberTally:
        """Return the counts of some subscribers, the oldest first."""
        groups: dict[int, int] = {}
        calls: dict[AggregateCall, int] = {}
        windows: dict[Length, int] = {}
        by_group: dict[int, tuple[Length, ...]] = {}
        measures: dict[Measures, int] = {}
        missing = 0
        for each in subscribers:
            _add(groups, each.group)
            for call in each.calls:
                _add(calls, call)
            if each.window is not None:
                length = each.window.size_us, each.window.slide_us
                had = by_group.get(each.group, ())
                if length not in had:
                    _add(windows, length)
                by_group[each.group] = (*had, length)
            if each.devices is not None:
                _add(measures, each.devices.measures)
            missing += each.missing is not None
        spans = {group: _span_us(lengths) for group, lengths in by_group.items()}
        layered = LayeredMap(groups), calls, windows, LayeredMap(by_group), LayeredMap(spans)
        return cls(*layered, sum(spans.values()), measures, missing)

    def with_subscriber(self, new: Counted) -> SubscriberTally:
        """Return the counts with one more subscriber, the newest."""
        groups, missing = _one_more(self.groups, new.group), self.missing + (new.missing is not None)
        if new.window is None:
            return replace(self, groups=groups, missing=missing)
        calls, measures = dict(self.calls), self.measures
        for call in new.calls:
            _add(calls, call)
        if new.devices is not None:
            measures = _added(measures, new.devices.measures)
        length = new.window.size_us, new.window.slide_us
        had = self.by_group.get(new.group, ())
        windows = self.windows if length in had else _added(self.windows, length)
        found = replace(self, groups=groups, calls=calls, windows=windows, measures=measures, missing=missing)
        return _regrouped(found, new.group, (*had, length))

    def without_subscriber(self, old: Counted, left: Iterable[Counted]) -> SubscriberTally:
        """Return the counts without one of the subscribers.

        Parameters
        ----------
        old
            That subscriber.
        left
            The others, the oldest first; looked at only if the order of what devices report may be another without it.
        """
        groups, missing = _one_fewer(self.groups, old.group), self.missing - (old.missing is not None)
        if old.window is None:
            return replace(self, groups=groups, missing=missing)
        calls, measures = dict(self.calls), self.measures
        for call in old.calls:
            _remove(calls, call)
        if old.devices is not None and len(measures) > 1:
            measures = {}
            for each in left:
                if each.devices is not None:
                    _add(measures, each.devices.measures)
        elif old.devices is not None:
            measures = _removed(measures, old.devices.measures)
        length = old.window.size_us, old.window.slide_us
        had = list(self.by_group[old.group])
        had.remove(length)
        windows = self.windows if length in had else _removed(self.windows, length)
        found = replace(self, groups=groups, calls=calls, windows=windows, measures=measures, missing=missing)
        return _regrouped(found, old.group, tuple(had))


def _regrouped(tally: SubscriberTally, group: int, lengths: tuple[Length, ...]) -> SubscriberTally:
    before_us = tally.spans.get(group, 0)
    if lengths:
        after_us = _span_us(lengths)
        by_group = tally.by_group.changed(come=[(group, lengths)])
        spans = tally.spans.changed(come=[(group, after_us)])
    else:
        after_us = 0
        by_group, spans = tally.by_group.changed([group]), tally.spans.changed([group])
    return replace(tally, by_group=by_group, spans=spans, span_us=tally.span_us - before_us + after_us)


def _one_more(counts: LayeredMap[int, int], group: int) -> LayeredMap[int, int]:
    return counts.changed(come=[(group, counts.get(group, 0) + 1)])


def _one_fewer(counts: LayeredMap[int, int], group: int) -> LayeredMap[int, int]:
    left = counts[group] - 1
    return counts.changed(come=[(group, left)]) if left else counts.changed([group])


def _span_us(lengths: Iterable[Length]) -> int:
    return max(map(sum, lengths))


def _add(counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _remove(counts: dict[K, int], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _added(counts: dict[K, int], key: K) -> dict[K, int]:
    found = dict(counts)
    _add(found, key)
    return found


def _removed(counts: dict[K, int], key: K) -> dict[K, int]:
    found = dict(counts)
    _remove(found, key)
    return found

"""What plans of queries cost together, as they come and go: what they share costs once. Pure.

fragment F    fixed + rows of group 1 + rows of group 2       a batch costs once, equal rows cost once
fragment L    fixed + rows of group 1 + each own part         extents over samples that are shared: each once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """A plan of a query.

    Parameters
    ----------
    number
        Its number among the query's plans.
    fragment
        What would run it: equal for plans that share operators.
    group
        Its share of the rows there: plans with equal groups share these, too.
    fixed_us
        What the fragment costs whatever comes, in microseconds of a processor in a second.
    rows_us
        What the rows of the group cost.
    own_us, own
        What the plan costs beside those, and what that is for: plans share it with those in their fragment for which
        it is for the same; an empty text is for no other. Of a lazy extent it is coalescing the shared samples.
    """

    number: int
    fragment: str
    group: str
    fixed_us: float
    rows_us: float
    own_us: float = 0.0
    own: str = ""

    @property
    def alone_us(self) -> float:
        """What it would cost alone."""
        return self.fixed_us + self.rows_us + self.own_us


class Load:
    """What plans cost together, as they come and go. What they share costs as for the one to which it is dearest."""

    def __init__(self, options: Iterable[Option] = ()) -> None:
        self._parts: dict[tuple[str, ...], Counter[float]] = {}
        self._cost: dict[str, float] = {}
        for each in options:
            self.add(each)

    def of(self, fragment: str) -> float:
        """Return what a fragment costs."""
        return self._cost.get(fragment, 0.0)

    @property
    def total_us(self) -> float:
        """What all cost."""
        return sum(self._cost.values())

    def more(self, options: Iterable[Option]) -> float:
        """Return what plans would cost more together."""
        added = list(options)
        found = sum([self.add(each) for each in added])
        for each in added:
            self.remove(each)
        return found

    def add(self, option: Option) -> float:
        """Add a plan; return what it costs more."""
        more = 0.0 if option.own else option.own_us
        for part, cost_us in _shared(option):
            costs = self._parts.setdefault(part, Counter())
            more += max(cost_us - max(costs, default=0.0), 0.0)
            costs[cost_us] += 1
        self._cost[option.fragment] = self.of(option.fragment) + more
        return more

    def remove(self, option: Option) -> None:
        """Remove a plan that was added."""
        less = 0.0 if option.own else option.own_us
        for part, cost_us in _shared(option):
            costs = self._parts[part]
            _less(costs, cost_us)
            less += max(cost_us - max(costs, default=0.0), 0.0)
            if not costs:
                del self._parts[part]
        is_used = (option.fragment,) in self._parts
        self._cost[option.fragment] = self.of(option.fragment) - less if is_used else 0.0


def _shared(option: Option) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield what a plan may share, each part with what it costs."""
    yield (option.fragment,), option.fixed_us
    yield (option.fragment, option.group), option.rows_us
    if option.own:
        yield (option.fragment, option.group, option.own), option.own_us


def _less(counts: Counter[float], key: float) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def cost_us(options: Iterable[Option]) -> float:
    """Return what plans cost together."""
    return Load(options).total_us

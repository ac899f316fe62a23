"""Which running queries are to go on with other plans: looked at together, as what they share costs once. Pure.

**What plans of queries cost together, as they come and go: what they share costs once.**

    fragment F    fixed + rows of group 1 + rows of group 2       a batch costs once, equal rows cost once
fragment L    fixed + rows of group 1 + each own part         extents over samples that are shared: each once

fragment F    fixed + rows of group 1 + rows of group 2       a batch costs once, equal rows cost once
    fragment T    fixed + rows of group 3

A change must save a share of what the queries that change cost, and it must be wanted for a while; a query that has
changed rests. So plans do not flutter when figures waver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.temporal.cost_model import Prices, optimal


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


LEAST_SHARE = 0.2
"""Of what the queries cost that change, at least this share is saved."""
LEAST_US = 100.0
"""Microseconds of a processor in a second that a change saves at least."""


@dataclass(frozen=True, slots=True)
class Least:
    """What a change has to save: a share of what its queries cost, and microseconds of a processor in a second."""

    share: float = LEAST_SHARE
    us: float = LEAST_US

    def is_saved(self, saved_us: float, of_us: float) -> bool:
        """Return whether a change saves enough of a cost."""
        return saved_us >= max(self.us, self.share * of_us)


LEAST = Least()
HELD_SECONDS = 10.0
"""A change is wanted for so long before it begins."""
REST_SECONDS = 60.0
"""A query that has changed stays as it is for so long."""
MOST_AT_A_TIME = 4
"""Queries that migrate at the same time; those of one change begin together, even if they are more."""
DRIFT = 0.2
"""Figures that have changed by more than this share are drift."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A query that runs.

    Parameters
    ----------
    name
        Its name.
    running
        The plan by which it runs.
    options
        Other plans; none if it has to stay as it is.
    """

    name: str
    running: Option
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Queries that go on with other plans together.

    Parameters
    ----------
    plans
        By query: the number of the plan.
    before_us, after_us
        What all that they have to do with costs before and after.
    """

    plans: Mapping[str, int]
    before_us: float
    after_us: float

    @property
    def saved_us(self) -> float:
        """What it saves."""
        return self.before_us - self.after_us


def cheapest(options: Sequence[Option], running: Iterable[Option]) -> Option:
    """Return the plan of a new query that costs least beside those that run; the first one unless another saves enough.

    Raises
    ------
    ValueError
        If there is none.
    """
    load = Load(running)

    def added_us(option: Option) -> float:
        more = load.add(option)
        load.remove(option)
        return more

    best = min(options, key=lambda each: (added_us(each), each.number))
    first = options[0]
    saved = added_us(first) - added_us(best)
    return best if LEAST.is_saved(saved, added_us(first)) else first


def changes(queries: Sequence[Candidate], *, most: int = MOST_AT_A_TIME, least: Least = LEAST) -> list[Change]:
    """Return the changes that pay, the best one first; each is reckoned as if those before had been made.

    Parameters
    ----------
    queries
        All queries that run.
    most
        Queries that may change; the first change may have more, if it pays only for all of them.
    least
        What each change has to save.
    """
    chosen = {each.name: each.running for each in queries}
    waiting = {each.name: each for each in queries if each.options}
    load = Load(chosen.values())
    found: list[Change] = []
    left = most
    while left > 0 and (best := _best(chosen, waiting, load, left if found else None, least)) is not None:
        change, options = best
        found.append(change)
        _exchange(load, chosen, options)
        chosen.update(options)
        left -= len(options)
        for name in options:
            del waiting[name]
    return found


def best_first(lists: Sequence[Sequence[Change]], most: int = MOST_AT_A_TIME) -> list[Change]:
    """Return changes that have nothing to do with each other, the best one first, of no more than so many queries.

    Parameters
    ----------
    lists
        Each in the order in which its changes have to be made.
    most
        Queries that may change; the first change may have more.
    """
    waiting = [list(each) for each in lists if each]
    found: list[Change] = []
    while waiting:
        best = max(waiting, key=lambda each: each[0].saved_us)
        if found and sum(len(each.plans) for each in (*found, best[0])) > most:
            waiting.remove(best)
            continue
        found.append(best.pop(0))
        waiting = [each for each in waiting if each]
    return found


def _best(
    chosen: Mapping[str, Option], waiting: Mapping[str, Candidate], load: Load, most: int | None, least: Least
) -> tuple[Change, Mapping[str, Option]] | None:
    best: tuple[tuple[float, int, tuple[str, ...]], Change, Mapping[str, Option]] | None = None
    for options in _together(chosen, waiting):
        if most is not None and len(options) > most:
            continue
        change = _change(chosen, load, options, least)
        if change is not None:
            rank = (-change.saved_us, len(options), tuple(sorted(options)))
            if best is None or rank < best[0]:
                best = (rank, change, options)
    return None if best is None else best[1:]


def _together(chosen: Mapping[str, Option], waiting: Mapping[str, Candidate]) -> Iterator[Mapping[str, Option]]:
    """Yield plans of queries that may change together: each alone, and all that would leave one fragment for one."""
    moving: dict[tuple[str, str], dict[str, Option]] = {}
    for name, query in waiting.items():
        now = chosen[name]
        nearest: dict[str, Option] = {}
        for option in query.options:
            if option != now:
                yield {name: option}
                known = nearest.get(option.fragment)
                if known is None or option.rows_us < known.rows_us:
                    nearest[option.fragment] = option
        for fragment, option in nearest.items():
            if fragment != now.fragment:
                moving.setdefault((now.fragment, fragment), {})[name] = option
    for options in moving.values():
        if len(options) > 1:
            yield options
    yield from _by_programme(chosen, waiting)


def _by_programme(chosen: Mapping[str, Option], waiting: Mapping[str, Candidate]) -> Iterator[Mapping[str, Option]]:
    """Yield plans of queries that pay only together, because they share samples: which, a 0-1 programme finds.

    For each fragment whose plans have a part of their own: which of the queries that it could run are better off with
    another plan, given that what they share there costs once, if some query is there (papers/coalescing.md section
    3.6). Queries that have that part in common go one way together.
    """
    for fragment in sorted({each.fragment for query in waiting.values() for each in _plans(query) if each.own_us}):
        ways: dict[tuple[str, str], dict[str, tuple[Option, Option]]] = {}
        for name, query in waiting.items():
            shared = [each for each in _plans(query) if each.fragment == fragment]
            apart = [each for each in _plans(query) if each.fragment != fragment and not each.own_us]
            if shared and apart:
                together = min(shared, key=lambda each: (each.own_us, each.number))
                alone = min(apart, key=lambda each: (each.alone_us, each.number))
                ways.setdefault((together.group, together.own or name), {})[name] = alone, together
        moving = {name for pairs in ways.values() for name in pairs}
        stay = Load(each for name, each in chosen.items() if name not in moving)
        apart_ones = optimal(_prices_of(stay, [list(pairs.values()) for pairs in ways.values()]))
        wanted = {
            name: pair[place not in apart_ones]
            for place, pairs in enumerate(ways.values())
            for name, pair in pairs.items()
        }
        options = {name: each for name, each in wanted.items() if each != chosen[name]}
        if len(options) > 1:
            yield options


def _prices_of(stay: Load, ways: Sequence[Sequence[tuple[Option, Option]]]) -> Prices:
    """Return what queries cost more beside others, given for each its plan apart and the one that shares samples.

    Those of each list have the part of their own in common. What all share is paid once.
    """
    eager, lazy, once = [], [], [0.0]
    for pairs in ways:
        eager.append(stay.more(alone for alone, _ in pairs))
        together = stay.more(shared for _, shared in pairs)
        lazy.append(min(max(shared.own_us for _, shared in pairs), together))
        once.append(together - lazy[-1])
    return Prices(tuple(eager), tuple(lazy), max(once))


def _plans(query: Candidate) -> tuple[Option, ...]:
    return (query.running, *query.options)


def _change(chosen: Mapping[str, Option], load: Load, options: Mapping[str, Option], least: Least) -> Change | None:
    """Return a change, if it saves enough."""
    left = {chosen[name].fragment for name in options}
    touched = sorted(left | {each.fragment for each in options.values()})
    before_us = sum(map(load.of, touched))
    own = min(sum(chosen[name].alone_us for name in options), sum(map(load.of, sorted(left))))
    _exchange(load, chosen, options)
    after_us = sum(map(load.of, touched))
    _exchange(load, options, {name: chosen[name] for name in options})
    if not least.is_saved(before_us - after_us, own):
        return None
    return Change({name: each.number for name, each in options.items()}, before_us, after_us)


def _exchange(load: Load, before: Mapping[str, Option], after: Mapping[str, Option]) -> None:
    for name, option in after.items():
        load.remove(before[name])
        load.add(option)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Which changes have been wanted since when, and which queries rest; a value.

    Parameters
    ----------
    wanted
        By query and number of a plan: since when, in seconds.
    changed
        By query: when it changed last.
    """

    wanted: Mapping[tuple[str, int], float] = field(default_factory=dict)
    changed: Mapping[str, float] = field(default_factory=dict)

    def rests(self, name: str, now: float) -> bool:
        """Return whether a query has changed so lately that it stays as it is."""
        at = self.changed.get(name)
        return at is not None and now - at < REST_SECONDS

    def resting(self, name: str, now: float) -> Waiting:
        """Return it with a query that has just changed."""
        return replace(self, changed={**self.changed, name: now})

    def rested(self, now: float) -> tuple[Waiting, frozenset[str]]:
        """Return what waits on, and the queries that have rested for long enough since it was asked last."""
        done = frozenset(name for name in self.changed if not self.rests(name, now))
        return replace(self, changed={name: at for name, at in self.changed.items() if name not in done}), done

    def after(self, found: Sequence[Change], now: float) -> tuple[Waiting, list[Change]]:
        """Return what waits on, and the changes that begin now: those that have been wanted long enough.

        A change waits for those of its queries that are wanted last, and behind those that pay more.
        """
        keys = [key for each in found for key in each.plans.items()]
        wanted = {key: self.wanted.get(key, now) for key in keys}
        due: list[Change] = []
        for each in found:
            if any(now - wanted[key] < HELD_SECONDS for key in each.plans.items()):
                break
            due.append(each)
        begun = [name for each in due for name in each.plans]
        changed = {name: at for name, at in self.changed.items() if now - at < REST_SECONDS}
        left = {key: since for key, since in wanted.items() if key[0] not in begun}
        return replace(self, wanted=left, changed={**changed, **dict.fromkeys(begun, now)}), due


def smoothed(known: Mapping[str, float], newest: Mapping[str, float], weight: float) -> dict[str, float]:
    """Return figures that are nearer to the newest ones by a share; those that are new as they are.

    Parameters
    ----------
    known, newest
        Before, and now; those that are no longer there are forgotten.
    weight
        The share of the distance, from 0 to 1.
    """
    return {key: known[key] + weight * (each - known[key]) if key in known else each for key, each in newest.items()}


def have_drifted(before: Mapping[str, float], now: Mapping[str, float], share: float = DRIFT) -> bool:
    """Return whether figures have changed by more than a share of the larger one, or are others."""
    if before.keys() != now.keys():
        return True
    return any(abs(before[key] - each) > share * max(abs(before[key]), abs(each)) for key, each in now.items())

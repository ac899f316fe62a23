"""The plan of the next epoch, made of the one before and of what changes: its indices are carried over, not made anew.

What is copied here is copied whole, as references; only what changes is looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count, repeat
from operator import attrgetter, is_

from cluster.physical.nodes import Fragment, PhysicalPlan, Subscriber

Rates = Mapping[str, float]
Sums = dict[Callable[[Fragment, Rates], int], tuple[Rates, int]]

_SUMS, _STEPS, _OF_SUBSCRIBERS = "sums", "steps", "sums_of_subscribers"
_visible_from = attrgetter("visible_from")


@dataclass(frozen=True, slots=True)
class Step:
    """The change of one fragment.

    Parameters
    ----------
    before, after
        The fragment; None if it is new, or goes.
    go, come
        Its subscribers that go and come; of one that changes, what it was goes, and what it is comes.
    """

    before: Fragment | None
    after: Fragment | None
    go: tuple[Subscriber, ...] = ()
    come: tuple[Subscriber, ...] = ()


def successor(before: PhysicalPlan, epoch: int, positions: Mapping[str, int], steps: Sequence[Step]) -> PhysicalPlan:
    """Return the plan after some changes.

    Parameters
    ----------
    before
        The plan before.
    epoch, positions
        Those of the new plan.
    steps
        The changes, each of another fragment.

    Raises
    ------
    ValueError
        If one fragment changes twice.
    """
    for step in steps:
        _carry_tally(step)
        _carry_sums(step)
    after = PhysicalPlan(epoch, _fragments(before, steps), positions)
    after.__dict__[_STEPS] = tuple(steps)
    known, found = before.__dict__, after.__dict__
    if "by_identity" in known:
        found["by_identity"] = before.by_identity.changed(
            (each.before.identity for each in steps if each.before is not None and each.after is None),
            ((each.after.identity, each.after) for each in steps if each.after is not None),
        )
    stays = {each.identity for step in steps for each in step.come}
    gone = [each.identity for step in steps for each in step.go if each.identity not in stays]
    come = [(each, step.after) for step in steps if step.after is not None for each in step.come]
    if "subscribers" in known:
        found["subscribers"] = before.subscribers.changed(gone, ((each.identity, each) for each, _ in come))
    if "homes" in known:
        found["homes"] = before.homes.changed(gone, ((each.identity, part.identity) for each, part in come))
    if "oldest_first" in known:
        found["oldest_first"] = _ordered(before.oldest_first, steps)
    _carry_readers(before, after, steps)
    for function, (rates, total) in before.__dict__.get(_SUMS, {}).items():
        _sums(after)[function] = rates, total + sum(_difference(function, rates, each) for each in steps)
    return after


def indexed(plan: PhysicalPlan) -> PhysicalPlan:
    """Return a plan once the indices are made that its successors are looked up by, so that they are carried over."""
    _ = plan.by_identity, plan.subscribers, plan.homes, plan.oldest_first, plan.readers, plan.relation_readers
    return plan


def summed(plan: PhysicalPlan, function: Callable[[Fragment, Rates], int], rates: Rates) -> int:
    """Return the sum of what a function returns for each fragment of a plan, kept from plan to plan.

    Parameters
    ----------
    plan
        The plan.
    function
        The function; it returns whole numbers, whose sums are exact however many are added and subtracted.
    rates
        Tuples per second, by stream; with others the sum is made anew.
    """
    known = _sums(plan).get(function)
    if known is None or known[0] != rates:
        known = _sums(plan)[function] = dict(rates), sum(function(each, rates) for each in plan.fragments)
    return known[1]


def summed_subscribers(fragment: Fragment, function: Callable[[Subscriber], int], *, of_groups: bool = False) -> int:
    """Return the sum of what a function returns for each subscriber of a fragment, kept from fragment to fragment.

    Parameters
    ----------
    fragment
        The fragment.
    function
        The function; equal ones return the same.
    of_groups
        True to add one subscriber of each query group only, of which all return the same.
    """
    sums: dict[tuple[Callable[[Subscriber], int], bool], int] = fragment.__dict__.setdefault(_OF_SUBSCRIBERS, {})
    if (function, of_groups) not in sums:
        chosen = {each.group: each for each in fragment.subscribers}.values() if of_groups else fragment.subscribers
        sums[function, of_groups] = sum(map(function, chosen))
    return sums[function, of_groups]


def place_in(values: Sequence[object], value: object) -> int:
    """Return where a value is, by identity; -1 if it is not there."""
    return next(compress(count(), map(is_, values, repeat(value))), -1)


def steps_to(before: PhysicalPlan, after: PhysicalPlan) -> Sequence[Step] | None:
    """Return the steps by which a plan was made of another one; None if it was made otherwise."""
    found: tuple[Step, ...] | None = after.__dict__.get(_STEPS)
    if found is None or after.epoch != before.epoch + 1:
        return None
    known = before.by_identity
    same = all(step.before is None or known.get(step.before.identity) is step.before for step in found)
    return found if same and len(after.fragments) - len(before.fragments) == sum(map(_more, found)) else None


def _more(step: Step) -> int:
    return (step.after is not None) - (step.before is not None)


def _sums(plan: PhysicalPlan) -> Sums:
    found: Sums = plan.__dict__.setdefault(_SUMS, {})
    return found


def _difference(function: Callable[[Fragment, Rates], int], rates: Rates, step: Step) -> int:
    after = 0 if step.after is None else function(step.after, rates)
    return after - (0 if step.before is None else function(step.before, rates))


def _place(fragment: Fragment) -> tuple[bool, int]:
    """Return the sort key of fragments."""
    return fragment.shares_panes, fragment.subscribers[0].visible_from


def _fragments(before: PhysicalPlan, steps: Sequence[Step]) -> tuple[Fragment, ...]:
    found = list(before.fragments)
    for step in steps:
        if step.before is not None:
            at = place_in(found, step.before)
            if at < 0:
                raise ValueError(f"{step.before.identity!r} changes twice")
            if step.after is not None and _place(step.before) == _place(step.after):
                found[at] = step.after
                continue
            del found[at]
        if step.after is not None:
            found.insert(bisect_right(found, _place(step.after), key=_place), step.after)
    return tuple(found)


def _ordered(known: tuple[Subscriber, ...], steps: Sequence[Step]) -> tuple[Subscriber, ...]:
    found = known
    for step in steps:
        changed = {each.identity: each for each in step.come}
        goes = {each.identity for each in step.go}
        for each in step.go:
            at = bisect_left(found, each.visible_from, key=_visible_from)
            while found[at].identity != each.identity:
                at += 1
            stays = (changed[each.identity],) if each.identity in changed else ()
            found = found[:at] + stays + found[at + 1 :]
        for each in step.come:
            if each.identity in goes:
                continue
            if not found or found[-1].visible_from <= each.visible_from:
                found = (*found, each)
            else:
                at = bisect_right(found, each.visible_from, key=_visible_from)
                found = (*found[:at], each, *found[at:])
    return found


def _carry_tally(step: Step) -> None:
    before, after = step.before, step.after
    if before is None or after is None or "tally" not in before.__dict__ or "tally" in after.__dict__:
        return
    tally = before.tally
    stays = {each.identity for each in step.go} & {each.identity for each in step.come}
    for each in step.go:
        if each.identity not in stays:
            tally = tally.without_subscriber(each, after.subscribers)
    for each in step.come:
        if each.identity not in stays:
            tally = tally.with_subscriber(each)
    after.__dict__["tally"] = tally


def _carry_sums(step: Step) -> None:
    before, after = step.before, step.after
    if before is None or after is None or _OF_SUBSCRIBERS not in before.__dict__ or before is after:
        return
    new = {each.group: each for each in step.come if each.group not in before.tally.groups}.values()
    gone = {each.group: each for each in step.go if each.group not in after.tally.groups}.values()
    after.__dict__[_OF_SUBSCRIBERS] = {
        (function, of_groups): total
        + sum(map(function, new if of_groups else step.come))
        - sum(map(function, gone if of_groups else step.go))
        for (function, of_groups), total in before.__dict__[_OF_SUBSCRIBERS].items()
    }


def _carry_readers(before: PhysicalPlan, after: PhysicalPlan, steps: Sequence[Step]) -> None:
    known, found = before.__dict__, after.__dict__
    for name, read in (("readers", _streams), ("relation_readers", _relations)):
        if name in known:
            found[name] = _recounted(known[name], read, steps)
    if "streams" in known and before.streams == found.get("readers", {}).keys():
        found["streams"] = before.streams
    touched = [part for step in steps for part in (step.before, step.after) if part is not None]
    if "with_history" in known and not any(part.beginnings for part in touched):
        found["with_history"] = before.with_history


def _streams(fragment: Fragment) -> Iterable[str]:
    return fragment.streams


def _relations(fragment: Fragment) -> Iterable[str]:
    return fragment.relations


def _recounted(known: Counter[str], read: Callable[[Fragment], Iterable[str]], steps: Sequence[Step]) -> Counter[str]:
    found = known.copy()
    for step in steps:
        found.subtract(() if step.before is None else read(step.before))
        found.update(() if step.after is None else read(step.after))
    return +found

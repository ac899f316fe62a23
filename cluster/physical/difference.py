"""What changes from one physical plan to another: which fragments, operators and subscribers stay, come and go."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.physical.plan_changes import Splice
from cluster.physical.words import named, queries_counted
from cluster.plan.epoch import name_of


class FragmentChange(msgspec.Struct, frozen=True):
    """What changes in a fragment that two plans have.

    Parameters
    ----------
    identity
        Of the fragment.
    stay, come, go
        Ids of its operators; one whose operation changes under the same id comes and goes.
    queries_come, queries_go
        Identities of its subscribers.
    """

    identity: str
    stay: tuple[str, ...]
    come: tuple[str, ...]
    go: tuple[str, ...]
    queries_come: tuple[str, ...]
    queries_go: tuple[str, ...]


class Difference(msgspec.Struct, frozen=True):
    """What changes from one plan to another.

    Parameters
    ----------
    before, after
        Their epochs.
    stay
        Identities of the fragments that are the same, including their subscribers.
    come, go
        The fragments that only one of them has.
    change
        The changes of the others.
    unchanged
        The number of operators in fragments that stay.
    """

    before: int
    after: int
    stay: tuple[str, ...]
    come: tuple[Fragment, ...]
    go: tuple[Fragment, ...]
    change: tuple[FragmentChange, ...]
    unchanged: int

    @property
    def words(self) -> str:
        """The same in words, a line for each fragment in which anything changes."""
        return "\n".join(self._lines())

    @property
    def counts(self) -> dict[str, int]:
        """How many operators stay, come and go."""
        return {
            "operators_stay": self.unchanged + sum(len(each.stay) for each in self.change),
            "operators_come": sum(len(each.nodes) for each in self.come) + sum(len(each.come) for each in self.change),
            "operators_go": sum(len(each.nodes) for each in self.go) + sum(len(each.go) for each in self.change),
        }

    def _lines(self) -> Iterator[str]:
        yield f"from epoch {self.before} to {self.after}:"
        for fragment in self.come:
            yield f"  comes   {_whole(fragment)}"
        for fragment in self.go:
            yield f"  goes    {_whole(fragment)}"
        for each in self.change:
            yield f"  changes {each.identity}: {', '.join(_changed(each))}"
        if self.stay:
            yield f"  stays   {len(self.stay):,} other {'fragment' if len(self.stay) == 1 else 'fragments'}"


def diff(before: PhysicalPlan, after: PhysicalPlan) -> Difference:
    """Return what changes from one plan to another.

    Parameters
    ----------
    before, after
        The plans.
    """
    stay: list[Fragment] = []
    change: list[FragmentChange] = []
    for fragment in after.fragments:
        old = before.by_identity.get(fragment.identity)
        if old is fragment or old == fragment:
            stay.append(fragment)
        elif old is not None:
            change.append(_change(old, fragment))
    return Difference(
        before.epoch,
        after.epoch,
        tuple(each.identity for each in stay),
        tuple(each for each in after.fragments if each.identity not in before.by_identity),
        tuple(each for each in before.fragments if each.identity not in after.by_identity),
        tuple(change),
        sum(len(each.nodes) for each in stay),
    )


def operators_changed(before: PhysicalPlan, after: PhysicalPlan) -> dict[str, int]:
    """Return how many operators come and go from one plan to another; what stays is not looked at."""
    return operators_between(*fragments_changed(before, after))


def fragments_changed(before: PhysicalPlan, after: PhysicalPlan) -> tuple[tuple[Fragment, ...], tuple[Fragment, ...]]:
    """Return the fragments of two plans between those that are alike at both ends: the old ones, and the new ones."""
    change = Splice.between(before.fragments, after.fragments)
    return before.fragments[change.at :][: change.out], change.into


def operators_between(before: tuple[Fragment, ...], after: tuple[Fragment, ...]) -> dict[str, int]:
    """Return how many operators come and go where new fragments take the place of old ones."""
    gone = {node.id: node for each in before for node in each.nodes}
    come = {node.id: node for each in after for node in each.nodes}
    stay = sum(gone.get(identity) == node for identity, node in come.items())
    return {"operators_come": len(come) - stay, "operators_go": len(gone) - stay}


def _change(old: Fragment, new: Fragment) -> FragmentChange:
    same = {node.id for node in new.nodes if old.by_id.get(node.id) == node}
    had = {each.identity for each in old.subscribers}
    has = {each.identity for each in new.subscribers}
    return FragmentChange(
        new.identity,
        tuple(node.id for node in new.nodes if node.id in same),
        tuple(node.id for node in new.nodes if node.id not in same),
        tuple(node.id for node in old.nodes if node.id not in same),
        tuple(each.identity for each in new.subscribers if each.identity not in had),
        tuple(each.identity for each in old.subscribers if each.identity not in has),
    )


def _whole(fragment: Fragment) -> str:
    names = [each.query for each in fragment.subscribers]
    return f"{fragment.identity}: {len(fragment.nodes)} operators, for {queries_counted(len(names))}: {named(names)}"


def _changed(change: FragmentChange) -> Iterator[str]:
    for word, identities in (("come", change.queries_come), ("go", change.queries_go)):
        if identities:
            names = [name_of(identity) for identity in identities]
            yield f"{named(names)} {word if len(names) > 1 else f'{word}es' if word == 'go' else f'{word}s'}"
    local = [node.removeprefix(change.identity).lstrip("/ ") for node in change.come]
    if local:
        yield f"operators made anew: {named(local)}"
    gone = [node.removeprefix(change.identity).lstrip("/ ") for node in change.go if node not in change.come]
    if gone:
        yield f"operators that go: {named(gone)}"
    yield f"{len(change.stay):,} operators stay"

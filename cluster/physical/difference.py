"""What changes from one physical plan to another, and how the plan came to be: a line for each of its last epochs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.physical.nodes import Fragment, PhysicalPlan, Subscriber
from cluster.physical.plan_changes import Splice
from cluster.physical.plan_files import PlanFiles
from cluster.physical.text import named, queries_counted
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


class PlanStep(msgspec.Struct, frozen=True):
    """What changed with one epoch.

    Parameters
    ----------
    epoch
        The epoch.
    at_seconds
        When its plan was written, in seconds since 1970.
    queries_come, queries_go
        Names of the queries that came and went.
    operators_come, operators_go
        How many operators came and went; those that others use, too, stay.
    migrations_begin, migrations_end
        Names of the queries that began to hand over to another plan, and of those that have.
    why
        Why one began to.
    """

    epoch: int
    at_seconds: float
    queries_come: tuple[str, ...]
    queries_go: tuple[str, ...]
    operators_come: int
    operators_go: int
    migrations_begin: tuple[str, ...] = ()
    migrations_end: tuple[str, ...] = ()
    why: str = ""

    @property
    def words(self) -> str:
        """Which queries came and went."""
        come = f"{named([*self.queries_come])} added" if self.queries_come else ""
        go = f"{named([*self.queries_go])} dropped" if self.queries_go else ""
        why = f" ({self.why})" if self.why else ""
        begin = f"{named([*self.migrations_begin])} migrating{why}" if self.migrations_begin else ""
        end = f"{named([*self.migrations_end])} migrated" if self.migrations_end else ""
        nothing = "no query came or went" if self.epoch > 1 else "first plan, without queries: Spark starts with it"
        return "; ".join(each for each in (come, go, begin, end) if each) or nothing


def plan_history(files: PlanFiles, newest: int, last: int) -> Iterator[PlanStep]:
    """Yield the changes of the last epochs, oldest first; those whose files are no longer there are left out.

    Parameters
    ----------
    files
        The plans; read one after the other, so that each costs no more than its change.
    newest
        The newest epoch.
    last
        How many epochs.

    Raises
    ------
    PlanError
        If a plan cannot be read.
    """
    for epoch in range(max(newest - last, 0) + 1, newest + 1):
        if files.exists(epoch - 1) and files.exists(epoch):
            before = files.read(epoch - 1)
            yield _step(before, files.read(epoch), files.path(epoch).stat().st_mtime)


def _step(before: PhysicalPlan, after: PhysicalPlan, at_seconds: float) -> PlanStep:
    changed = fragments_changed(before, after)
    had, has = map(_queries, changed)
    operators = operators_between(*changed)
    come = [each for identity, each in has.items() if identity not in had]
    gone = [each for identity, each in had.items() if identity not in has]
    dropped = {each.query for each in gone if each.until is None}
    return PlanStep(
        after.epoch,
        at_seconds,
        tuple(each.query for each in come if each.since is None),
        tuple(each.query for each in gone if each.until is None),
        operators["operators_come"],
        operators["operators_go"],
        tuple(each.query for each in come if each.since is not None),
        tuple(each.query for each in gone if each.until is not None and each.query not in dropped),
    )


def _queries(fragments: tuple[Fragment, ...]) -> dict[str, Subscriber]:
    return {each.identity: each for fragment in fragments for each in fragment.subscribers}

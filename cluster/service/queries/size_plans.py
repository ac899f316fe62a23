"""The plans of queries with ranges at choices of their sizes: each is made once for all queries of its shape. Pure.

    SELECT a.x FROM a WINDOW(RANGE MIN 1 HOUR, MAX 3 HOURS) JOIN b ...     one shape: streams are numbered in the order
    SELECT d.x FROM d WINDOW(RANGE MIN 1 HOUR, MAX 3 HOURS) JOIN c ...     in which they are read

A fleet has thousands of queries that differ in their streams only. What a plan takes is computed from its shape and the
rates of its streams; so neither changed rates nor new streams make plans anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from cluster.language.catalog import Catalog, DerivedStream
from cluster.operators import Held, Node, Source
from cluster.operators.size_ranges import SizeRange, Sizes
from cluster.operators.walks import from_below, nodes_of, rebuilt
from cluster.physical.lowering import lower
from cluster.physical.migration import Migration, MigrationRefusedError
from cluster.physical.nodes import PhysicalPlan
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.service.catalog.planning import PlanningContext
from cluster.service.queries.ranged_queries import items_of
from cluster.shared_nodes import remembered
from protocols.wire.names import folded

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_Sizes = tuple[tuple[SizeRange, int], ...]

MOST_PLANS = 8_192
"""So many plans are kept, and as many physical ones; those that were used last."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A plan without the names of its streams.

    Parameters
    ----------
    node
        The plan with numbers in place of names; as it is, if it reads relations or a past.
    streams
        Its streams, and what they are named in the plan.
    """

    node: Node
    streams: tuple[tuple[str, str], ...]

    def rates(self, tuples_per_second: Mapping[str, float]) -> dict[str, float]:
        """Return rates by the names that streams have in the plan; unknown ones are left out."""
        found = ((own, tuples_per_second.get(stream)) for stream, own in self.streams)
        return {own: rate for own, rate in found if rate is not None}


@remembered
def shape_of(node: Node) -> Shape:
    """Return the shape of a plan."""
    names = tuple(dict.fromkeys(each.stream for each in from_below(node) if isinstance(each, Source)))
    if node.relations or any(_has_instants(each) for each in nodes_of(node)):
        return Shape(node, tuple((name, name) for name in names))
    numbered = {name: f"s{place:06}" for place, name in enumerate(names)}
    return Shape(_renamed(node, numbered), tuple(numbered.items()))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    def change(current: Node) -> Node:
        return replace(current, stream=names[current.stream]) if isinstance(current, Source) else current

    return rebuilt(node, change)


def _has_instants(node: Node) -> bool:
    return isinstance(node, Held) or (isinstance(node, Source) and node.history is not None)


class SizePlans:
    """Plans of texts and shapes at their sizes, each made once.

    Parameters
    ----------
    context
        In which queries are planned.
    """

    def __init__(self, context: PlanningContext) -> None:
        self.context = context
        self._ranged: dict[str, Node] = {}
        self._shapes: dict[str, Shape] = {}
        self._nodes: dict[Node, Node] = {}
        """One object for equal shapes and plans, so that looking something up compares none."""
        self._plans: OrderedDict[tuple[Node, _Sizes], Node] = OrderedDict()
        self._lowered: OrderedDict[tuple[Node, ...], PhysicalPlan] = OrderedDict()
        self._running: OrderedDict[Node, Node] = OrderedDict()
        self._changeable: OrderedDict[tuple[Node, Node, _Sizes], bool] = OrderedDict()

    def moved_to(self, context: PlanningContext) -> SizePlans:
        """Return the plans of another context: without those that may differ there."""
        if context is self.context:
            return self
        found = SizePlans(context)
        changed = changed_names(self.context.catalog, context.catalog)
        found._ranged = {sql: each for sql, each in self._ranged.items() if not _mentions(sql, changed)}
        found._shapes = {sql: each for sql, each in self._shapes.items() if sql in found._ranged}
        found._nodes = self._nodes.copy()
        holds = found.holds_of(self.context)
        found._plans = OrderedDict((key, each) for key, each in self._plans.items() if holds(key[0]))
        found._lowered = OrderedDict((key, each) for key, each in self._lowered.items() if all(map(holds, key)))
        found._changeable = OrderedDict((key, each) for key, each in self._changeable.items() if holds(key[1]))
        return found

    def holds_of(self, before: PlanningContext) -> Callable[[Node], bool]:
        """Return whether a plan that was made of a translation before is made of it now, too, as a function of it."""
        if (before.sizes, before.large) == (self.context.sizes, self.context.large):
            return lambda _: True
        return lambda node: not node.relations

    def keep(self, texts: Collection[str]) -> None:
        """Forget the translations of all other texts, once there are many of them."""
        if len(self._ranged) > 2 * len(texts) + MOST_PLANS:
            self._ranged = {sql: each for sql, each in self._ranged.items() if sql in texts}
            self._shapes = {sql: each for sql, each in self._shapes.items() if sql in texts}

    def ranged(self, sql: str) -> Node:
        """Return the translated plan of a query that was added."""
        if sql not in self._ranged:
            self._ranged[sql] = self.context.ranged(sql)
        return self._ranged[sql]

    def note(self, sql: str, node: Node) -> None:
        """Note the translated plan of a query that has not been added."""
        self._ranged.setdefault(sql, node)

    def shape(self, sql: str) -> Shape:
        """Return the shape of a text."""
        if sql not in self._shapes:
            found = shape_of(self.ranged(sql))
            self._shapes[sql] = Shape(self._one(found.node), found.streams)
        return self._shapes[sql]

    def _one(self, node: Node) -> Node:
        if len(self._nodes) > 4 * MOST_PLANS:
            self._nodes = {each: each for each in (*self._plans.values(), *(at.node for at in self._shapes.values()))}
        return self._nodes.setdefault(node, node)

    def plan(self, sql: str, sizes: Sizes) -> Node:
        """Return the plan of a query with a choice of sizes."""
        return self.context.at(self.ranged(sql), sizes)

    def at(self, shape: Shape, sizes: Sizes) -> Node:
        """Return the plan of a shape with a choice of sizes."""
        key = shape.node, items_of(sizes)
        return _kept(self._plans, key, lambda: self._one(self.context.at(shape.node, sizes)))

    def lowered(self, nodes: tuple[Node, ...]) -> PhysicalPlan:
        """Return what runs plans together, and nothing else."""
        queries = (PlannedQuery("alone", place, node) for place, node in enumerate(nodes))
        return _kept(self._lowered, nodes, lambda: lower(Plan(0, tuple(queries))))

    def can_change(self, running: Node, sql: str, sizes: Sizes) -> bool:
        """Return whether a query whose plan runs can go on with other sizes."""
        shape = self.shape(sql)
        names = dict(shape.streams)
        if running.streams != names.keys():
            return False  # the text has come to mean something else
        runs = _kept(self._running, running, lambda: _renamed(running, names))
        key = runs, shape.node, items_of(sizes)
        return _kept(self._changeable, key, lambda: _migrates(runs, self.at(shape, sizes)))


def changed_names(before: Catalog, after: Catalog) -> frozenset[str]:
    """Return the names, without case, that mean something else or nothing in a later catalog, however indirectly."""
    if before.functions != after.functions:
        return frozenset(before.entries)
    changed = {name for name, each in before.entries.items() if not _same(each, after.entries.get(name))}
    grows = bool(changed)
    while grows:
        reading = {
            name
            for name, each in before.entries.items()
            if isinstance(each, DerivedStream) and name not in changed and changed & set(map(folded, each.reads))
        }
        changed |= reading
        grows = bool(reading)
    return frozenset(changed)


def _same(one: object, other: object) -> bool:
    return one is other or one == other


def _mentions(sql: str, names: frozenset[str]) -> bool:
    text = folded(sql) if names else ""
    return any(name in text for name in names)


def _migrates(old: Node, new: Node) -> bool:
    try:
        Migration(old, new)
    except MigrationRefusedError:
        return False
    return True


def _kept(found: OrderedDict[K, T], key: K, make: Callable[[], T]) -> T:
    """Return what is kept, or made and kept in place of what has not been used for the longest time."""
    if key in found:
        found.move_to_end(key)
    else:
        found[key] = make()
        if len(found) > MOST_PLANS:
            found.popitem(last=False)
    return found[key]

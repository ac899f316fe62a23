"""Orders in which streams can be joined (papers/pipes_algebra.md section 4.2 C1): left-deep and bushy trees.

a.k = b.k AND b.m = c.m          ((a b) c)    (a (b c))          not ((a c) b): a and c have no condition in common
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from cluster.expressions.conditions import equal_sides
from cluster.expressions.nodes import Binary, Column
from cluster.operators import Join, Node, Project, Source
from cluster.operators.columns import Scalar
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import columns_of, conjunction_of, conjuncts_of, passed_on, plain_column
from cluster.operators.walks import nodes_of
from cluster.plan.expressions import joins_by_equality, kept
from cluster.planning_budget import spend
from protocols.wire.streams import FieldType

MOST_JOINED = 12
"""Joins of more inputs keep their order: subsets of them are too many."""

Tree = int | tuple["Tree", "Tree"]
"""The place of an input, or two trees that are joined."""


@dataclass(frozen=True, slots=True)
class JoinRegion:
    """What is joined without anything between the joins but projections that only leave columns out.

    Parameters
    ----------
    inputs
        From left to right.
    conditions
        All conditions, each over the columns of two inputs at least, and those that follow from equalities.
    tree
        How they are joined.
    top
        The topmost join, or the projection above it.
    written
        How many of the conditions are not only implied; they come first.
    """

    inputs: tuple[Node, ...]
    conditions: tuple[Scalar, ...]
    tree: Tree
    top: Node
    written: int

    def columns_of_inputs(self, inputs: int) -> frozenset[str]:
        """Return the columns of a set of inputs, which is a whole number with a bit for each."""
        return frozenset().union(*(each.names for place, each in enumerate(self.inputs) if inputs >> place & 1))


def region_of(node: Node) -> JoinRegion | None:
    """Return the region of a join, or of a projection above it; None if there is no other order.

    That is so of two inputs. Too many keep their order, and those with a condition on nothing, or on one of them.
    """
    join = node.input if isinstance(node, Project) else node
    if not isinstance(join, Join):
        return None
    inputs: list[Node] = []
    conditions: list[Scalar] = []
    tree = _flatten(join, inputs, conditions)
    names = [each.names for each in inputs]
    spanning = all(sum(1 for own in names if columns_of(each) & own) > 1 for each in conditions)
    if not 2 < len(inputs) <= MOST_JOINED or not spanning:  # noqa: PLR2004 - two have one order
        return None
    written = tuple(dict.fromkeys(conditions))
    return JoinRegion(tuple(inputs), (*written, *_implied(written, inputs)), tree, node, len(written))


def _flatten(node: Node, inputs: list[Node], conditions: list[Scalar]) -> Tree:
    below = without_narrowing(node)
    if not isinstance(below, Join):
        inputs.append(node)
        return len(inputs) - 1
    left = _flatten(below.left, inputs, conditions)
    right = _flatten(below.right, inputs, conditions)
    conditions += conjuncts_of(below.predicate)
    return (left, right)


def without_narrowing(node: Node) -> Node:
    """Return what is below projections that only leave columns out."""
    while isinstance(node, Project) and _leaves_out(node):
        node = node.input
    return node


def _implied(conditions: Sequence[Scalar], inputs: Sequence[Node]) -> list[Scalar]:
    """Return the equalities that follow from others: of a = b and b = c, that of a and c, which are of one type."""
    types = {column.name: column.type for each in inputs for column in each.schema}
    place = {column.name: number for number, each in enumerate(inputs) for column in each.schema}
    equal: dict[str, set[str]] = {}
    for condition in conditions:
        names = [each.name for each in equal_sides(condition.expression) or () if isinstance(each, Column)]
        if len(names) == 2 and types[names[0]] is types[names[1]]:  # noqa: PLR2004 - both sides are columns
            one, other = (equal.get(name, {name}) for name in names)
            together = one | other
            equal.update(dict.fromkeys(together, together))
    classes = list({id(each): each for each in equal.values()}.values())
    pairs = [
        (one, other)
        for each in classes
        for one, other in combinations(sorted(each, key=lambda name: (place[name], name)), 2)
        if place[one] != place[other]
    ]
    found = [Scalar(Binary("=", Column(one), Column(other)), FieldType.BOOLEAN) for one, other in pairs]
    known = {frozenset(columns_of(each)) for each in conditions if equal_sides(each.expression) is not None}
    return [each for each in found if frozenset(columns_of(each)) not in known]


def _leaves_out(node: Project) -> bool:
    """Return whether a projection only leaves columns out: no one is renamed, computed, or there twice."""
    return all(plain_column(each.scalar) == each.name for each in node.outputs)


def orders_of(region: JoinRegion) -> Iterator[Tree]:
    """Yield the other trees by which the inputs of a region can be joined without a product, each once.

    Those come first in which all joins have an equality; of these, those that join one input after the other.
    """
    trees = _Trees(region)
    for equal in (True, False):
        for deep in (True, False):
            for tree in trees.of((1 << len(region.inputs)) - 1, equal=equal):
                spend()
                wanted = _is_deep(tree) == deep and (equal or not trees.by_equality(tree))
                if wanted and tree != region.tree:
                    yield tree


def _is_deep(tree: Tree) -> bool:
    if isinstance(tree, int):
        return True
    left, right = tree
    return (isinstance(right, int) and _is_deep(left)) or (isinstance(left, int) and _is_deep(right))


class _Trees:
    """Trees over sets of inputs, which are whole numbers with a bit for each."""

    def __init__(self, region: JoinRegion) -> None:
        names = [each.names for each in region.inputs]
        self._reads = [
            sum(1 << place for place, own in enumerate(names) if columns_of(each) & own) for each in region.conditions
        ]
        self._region = region
        self._found: dict[tuple[int, int, bool], bool] = {}
        self.connected = cache(self._connected)

    def of(self, inputs: int, *, equal: bool) -> Iterator[Tree]:
        """Yield the trees over a set; of an empty or single one, that one. The first input is on the left."""
        if inputs & (inputs - 1) == 0:
            yield inputs.bit_length() - 1
            return
        first = inputs & -inputs
        rest = inputs ^ first
        some = rest
        while some:
            # `some` goes through all subsets of the rest, which are on the right.
            right, left = some, inputs ^ some
            some = (some - 1) & rest
            if self.connects(left, right, equal=equal) and self.connected(left, equal) and self.connected(right, equal):
                for one in self.of(left, equal=equal):
                    for other in self.of(right, equal=equal):
                        yield (one, other)

    def _connected(self, inputs: int, equal: bool) -> bool:  # noqa: FBT001 - an argument of a cache
        return next(self.of(inputs, equal=equal), None) is not None

    def connects(self, left: int, right: int, *, equal: bool) -> bool:
        """Return whether there is a condition, or an equality, between two sets and about nothing else."""
        key = (left, right, equal)
        if key not in self._found:
            spend()
            self._found[key] = any(
                read & left
                and read & right
                and not read & ~(left | right)
                and (not equal or self._equates(at, left, right))
                for at, read in enumerate(self._reads)
            )
        return self._found[key]

    def _equates(self, condition: int, left: int, right: int) -> bool:
        one, other = map(self._region.columns_of_inputs, (left, right))
        return joins_by_equality(self._region.conditions[condition], one, other)

    def by_equality(self, tree: Tree) -> bool:
        """Return whether each join of a tree has an equality."""
        if isinstance(tree, int):
            return True
        left, right = tree
        return (
            self.connects(members(left), members(right), equal=True)
            and self.by_equality(left)
            and self.by_equality(right)
        )


def members(tree: Tree) -> int:
    """Return the inputs of a tree: a whole number with a bit for each."""
    return 1 << tree if isinstance(tree, int) else members(tree[0]) | members(tree[1])


def joined_by(region: JoinRegion, tree: Tree) -> Node:
    """Return the inputs of a region joined by a tree, with the columns that the region has, in their order.

    Each condition is met where all of its columns are there for the first time; one that is implied, where none that is
    written equates what it does. Columns are left out as soon as nothing above needs them.
    """
    top = region.top
    outputs = top.outputs if isinstance(top, Project) else passed_on(top.schema)
    needed = frozenset[str]().union(*(columns_of(each.scalar) for each in outputs))
    found = _joined(region, tree, needed, narrow=isinstance(top, Project))
    return Project(found, outputs) if isinstance(top, Project) else project(found, outputs)


def _joined(region: JoinRegion, tree: Tree, needed: frozenset[str], *, narrow: bool) -> Node:
    if isinstance(tree, int):
        return region.inputs[tree]
    own = _conditions_of(region, tree)
    read = needed.union(*map(columns_of, own))
    sides = [_joined(region, each, read, narrow=narrow) for each in tree]
    if narrow:
        sides = [project(each, kept(each, read)) for each in sides]
    return Join(sides[0], sides[1], conjunction_of(own))


def _conditions_of(region: JoinRegion, tree: tuple[Tree, Tree]) -> list[Scalar]:
    """Return the conditions that a join meets: those over both sides and nothing else, without needless ones."""
    one, other = (region.columns_of_inputs(members(side)) for side in tree)
    found = [
        (place, each)
        for place, each in enumerate(region.conditions)
        if (read := columns_of(each)) <= one | other and read & one and read & other
    ]
    written = [each for place, each in found if place < region.written]
    equated = [columns_of(each) for each in written if equal_sides(each.expression) is not None]
    implied: list[Scalar] = []
    for place, each in found:
        if place >= region.written and not any(_one_class(region, columns_of(each), known) for known in equated):
            implied.append(each)
            equated.append(columns_of(each))
    return [*written, *implied]


def _one_class(region: JoinRegion, columns: frozenset[str], others: frozenset[str]) -> bool:
    """Return whether two equalities equate columns that are all equal."""
    if columns & others:
        return True
    (first, *_), (second, *_) = sorted(columns), sorted(others)
    return any(columns_of(each) == {first, second} for each in region.conditions if equal_sides(each.expression))


def order_words(region: JoinRegion, tree: Tree) -> str:
    """Return an order in words: ``((traffic, weather), events)``; streams that are read several times are numbered."""
    names = _names(region.inputs)

    def words(part: Tree) -> str:
        return names[part] if isinstance(part, int) else f"({words(part[0])}, {words(part[1])})"

    return words(tree)


def _names(inputs: Sequence[Node]) -> list[str]:
    plain = [
        "+".join(dict.fromkeys(each.stream for each in nodes_of(node) if isinstance(each, Source))) for node in inputs
    ]
    return [
        name if plain.count(name) == 1 else f"{name} {plain[: place + 1].count(name)}"
        for place, name in enumerate(plain)
    ]


def inner_parts(plan: Node) -> frozenset[int]:
    """Return the identities of joins, and of projections above them, that are inside the region of another one."""
    found: set[int] = set()
    for node in nodes_of(plan):
        if isinstance(node, Project) and isinstance(node.input, Join):
            found.add(id(node.input))
        for side in node.inputs if isinstance(node, Join) else ():
            below = without_narrowing(side)
            if isinstance(below, Join):
                found |= {id(below), id(side)}
    return frozenset(found)

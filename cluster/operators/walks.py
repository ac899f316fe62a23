"""Walking over plans, each distinct node once, however many paths lead to it; and whether state is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from cluster.operators import Held, Lookup, Node, Union
from cluster.shared_nodes import remembered


def nodes_of(node: Node, *, within: Callable[[Node], bool] | None = None) -> Iterator[Node]:
    """Yield the nodes of a plan from the top down, left before right, each object once.

    Parameters
    ----------
    node
        The plan. Relations that lookups read are not part of it, since they are not streams.
    within
        Whether to visit the nodes below a node; by default always.
    """
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if within is None or within(current):
            waiting.extend(reversed(current.inputs))


def from_below(node: Node) -> Iterator[Node]:
    """Yield the nodes of a plan from the bottom up, left before right, each object once."""
    seen: set[int] = set()
    waiting = [(node, False)]
    while waiting:
        current, below_done = waiting.pop()
        if below_done:
            yield current
        elif id(current) not in seen:
            seen.add(id(current))
            waiting.append((current, True))
            waiting.extend((each, False) for each in reversed(current.inputs))


def streams_of_all(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the streams that any of some plans reads."""
    return frozenset[str]().union(*(each.streams for each in nodes))


def parts_shared(node: Node) -> frozenset[int]:
    """Return the identities of objects that have inputs and are the input of several nodes, or twice of one."""
    uses = Counter(id(below) for each in nodes_of(node) for below in each.inputs if below.inputs)
    return frozenset(identity for identity, count in uses.items() if count > 1)


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a plan with every node replaced, from the bottom up, by the result of `change`.

    Parameters
    ----------
    node
        The plan.
    change
        Is given each node once, above inputs that have been replaced already.
    """
    made: dict[int, Node] = {}

    def visit(current: Node) -> Node:
        found = made.get(id(current))
        if found is None:
            found = made[id(current)] = change(above(current, tuple([visit(each) for each in current.inputs])))
        return found

    return visit(node)


def above(node: Node, inputs: tuple[Node, ...]) -> Node:
    """Return `node` above other inputs: the same object if its inputs are the same."""
    same = all(one is other for one, other in zip(node.inputs, inputs, strict=True))
    return node if same else node.with_inputs(inputs)


@remembered
def written_out(node: Node) -> int:
    """Return how many nodes a plan has as a tree, with shared parts counted wherever they occur."""
    below = (*node.inputs, node.table) if isinstance(node, Lookup | Held) else node.inputs
    return 1 + sum([written_out(each) for each in below])


@remembered
def levels(node: Node) -> int:
    """Return the number of nodes on the longest path from the top of a plan to a stream."""
    return 1 + max([levels(each) for each in node.inputs], default=0)


def named_operator(node: Node) -> str:
    """Return, in words, the topmost operator of a plan that its query names, apart from filters and projections."""
    top = node.below_filters
    return "UNION or an outer join" if isinstance(top, Union) else top.written_as


@remembered
def unbounded_operator(node: Node) -> str | None:
    """Return, in words, an operator of `node` that would have to keep every tuple, or None."""
    for each in node.inputs:
        if (found := unbounded_operator(each)) is not None:
            return found
    if node.keeps_tuples and any(each.stays_for_ever for each in node.inputs):
        return named_operator(node)
    return None

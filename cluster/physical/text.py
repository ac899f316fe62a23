"""A physical plan as text: shows what runs where; tests compare it as a whole.

    epoch 9: 3 queries in 2 fragments

    2 queries: slow, slower                                      queries that get the answers
      fragment fold-0f3a@0, without state                        what runs as a unit, and where
      answers                                                    all of it next to the scan
      └─ project sensor
         └─ grouped filter: 2 conditions
            └─ stream traffic: sensor, speed

    1 query: totals
      fragment fold-77e2@0, with state, spread over buckets
      answers
      └─ aggregate SUM(speed) by sensor [0 MergeAggregate]       behind the exchange; in brackets, the name of its state
         └─ exchange by sensor [0]                               rows go to the bucket of their sensor
            └─ first half of aggregate SUM(speed) by sensor      next to the scan
               └─ ...

The samples and columns that a pipeline takes of a scan are in the scan's line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cluster.expressions.timestamps import timestamp_iso
from cluster.physical.nodes import Fragment, Host, OperatorNode, PhysicalPlan, Work
from cluster.physical.operations import Columns, Exchange, GroupedFilter, Sample, Scan
from cluster.physical.words import describe, named, pane_window_words, queries_counted, scan_words
from cluster.plan.history import EVER_US


def plan_text(plan: PhysicalPlan, work: Mapping[str, Work] | None = None) -> str:
    """Return a plan as trees, answers on top and streams at the bottom; shared nodes appear once.

    Parameters
    ----------
    plan
        The plan.
    work
        By fragment, its work so far.
    """
    done = work or {}
    count = len(plan.subscribers) - sum(each.until is not None for each in plan.subscribers.values())
    fragments = "1 fragment" if len(plan.fragments) == 1 else f"{len(plan.fragments):,} fragments"
    lines = [f"epoch {plan.epoch}: {queries_counted(count)} in {fragments}"]
    for fragment in plan.fragments:
        lines += ["", *fragment_lines(fragment, done.get(fragment.identity))]
    return "\n".join(lines)


def fragment_lines(fragment: Fragment, work: Work | None = None) -> Iterator[str]:
    """Yield a fragment: its queries, where it runs, and its nodes as a tree."""
    names = list(dict.fromkeys(each.query for each in fragment.subscribers))
    yield f"{queries_counted(len(names))}: {named(names)}"
    yield f"  fragment {fragment.identity}, {where(fragment)}"
    if work is not None:
        yield f"  {work.words}"
    for window, readers in by_window(fragment).items():
        yield f"  {pane_window_words(*window)}: {named(readers)}"
    early = [each.query for each in fragment.subscribers if each.early]
    if early and fragment.late_nodes:
        yield f"  published early: {named(early)}"
    yield from handover_lines(fragment)
    yield from _tree(fragment)


def handover_lines(fragment: Fragment) -> Iterator[str]:
    """Yield which plan of a query answers until and from when, while or since one hands over to another."""
    for each in fragment.subscribers:
        name = f"{each.query}, as planned in epoch {each.visible_from}"
        if each.until is not None:
            yield f"  answers until {_instant(each.until.at_us)}{', cut there' if each.until.cut else ''}: {name}"
        elif each.since is not None:
            yield f"  answers from {_instant(each.since.at_us)}: {name}"


def _instant(at_us: int) -> str:
    return "the beginning" if at_us <= EVER_US else timestamp_iso(at_us)


def where(fragment: Fragment) -> str:
    """Return in words where a fragment runs."""
    if fragment.host is Host.STATELESS:
        return "without state"
    return "with state, spread over buckets" if fragment.spread else "with state, in the buckets of its query groups"


def by_window(fragment: Fragment) -> dict[tuple[int, int], list[str]]:
    """Return the queries of a fragment with shared panes by their windows, shortest first; else nothing."""
    found: dict[tuple[int, int], list[str]] = {}
    for each in fragment.subscribers:
        if each.window is not None:
            found.setdefault((each.window.size_us, each.window.slide_us), []).append(each.query)
    return dict(sorted(found.items()))


def shown(fragment: Fragment, node: OperatorNode) -> OperatorNode:
    """Return the first node, from one downwards, that has a line of its own.

    The line of a scan includes what its pipeline reads; a grouped filter without conditions only marks rows.
    """
    while isinstance(node.operation, Sample | Columns) or (
        isinstance(node.operation, GroupedFilter) and not _filters(fragment, node.operation)
    ):
        node = fragment.by_id[node.inputs[0]]
    return node


def _filters(fragment: Fragment, grouped: GroupedFilter) -> bool:
    return any(condition is not None for _, condition in fragment.conditions[grouped.place])


def _tree(fragment: Fragment) -> Iterator[str]:
    readers = Counter(each for node in fragment.nodes for each in node.inputs)
    behind = {node.id for node in fragment.behind}
    drawn: set[str] = set()

    def draw(node: OperatorNode, first: str, rest: str) -> Iterator[str]:
        node = shown(fragment, node)
        kept = node.id in behind or isinstance(node.operation, Exchange)
        name = f" [{node.id.removeprefix(f'{fragment.identity}/')}]" if kept else ""
        if node.id in drawn:
            yield f"{first}same as{name}"
            return
        if readers[node.id] > 1:
            drawn.add(node.id)
        yield f"{first}{_label(fragment, node)}{name}"
        for position, each in enumerate(node.inputs):
            last = position == len(node.inputs) - 1
            below = fragment.by_id[each]
            yield from draw(below, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    yield from draw(fragment.sink, "  ", "  ")


def _label(fragment: Fragment, node: OperatorNode) -> str:
    if not isinstance(node.operation, Scan):
        return describe(node, fragment)
    names = [column.name for column in node.operation.columns if not column.name.startswith("fjord_")]
    return f"{scan_words(fragment, node)}: {', '.join(names) or 'no columns'}"

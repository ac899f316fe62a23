"""A physical plan for people: as text, one line for each node, and as a graph of Mermaid or Graphviz.

**A physical plan as text: shows what runs where; tests compare it as a whole.**

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
from dataclasses import dataclass

from cluster.expressions.timestamps import timestamp_iso
from cluster.operators.columns import Scalar
from cluster.operators.extent import Coalescing, extent_words
from cluster.operators.operation import in_one_line, listed, own, readable
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, Host, OperatorNode, PhysicalPlan, Work
from cluster.physical.operations import Columns, Exchange, GroupedFilter, Sample, Scan, ScanAggregates, Sink
from cluster.plan.history import EVER_US
from protocols.text.quantities import format_duration

NAMED = 5
"""The most queries that are named; further ones are counted."""

ALL_ROWS = "all rows"
"""A grouped filter without conditions."""


def describe(node: OperatorNode, fragment: Fragment) -> str:
    """Return one line about a node of a fragment."""
    return in_one_line(_described(node, fragment))


def _described(node: OperatorNode, fragment: Fragment) -> str:
    match node.operation:
        case kinds.GroupedFilter(place=place):
            return filter_words([condition for _, condition in fragment.conditions[place]]) or ALL_ROWS
        case kinds.PerQueryFilter(place=place):
            return _choices([each.choices[place] for each in fragment.subscribers])
        case kinds.SharedExtents(keys=keys):
            return _extents([each.extent for each in fragment.subscribers if each.extent is not None], keys)
        case operation:
            return operation.describe()


def scan_words(fragment: Fragment, scan: OperatorNode) -> str:
    """Return one line about a scan, and the samples that the pipeline above takes."""
    above = scan.id
    for node in fragment.nodes:
        if above in node.inputs:
            if isinstance(node.operation, kinds.Sample):
                period_us = node.operation.period_us
                sampled = "" if period_us is None else f", sampled every {format_duration(period_us)}"
                return f"{describe(scan, fragment)}{sampled}"
            above = node.id
    return describe(scan, fragment)


def filter_words(conditions: list[Scalar | None]) -> str | None:
    """Return a grouped filter in words; None if it has no conditions."""
    if set(conditions) == {None}:
        return None
    everything = ", and queries without a condition" if None in conditions else ""
    some = [condition for condition in conditions if condition is not None]
    which = readable(some[0]) if len(some) == 1 else f"{len(set(some)):,} conditions"
    return f"grouped filter: {which}{everything}"


def pane_window_words(size_us: int, slide_us: int) -> str:
    """Return in words a window whose answers are made of shared panes."""
    return f"window of {format_duration(size_us)}, moving every {format_duration(slide_us)}"


def named(names: list[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def queries_counted(count: int) -> str:
    """Return a number of queries in words."""
    return "1 query" if count == 1 else f"{count:,} queries"


def _extents(extents: list[Coalescing], keys: tuple[str, ...]) -> str:
    by, different = own(keys), dict.fromkeys(extents)
    if len(different) == 1:
        return extent_words(extents[0], by)
    return f"coalesce in {len(different):,} ways{f' by {listed(by)}' if by else ''}, lazily"


def _choices(choices: list[Scalar]) -> str:
    different = set(choices)
    return f"filter {readable(choices[0])}" if len(different) == 1 else f"filter by {len(different):,} own conditions"


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


@dataclass(frozen=True, slots=True)
class Box:
    """A node of the graph: a stream, a grouped filter, an operator, or the topics of answers."""

    number: int
    label: str
    kind: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge of the graph: tuples go from one box to another, for a number of queries."""

    source: int
    target: int
    queries: int

    @property
    def words(self) -> str:
        """What stands beside it."""
        return "1 query" if self.queries == 1 else f"{self.queries:,} queries"


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """A plan's boxes, streams first, and the arrows between them."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def plan_graph(plan: PhysicalPlan, work: Mapping[str, Work] | None = None) -> PlanGraph:
    """Return a plan as a graph; parameters as of :func:`cluster.physical.text.plan_text`."""
    drawing = _Drawing(work or {})
    for fragment in plan.fragments:
        drawing.add(fragment)
    return PlanGraph(tuple(drawing.boxes), tuple(drawing.arrows))


class _Drawing:
    def __init__(self, work: Mapping[str, Work]) -> None:
        self.boxes: list[Box] = []
        self.arrows: list[Arrow] = []
        self._work = work
        self._scans: dict[str, int] = {}

    def add(self, fragment: Fragment) -> None:
        """Draw a fragment."""
        drawn: dict[str, int] = {}
        for node in fragment.nodes:
            if shown(fragment, node) is not node:
                drawn[node.id] = drawn[node.inputs[0]]
            elif isinstance(node.operation, Sink):
                self._answers(fragment, drawn[node.inputs[0]])
            else:
                drawn[node.id] = self._node(fragment, node, [drawn[each] for each in node.inputs])

    def _node(self, fragment: Fragment, node: OperatorNode, inputs: list[int]) -> int:
        operation = node.operation
        # Device partial aggregates are stored beside the samples.
        label = f"stream {operation.stream}" if isinstance(operation, ScanAggregates) else describe(node, fragment)
        if isinstance(operation, Scan | ScanAggregates):
            if label not in self._scans:
                self._scans[label] = self._box(label, "stream")
            return self._scans[label]
        return self._box(label, "filter" if isinstance(node.operation, GroupedFilter) else "operator", inputs, fragment)

    def _answers(self, fragment: Fragment, top: int) -> None:
        windows = by_window(fragment)
        if not windows:
            self._box(self._with_work(fragment, _names(fragment)), "answers", [top], fragment)
            return
        self.boxes[top] = Box(top, self._with_work(fragment, self.boxes[top].label), self.boxes[top].kind)
        for window, names in windows.items():
            place = self._box(pane_window_words(*window), "operator")
            self.arrows.append(Arrow(top, place, len(names)))
            self.arrows.append(Arrow(place, self._box(named(names), "answers"), len(names)))

    def _with_work(self, fragment: Fragment, label: str) -> str:
        done = self._work.get(fragment.identity)
        return label if done is None else f"{label}: {done.words}"

    def _box(self, label: str, kind: str, inputs: list[int] | None = None, fragment: Fragment | None = None) -> int:
        place = len(self.boxes)
        self.boxes.append(Box(place, label, kind))
        if inputs and fragment is not None:
            self.arrows.extend(Arrow(each, place, len(fragment.subscribers)) for each in inputs)
        return place


def _names(fragment: Fragment) -> str:
    return named([each.query for each in fragment.subscribers])


SHAPES = {"stream": ("[(", ")]"), "filter": ("{{", "}}"), "operator": ("[", "]"), "answers": ("([", "])")}


def mermaid(graph: PlanGraph) -> str:
    """Return the graph in Mermaid's language, which GitHub, GitLab and many editors draw."""
    lines = ["flowchart BT"]
    for box in graph.boxes:
        begin, end = SHAPES[box.kind]
        label = box.label.replace('"', "#quot;")
        lines.append(f'    n{box.number}{begin}"{label}"{end}')
    lines += [f"    n{arrow.source} -->|{arrow.words}| n{arrow.target}" for arrow in graph.arrows]
    return "\n".join(lines) + "\n"


DOT_SHAPES = {"stream": "cylinder", "filter": "hexagon", "operator": "box", "answers": "oval"}


def dot(graph: PlanGraph) -> str:
    """Return the graph in Graphviz' language."""
    lines = ["digraph plan {", "    rankdir=BT;", '    node [fontname="sans-serif"];']
    for box in graph.boxes:
        label = box.label.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'    n{box.number} [label="{label}", shape={DOT_SHAPES[box.kind]}];')
    lines += [f'    n{arrow.source} -> n{arrow.target} [label=" {arrow.words} "];' for arrow in graph.arrows]
    return "\n".join([*lines, "}"]) + "\n"

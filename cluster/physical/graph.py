"""A physical plan as a graph to draw: boxes and arrows, and the languages of Mermaid and Graphviz."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.physical.nodes import Fragment, OperatorNode, PhysicalPlan, Work
from cluster.physical.operations import GroupedFilter, Scan, ScanAggregates, Sink
from cluster.physical.text import by_window, shown
from cluster.physical.words import describe, named, pane_window_words


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

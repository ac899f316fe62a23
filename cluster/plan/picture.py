"""The shared plan as people see it: a tree to read, and a graph to draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from cluster.language.algebra import MEMBER, SINCE, Aggregate, Node, Source, inputs_of
from cluster.language.walks import from_below, parts_shared
from cluster.plan.epoch import Plan
from cluster.plan.explain import describe, readable
from cluster.plan.folding import Groups, fold
from cluster.plan.pane_folding import PaneFold
from protocols.durations import format_duration

NAMED = 5
"""Queries named; of more, only how many there are."""


@dataclass(frozen=True, slots=True)
class Work:
    """What was done for a part of a plan: tuples it was given, rows it answered (shared ones once), processor time."""

    tuples: int
    answers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Box:
    """Something in the picture: a stream, a grouped filter, an operator, or the topics of answers."""

    number: int
    label: str
    kind: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """Tuples go from one box to another, for so many queries."""

    source: int
    target: int
    queries: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A plan's boxes, streams first, and the arrows between them."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def plan_text(plan: Plan, work: Mapping[str, Work] | None = None) -> str:
    """Return a plan as trees, answers on top and streams at the bottom; what several queries share stands once.

    Parameters
    ----------
    plan
        The plan.
    work
        By part of it, what was done for it so far.
    """
    done = work or {}
    folded = fold(plan)
    count = len(plan.queries)
    shared = len(folded.folds) + len(folded.panes)
    lines = [f"epoch {plan.epoch}: {queries_counted(count)} in {shared:,} {'plan' if shared == 1 else 'plans'}"]
    for each in folded.folds:
        names = [member.query.name for member in each.members]
        lines += [
            "",
            f"{queries_counted(len(names))}: {named(names)}",
            *_done(each.shared.identity, done),
            *_tree(each.template, _filter_labels(each.groups)),
        ]
    for panes in folded.panes:
        names = [member.query.name for member in panes.members]
        label = f"{queries_counted(len(names))}, panes of {format_duration(panes.pane_us)}: {named(names)}"
        lines += [
            "",
            label,
            *_done(panes.name, done),
            *(f"  {each}" for each in _windows(panes)),
            *_tree(_panes(panes), _filter_labels((panes.groups,))),
        ]
    return "\n".join(lines)


def _done(identity: str, work: Mapping[str, Work]) -> Iterator[str]:
    if identity in work:
        yield f"  {_work_label(work[identity])}"


def _work_label(work: Work) -> str:
    return f"{work.tuples:,} tuples in, {work.answers:,} rows out, {work.seconds:,.2f} s of work"


def picture_of(plan: Plan, work: Mapping[str, Work] | None = None) -> Picture:
    """Return a plan as a graph; parameters as of :func:`plan_text`."""
    done = work or {}
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    streams: dict[str, int] = {}

    def box(label: str, kind: str) -> int:
        boxes.append(Box(len(boxes), label, kind))
        return len(boxes) - 1

    def told(identity: str, label: str) -> str:
        return f"{label}: {_work_label(done[identity])}" if identity in done else label

    def scan(stream: str) -> int:
        if stream not in streams:
            streams[stream] = box(f"stream {stream}", "stream")
        return streams[stream]

    def draw(node: Node, queries: int, filters: Sequence[str | None]) -> int:
        drawn: dict[int, int] = {}
        for each in from_below(node):
            drawn[id(each)] = draw_above(each, [drawn[id(below)] for below in inputs_of(each)], queries, filters)
        return drawn[id(node)]

    def draw_above(node: Node, inputs: list[int], queries: int, filters: Sequence[str | None]) -> int:
        if isinstance(node, Source):
            below, grouped = scan(node.stream), filters[node.occurrence]
            if grouped is not None:
                place = box(grouped, "filter")
                arrows.append(Arrow(below, place, queries))
                return place
            return below
        place = box(describe(node), "operator")
        arrows.extend(Arrow(each, place, queries) for each in inputs)
        return place

    folded = fold(plan)
    for each in folded.folds:
        names = [member.query.name for member in each.members]
        top = draw(each.template, len(names), _filter_labels(each.groups))
        arrows.append(Arrow(top, box(told(each.shared.identity, named(names)), "answers"), len(names)))
    for panes in folded.panes:
        shared = draw(_panes(panes), len(panes.members), _filter_labels((panes.groups,)))
        label = told(panes.name, boxes[shared].label)
        boxes[shared] = Box(shared, label, boxes[shared].kind)
        for window, names in _by_window(panes).items():
            place = box(_window_label(window), "operator")
            arrows.append(Arrow(shared, place, len(names)))
            arrows.append(Arrow(place, box(named(names), "answers"), len(names)))
    return Picture(tuple(boxes), tuple(arrows))


SHAPES = {"stream": ("[(", ")]"), "filter": ("{{", "}}"), "operator": ("[", "]"), "answers": ("([", "])")}


def mermaid(picture: Picture) -> str:
    """Return the graph in Mermaid's language, which GitHub, GitLab and many editors draw."""
    lines = ["flowchart BT"]
    for box in picture.boxes:
        begin, end = SHAPES[box.kind]
        label = box.label.replace('"', "#quot;")
        lines.append(f'    n{box.number}{begin}"{label}"{end}')
    lines += [f"    n{arrow.source} -->|{arrow.queries:,}| n{arrow.target}" for arrow in picture.arrows]
    return "\n".join(lines) + "\n"


DOT_SHAPES = {"stream": "cylinder", "filter": "hexagon", "operator": "box", "answers": "oval"}


def dot(picture: Picture) -> str:
    """Return the graph in Graphviz' language."""
    lines = ["digraph plan {", "    rankdir=BT;", '    node [fontname="sans-serif"];']
    for box in picture.boxes:
        label = box.label.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'    n{box.number} [label="{label}", shape={DOT_SHAPES[box.kind]}];')
    lines += [f'    n{arrow.source} -> n{arrow.target} [label="{arrow.queries:,}"];' for arrow in picture.arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _panes(each: PaneFold) -> Node:
    """Return what the windows of a fold share, as a query would write it."""
    made = (MEMBER.name, SINCE.name)
    chain = replace(each.chain, outputs=tuple(output for output in each.chain.outputs if output.name not in made))
    names = {key.name: readable(key.scalar) for key in each.keys}
    outputs = tuple(replace(output, name=names.get(output.name, output.name)) for output in chain.outputs)
    calls = tuple(
        replace(call, name=call.name.removeprefix("fjord_").replace("count(*)", "count")) for call in each.calls
    )
    return Aggregate(replace(chain, outputs=outputs), tuple(names.values()), calls)


def _by_window(each: PaneFold) -> dict[tuple[int, int], list[str]]:
    found: dict[tuple[int, int], list[str]] = {}
    for member in each.members:
        window = (member.pane_query.size_us, member.pane_query.slide_us)
        found.setdefault(window, []).append(member.query.name)
    return dict(sorted(found.items()))


def _window_label(window: tuple[int, int]) -> str:
    return f"window of {format_duration(window[0])}, moving every {format_duration(window[1])}"


def _windows(each: PaneFold) -> Iterator[str]:
    for window, names in _by_window(each).items():
        yield f"{_window_label(window)}: {named(names)}"


def _filter_labels(groups: Sequence[Groups]) -> list[str | None]:
    """Return, by source, what is above it; None where everybody wants everything."""
    return [_filter_label(each) for each in groups]


def _filter_label(groups: Groups) -> str | None:
    conditions = [predicate for _, predicate in groups]
    if set(conditions) == {None}:
        return None
    everything = ", and queries that want everything" if None in conditions else ""
    some = [predicate for predicate in conditions if predicate is not None]
    told = readable(some[0]) if len(some) == 1 else f"{len(set(some)):,} conditions"
    return f"grouped filter: {told}{everything}"


def _tree(node: Node, filters: Sequence[str | None]) -> Iterator[str]:
    numbers: dict[int, int] = {}
    shared = parts_shared(node)

    def draw(current: Node, first: str, rest: str) -> Iterator[str]:
        if id(current) in numbers:
            yield f"{first}same as [{numbers[id(current)]}]"
            return
        if id(current) in shared:
            numbers[id(current)] = len(numbers) + 1
            first = f"{first}[{numbers[id(current)]}] "
        if isinstance(current, Source):
            grouped = filters[current.occurrence]
            if grouped is not None:
                yield f"{first}{grouped}"
                first = f"{rest}└─ "
            yield f"{first}{describe(current)}"
            return
        yield f"{first}{describe(current)}"
        below = inputs_of(current)
        for position, each in enumerate(below):
            last = position == len(below) - 1
            yield from draw(each, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    yield from draw(node, "  ", "  ")


def named(names: list[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def queries_counted(count: int) -> str:
    """Return a number of queries in words."""
    return "1 query" if count == 1 else f"{count:,} queries"

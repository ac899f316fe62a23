"""What a plan means, instant by instant, straight from the definitions (papers/pipes_algebra.md section 3).

Slow and small: streams of whole numbers over a few instants. Shares nothing with the operators.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET
from sqlglot import exp

from cluster.language.dialect import parse_scalar
from cluster.operators import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    KeptExtent,
    Node,
    PartitionedWindow,
    PatternMatch,
    Project,
    Ranked,
    SemiJoin,
    SessionWindow,
    Source,
    StampJoin,
    TimeWindow,
    Union,
    UntilNext,
    WindowBounds,
    Zip,
)
from cluster.operators import Sequence as Ordered
from cluster.operators.columns import AggregateCall, Ordering
from cluster.operators.window_shapes import Grid, Session
from tests.cluster.extent_definition import runs_of
from tests.cluster.oracle.kept_definition import Sample, Window, rows_at
from tests.cluster.pattern_plans import pattern_rows
from tests.cluster.sequence_definition import sequence_rows
from tests.cluster.stamp_join_definition import stamp_join_rows
from tests.cluster.zip_definition import zip_rows

Row = tuple[Any, ...]
Snapshots = list[Counter[Row]]
"""The bag at each instant 0, 1, 2, ..."""
Streams = dict[str, list[tuple[int, Row]]]
"""Stamped rows of each base stream."""

COMPARE: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Mod: lambda one, other: None if other == 0 else abs(one) % abs(other) * (1 if one >= 0 else -1),
}


def value(tree: exp.Expr, row: dict[str, Any]) -> Any:
    """Value of an expression, with three-valued logic."""
    match tree:
        case exp.Paren():
            return value(tree.this, row)
        case exp.Column():
            return row[tree.name]
        case exp.Literal():
            return int(tree.this)
        case exp.Boolean():
            return tree.this
        case exp.Null():
            return None
        case exp.Cast():
            inner = value(tree.this, row)
            assert inner is None, "whole numbers are converted to nothing else here"
            return None
        case exp.Neg():
            inner = value(tree.this, row)
            return None if inner is None else -inner
        case exp.Not():
            inner = value(tree.this, row)
            return None if inner is None else not inner
        case exp.And():
            both = {value(tree.this, row), value(tree.expression, row)}
            return False if False in both else None if None in both else True
        case exp.Or():
            both = {value(tree.this, row), value(tree.expression, row)}
            return True if True in both else None if None in both else False
        case exp.Is():
            return value(tree.this, row) is None
        case exp.In():
            wanted = value(tree.this, row)
            found = {
                None if wanted is None or v is None else wanted == v for v in (value(e, row) for e in tree.expressions)
            }
            return True if True in found else None if None in found else False
        case exp.Coalesce():
            return next((v for each in (tree.this, *tree.expressions) if (v := value(each, row)) is not None), None)
        case _:
            one, other = value(tree.this, row), value(tree.expression, row)
            return None if one is None or other is None else COMPARE[type(tree)](one, other)


def evaluate(node: Node, streams: Streams, instants: int) -> Snapshots:  # noqa: C901, PLR0911, PLR0912 - a case per kind
    """Snapshots of `node` at each of the first `instants` instants."""

    def of(each: Node) -> Snapshots:
        return evaluate(each, streams, instants)

    names = [column.name for column in node.schema]
    match node:
        case Source():
            return [Counter(row for stamp, row in streams[node.stream] if stamp == t) for t in range(instants)]
        case TimeWindow():
            if node.grid is not UNSET:
                return _grid_window(of(node.input), node.grid, node.slide_us)
            return _time_window(of(node.input), node.size_us, node.slide_us)
        case WindowBounds():
            return [
                Counter({(*row, *_bounds(node.grid, t)): n for row, n in bag.items()})
                for t, bag in enumerate(of(node.input))
            ]
        case SessionWindow():
            return _sessions(of(node.input), [names.index(key) for key in node.keys], node.session)
        case UntilNext():
            return _until_next(of(node.input), [names.index(key) for key in node.keys], node)
        case CountWindow():
            return _count_window(of(node.input), node.rows, node.slide_rows)
        case PartitionedWindow():
            below = of(node.input)
            places = [names.index(key) for key in node.keys]
            groups = {tuple(row[place] for place in places) for bag in below for row in bag}
            parts = [
                _count_window(
                    [Counter({r: n for r, n in bag.items() if tuple(r[p] for p in places) == group}) for bag in below],
                    node.rows,
                    node.slide_rows,
                )
                for group in groups
            ]
            return [_sum(part[t] for part in parts) for t in range(instants)]
        case Filter():
            tree = parse_scalar(node.predicate.sql)
            return [
                Counter({row: n for row, n in bag.items() if value(tree, dict(zip(names, row, strict=True))) is True})
                for bag in of(node.input)
            ]
        case Project():
            inner = [column.name for column in node.input.schema]
            trees = [parse_scalar(output.scalar.sql) for output in node.outputs]
            return [
                _counted(
                    (tuple(value(tree, dict(zip(inner, row, strict=True))) for tree in trees), n)
                    for row, n in bag.items()
                )
                for bag in of(node.input)
            ]
        case Join() | SemiJoin() | AntiJoin():
            return [_joined(node, one, other) for one, other in zip(of(node.left), of(node.right), strict=True)]
        case PatternMatch():
            return _stamped(pattern_rows(node, stamped_rows(of(node.input))), instants)
        case KeptExtent():
            return kept_snapshots(node, of(node.input))
        case Ordered():
            return _ordered(node, of(node.input))
        case Zip():
            return _zipped(node, of(node.left), of(node.right))
        case StampJoin():
            return _by_stamps(node, of(node.left), of(node.right))
        case Union():
            return [one + other for one, other in zip(of(node.left), of(node.right), strict=True)]
        case Difference():
            return [one - other for one, other in zip(of(node.left), of(node.right), strict=True)]
        case Intersection():
            return [one & other for one, other in zip(of(node.left), of(node.right), strict=True)]
        case Distinct():
            return [Counter(dict.fromkeys(bag, 1)) for bag in of(node.input)]
        case Granularity():
            return [bag if t % node.granule_us == 0 else Counter() for t, bag in enumerate(of(node.input))]
        case Istream():
            below = of(node.input)
            return [bag - (below[t - 1] if t else Counter()) for t, bag in enumerate(below)]
        case Dstream():
            # What follows the last instant is not known: callers leave it out.
            below = of(node.input)
            return [bag - (below[t + 1] if t + 1 < instants else Counter()) for t, bag in enumerate(below)]
        case Aggregate():
            return [_aggregated(node, bag) for bag in of(node.input)]
        case Extent():
            return [_extent(node, bag) for bag in of(node.input)]
        case Ranked():
            return [_ranked(node, bag) for bag in of(node.input)]


def _extent(node: Extent, bag: Counter[Row]) -> Counter[Row]:
    link = node.coalescing.link
    tree = exp.Boolean(this=True) if link is None else parse_scalar(link.condition.sql)
    columns = [column.name for column in node.input.schema]
    return Counter(
        runs_of(bag.elements(), columns, node.keys, node.coalescing, lambda named: value(tree, named) is True)
    )


def _ranked(node: Ranked, bag: Counter[Row]) -> Counter[Row]:
    names = [column.name for column in node.input.schema]
    keys = [names.index(key) for key in node.keys]

    def place_of(each: Ordering, row: Row) -> tuple[int, int]:
        found = row[names.index(each.column)]
        if found is None:
            return (0 if each.nulls_first else 2), 0
        return 1, -found if each.descending else found

    def order(row: Row) -> tuple[tuple[int, int], ...]:
        return tuple(place_of(each, row) for each in node.order)

    found: list[Row] = []
    for group in {tuple(row[key] for key in keys) for row in bag}:
        rows = sorted((row for row in bag.elements() if tuple(row[key] for key in keys) == group), key=order)
        orders = [order(row) for row in rows]
        for number, row in enumerate(rows, start=1):
            before = [each for each in orders if each < order(row)]
            place = {"row_number": number, "rank": len(before) + 1, "dense_rank": len(set(before)) + 1}[node.function]
            if place > node.above and (node.most is None or place <= node.most):
                found.append(row if node.name is None else (*row, place))
    return Counter(found)


def _sum(bags: Iterable[Counter[Row]]) -> Counter[Row]:
    total: Counter[Row] = Counter()
    for bag in bags:
        total.update(bag)
    return total


def _counted(pairs: Iterable[tuple[Row, int]]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, count in pairs:
        found[row] += count
    return found


def _time_window(below: Snapshots, size: int | None, slide: int) -> Snapshots:
    found = []
    for t in range(len(below)):
        last = (t + 1) // slide * slide
        first = 0 if size is None else max(last - size, 0)
        found.append(_sum(below[first:last]))
    return found


def _grid_window(below: Snapshots, grid: Grid, slide: int) -> Snapshots:
    """The window as it was at the last change: its tuples are those since a boundary, or of so long before one."""
    found = []
    for t in range(len(below)):
        boundaries = [b for b in range(-grid.step.count, t + 2) if (b - grid.offset_us) % grid.step.count == 0]
        if grid.size is not None:
            last = boundaries[-1]
            first = last - grid.size.count
        else:
            last = max(boundaries[-1], (t + 1) // slide * slide)
            first = max(b for b in boundaries if b < last)
        found.append(_sum(below[max(first, 0) : max(last, 0)]))
    return found


def _bounds(grid: Grid, t: int) -> tuple[int, int]:
    assert grid.size is not None
    last = max(b for b in range(-grid.step.count, t + 2) if (b - grid.offset_us) % grid.step.count == 0)
    return last - grid.size.count, last


def kept_snapshots(node: KeptExtent, below: Snapshots) -> Snapshots:
    """Return the rows of what is kept, at each instant."""
    names, kept = [column.name for column in node.input.schema], node.kept
    found: Snapshots = [Counter() for _ in below]
    apart = {tuple(row[names.index(each)] for each in kept.apart) for bag in below for row in bag}
    for own in apart:
        numbered: list[tuple[Any, Sample]] = []
        for stamp, row in stamped_rows(below):
            one = dict(zip(names, row, strict=True))
            if tuple(one[each] for each in kept.apart) != own:
                continue
            key, run, number = tuple(one[each] for each in kept.keys), one.pop(kept.run), one.pop(kept.number)
            place = (stamp, [(each is None, each) for each in key], number)
            numbered.append((place, Sample(stamp, key, run, tuple(one.values()))))
        samples = [each for _, each in sorted(numbered, key=lambda one: one[0])]
        window = Window(kept.size_us if kept.rows is None else None, kept.slide_us, kept.rows)
        window = window if kept.rows is None else Window(None, kept.slide_rows, kept.rows)
        for t, bag in enumerate(found):
            bag.update((*values, *rest) for values, *rest in rows_at(samples, window, kept.most, t))
    return found


def _sessions(below: Snapshots, places: list[int], session: Session) -> Snapshots:
    found: Snapshots = [Counter() for _ in below]
    for key in {tuple(row[place] for place in places) for bag in below for row in bag}:
        bags = [Counter({r: n for r, n in bag.items() if tuple(r[p] for p in places) == key}) for bag in below]
        for stamps, closes in sessions_of([t for t, bag in enumerate(bags) if bag], session):
            for stamp in stamps:
                for t in range(stamp, closes) if session.early else (closes,):
                    if t < len(found):
                        found[t] += bags[stamp]
    return found


def _until_next(below: Snapshots, places: list[int], node: UntilNext) -> Snapshots:
    found: Snapshots = [Counter() for _ in below]
    for key in {tuple(row[place] for place in places) for bag in below for row in bag}:
        bags = [Counter({r: n for r, n in bag.items() if tuple(r[p] for p in places) == key}) for bag in below]
        stamps = [t for t, bag in enumerate(bags) if bag]
        for stamp, later in zip(stamps, [*stamps[1:], None], strict=True):
            ends = [each for each in (later, node.longest_us and stamp + node.longest_us) if each is not None]
            end = min(ends, default=len(found))
            shown = (stamp, end) if node.bounds else ()
            for t in range(stamp, min(end if node.lasts else stamp + 1, len(found))):
                found[t] += Counter({(*row, *shown): n for row, n in bags[stamp].items()})
    return found


def sessions_of(stamps: list[int], session: Session) -> list[tuple[list[int], int]]:
    """Return the sessions of one key's stamps, which are in order: the stamps of each, and when it closes."""
    runs: list[list[int]] = []
    for stamp in stamps:
        run = runs[-1] if runs else []
        if run and stamp - run[-1] <= session.gap_us and stamp - run[0] < session.longest_us:
            run.append(stamp)
        else:
            runs.append([stamp])
    return [(run, min(run[-1] + session.gap_us, run[0] + session.longest_us)) for run in runs]


def _count_window(below: Snapshots, rows: int | None, slide: int) -> Snapshots:
    found = []
    seen: list[Row] = []
    for bag in below:
        assert bag.total() <= 1, "count windows are defined for one tuple an instant"
        seen += bag.elements()
        last = len(seen) // slide * slide
        found.append(Counter(seen[0 if rows is None else max(last - rows, 0) : last]))
    return found


def _joined(node: Join | SemiJoin | AntiJoin, left: Counter[Row], right: Counter[Row]) -> Counter[Row]:
    names = [column.name for side in (node.left, node.right) for column in side.schema]
    tree = parse_scalar(node.predicate.sql) if node.predicate else exp.Boolean(this=True)

    def meets(one: Row, other: Row) -> bool:
        return value(tree, dict(zip(names, one + other, strict=True))) is True

    if isinstance(node, Join):
        return _counted((a + b, m * n) for a, m in left.items() for b, n in right.items() if meets(a, b))
    wanted = isinstance(node, SemiJoin)
    return Counter({row: n for row, n in left.items() if any(meets(row, other) for other in right) == wanted})


def _zipped(node: Zip, left: Snapshots, right: Snapshots) -> Snapshots:
    sides = [stamped_rows(side) for side in (left, right)]
    names = [[column.name for column in side.schema] for side in (node.left, node.right)]
    places = [[names[side].index(pair[side]) for pair in node.keys] for side in (0, 1)]
    keys = [lambda row, at=at: tuple(row[place] for place in at) for at in places]
    widths = (len(names[0]), len(names[1]))
    found = zip_rows(sides[0], sides[1], (keys[0], keys[1]), (node.low_us, node.high_us), node.kind, widths)
    return _stamped(found, len(left))


def stamped_rows(snapshots: Snapshots) -> list[tuple[int, Row]]:
    """Return what is valid at each instant."""
    return [(t, row) for t, bag in enumerate(snapshots) for row in bag.elements()]


def _stamped(rows: list[tuple[int, Row]], instants: int) -> Snapshots:
    """Return the snapshots of rows that are valid at one instant."""
    found: Snapshots = [Counter() for _ in range(instants)]
    for at, row in rows:
        if at < instants:
            found[at][row] += 1
    return found


def met_by(node: StampJoin) -> Callable[[Row, Row], bool]:
    """Whether two rows have equal keys and meet the condition of a join by stamps."""
    names = [column.name for column in node.schema]
    equal = [f'"{one}" = "{other}"' for one, other in node.keys]
    tree = parse_scalar(" AND ".join([*equal, f"({node.predicate.sql})" if node.predicate else "TRUE"]))
    return lambda one, other: value(tree, dict(zip(names, one + other, strict=True))) is True


def _by_stamps(node: StampJoin, left: Snapshots, right: Snapshots) -> Snapshots:
    sides = [[(t, row) for t, bag in enumerate(side) for row in bag.elements()] for side in (left, right)]
    meets = met_by(node)
    widths = (len(node.left.schema), len(node.right.schema))
    found: Snapshots = [Counter() for _ in left]
    for at, row in stamp_join_rows(
        sides[0], sides[1], meets, (node.low_us, node.high_us), node.kind, widths, latest=node.latest
    ):
        if at < len(found):
            found[at][row] += 1
    return found


def _ordered(node: Ordered, below: Snapshots) -> Snapshots:
    names = [column.name for column in node.input.schema]
    rows = [(t, row) for t, bag in enumerate(below) for row in bag.elements()]
    found: Snapshots = [Counter() for _ in below]
    for at, row in sequence_rows(rows, names, node.keys, node.ties, node.calls):
        found[at][row] += 1
    return found


def _aggregated(node: Aggregate, bag: Counter[Row]) -> Counter[Row]:
    names = [column.name for column in node.input.schema]
    groups: dict[Row, list[dict[str, Any]]] = {}
    for row in bag.elements():
        named = dict(zip(names, row, strict=True))
        groups.setdefault(tuple(named[key] for key in node.keys), []).append(named)
    return Counter(key + tuple(_call(call, rows) for call in node.calls) for key, rows in groups.items())


def _call(call: AggregateCall, rows: list[dict[str, Any]]) -> Any:
    if call.argument is None:
        return len(rows)
    tree = parse_scalar(call.argument.sql)
    values = [found for row in rows if (found := value(tree, row)) is not None]
    values = list(dict.fromkeys(values)) if call.distinct else values
    if call.function == "count":
        return len(values)
    return {"sum": sum, "min": min, "max": max}[call.function](values) if values else None

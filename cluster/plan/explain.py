"""Plans as trees that people can read."""

from __future__ import annotations

import re
from collections import Counter

import msgspec
from msgspec import UNSET

from cluster.language.algebra import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Filter,
    Granularity,
    Held,
    Intersection,
    Istream,
    Join,
    KeptExtent,
    Lookup,
    Node,
    PartitionedWindow,
    PatternMatch,
    Project,
    Ranked,
    Relation,
    SemiJoin,
    Sequence,
    SessionWindow,
    Source,
    StampJoin,
    TableLookup,
    TimeWindow,
    Union,
    UntilNext,
    WindowBounds,
    Zip,
    ZipKind,
    inputs_of,
    schema_of,
)
from cluster.language.columns import AggregateCall, Ordering, Output, RankFunction, Scalar
from cluster.language.extents import Coalescing
from cluster.language.kept_tuples import KeptTuples
from cluster.language.plans import plain_column
from cluster.language.row_patterns import RowPattern, pattern_text
from cluster.language.sequence_calls import SequenceCall
from cluster.language.stream_reading import History
from cluster.language.translation import Query
from cluster.language.window_shapes import Grid, Session, Span
from cluster.plan.relations_read import relations_of
from cluster.plan.rewrite import Rewritten
from protocols.text.durations import format_duration

_PICTURES = {**{code: 0x2400 + code for code in range(32)}, 0x7F: 0x2421, 0x85: 0x2424, 0x2028: 0x2424, 0x2029: 0x2424}
"""Pictures of control characters in texts: a line feed would otherwise end the operator's line."""

_SIMPLE_NAME = re.compile(r'"([^\W\d]\w*(?:\.[^\W\d]\w*)?)"')


def explain(node: Node, *, schemas: bool = False) -> str:
    """Return `node` as a tree, the result on top and the streams at the bottom.

    A part that occurs twice in the plan is computed once; it is numbered at its first place.

    Parameters
    ----------
    node
        The plan.
    schemas
        True to write the columns of every node behind it, with types and units.
    """
    return "\n".join(f"{line}{_columns(each) if schemas and not again else ''}" for line, each, again in tree_of(node))


def tree_of(node: Node) -> list[tuple[str, Node, bool]]:
    """Return the lines of a plan as a tree, each with its node, and whether it only refers to another line."""
    counts: Counter[Node] = Counter()
    _count(node, counts)
    numbers: dict[Node, int] = {}
    lines: list[tuple[str, Node, bool]] = []

    def draw(current: Node, first: str, rest: str) -> None:
        shared = counts[current] > 1 and inputs_of(current)
        if shared and current in numbers:
            lines.append((f"{first}same as [{numbers[current]}]", current, True))
            return
        label = describe(current)
        if shared:
            numbers[current] = len(numbers) + 1
            label = f"[{numbers[current]}] {label}"
        lines.append((f"{first}{label}", current, False))
        below = inputs_of(current)
        for position, each in enumerate(below):
            last = position == len(below) - 1
            draw(each, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    draw(node, "", "")
    return lines


def explained(query: Query, rewritten: Rewritten, *, schemas: bool = False) -> str:
    """Return the meaning of a query, the rules that have made it cheaper, and the plan that would run."""
    rules = [f"  {number}. {_readable_rule(name)}" for number, name in enumerate(rewritten.applied, start=1)]
    sections = [
        "Logical plan",
        explain(query.node, schemas=schemas),
        "",
        "Rules applied",
        *(rules or ["  none"]),
        "",
        "Rewritten plan",
        explain(rewritten.node, schemas=schemas) if rules else "the same",
    ]
    if query.warnings:
        sections += ["", "Warnings", *(f"  {warning}" for warning in query.warnings)]
    return "\n".join(sections)


def describe(node: Node) -> str:  # noqa: C901, PLR0911, PLR0912 - one line per kind of node
    """Return one line about `node` itself."""
    match node:
        case Source():
            return _source(node)
        case Relation():
            return f"relation {node.name}"
        case Lookup():
            return described_lookup(node)
        case TimeWindow():
            if node.grid is not UNSET:
                return grid_words(node.grid, node.slide_us)
            return window_words(node.size_us, node.slide_us) + allowed_words(node) + _family_words(node)
        case WindowBounds():
            return bounds_words(node.grid, node.start, node.end)
        case SessionWindow():
            return session_words(node.session, node.keys)
        case UntilNext():
            return until_next_words(node.keys, node.longest_us, whole=node.bounds is not None, lasts=node.lasts)
        case CountWindow():
            return count_window_words(node.rows, node.slide_rows, ())
        case PartitionedWindow():
            return count_window_words(node.rows, node.slide_rows, node.keys)
        case Filter():
            return f"filter {'by own condition' if node.choice is not None else readable(node.predicate)}"
        case Project():
            return f"project {listed(tuple(output_words(output) for output in node.outputs))}"
        case Join():
            return f"join {readable(node.predicate)}" if node.predicate else "product"
        case Zip():
            return zip_words(node.kind, node.low_us, node.high_us, node.keys)
        case PatternMatch():
            return pattern_words(node.pattern, node.keys)
        case Held():
            return held_words(node.table, filled=node.waits_us > 0)
        case StampJoin():
            bounds_us = (node.low_us, node.high_us)
            return stamp_join_words(node.kind, bounds_us, node.keys, node.predicate, latest=node.latest)
        case Sequence():
            return sequence_words(node.calls, node.keys)
        case KeptExtent():
            return kept_words(node.kept)
        case SemiJoin():
            return "keep if any" + (f" {readable(node.predicate)}" if node.predicate else "")
        case AntiJoin():
            return "keep if none" + (f" {readable(node.predicate)}" if node.predicate else "")
        case Aggregate():
            return aggregate_words(node.calls, node.keys)
        case Extent():
            return extent_words(node.coalescing, node.keys)
        case Ranked():
            return ranked_words(node.function, node.keys, node.order, (node.above, node.most), node.name)
        case Granularity():
            return f"granularity of {format_duration(node.granule_us)}{allowed_words(node)}"
        case Union():
            return "union"
        case Difference():
            return "difference"
        case Intersection():
            return "intersection"
        case Distinct():
            return "distinct"
        case Istream():
            return "insertions"
        case Dstream():
            return "deletions"


def window_words(size_us: int | None, slide_us: int) -> str:
    """Return one line about a window by time."""
    size = "unbounded" if size_us is None else f"of {format_duration(size_us)}"
    return f"window {size}{'' if slide_us == 1 else f', moving every {format_duration(slide_us)}'}"


def allowed_words(node: TimeWindow | Granularity) -> str:
    """Return how short or coarse the author allows a window or granularity to be."""
    if node.allowed is UNSET:
        return ""
    worst = format_duration(node.allowed.worst_us)
    return f", at least {worst}" if isinstance(node, TimeWindow) else f", at most {worst}"


def _family_words(node: TimeWindow) -> str:
    return "" if node.family_us is UNSET else f", with panes of the family of {format_duration(node.family_us)}"


def grid_words(grid: Grid, slide_us: int) -> str:
    """Return one line about a window whose boundaries lie on a grid."""
    zone = f" in {grid.zone}" if grid.step.calendar else ""
    moved = f" plus {format_duration(grid.offset_us)}" if grid.offset_us else ""
    boundaries = f"every {_span_words(grid.step)}{zone}{moved}"
    if grid.size is not None:
        return f"window of {_span_words(grid.size)}, moving {boundaries}"
    slide = "" if slide_us == 1 else f", shown every {format_duration(slide_us)}"
    return f"window that is reset {boundaries}{slide}"


def _span_words(span: Span) -> str:
    return span.words if span.calendar else format_duration(span.count)


def bounds_words(grid: Grid, start: str, end: str) -> str:
    """Return one line about the bounds of a window as columns."""
    return f"bounds of the {grid_words(grid, 1)}: {listed((start, end))}"


def session_words(session: Session, keys: tuple[str, ...]) -> str:
    """Return one line about a window of sessions."""
    shown = ", shown while they are open" if session.early else ""
    of_each = f" of each {listed(keys)}" if keys else ""
    gap, longest = format_duration(session.gap_us), format_duration(session.longest_us)
    return f"sessions{of_each} with gaps of at most {gap}, cut after {longest}{shown}"


def until_next_words(keys: tuple[str, ...], longest_us: int | None, *, whole: bool, lasts: bool) -> str:
    """Return one line about tuples that hold until the next one."""
    next_one = f"the next one of each {listed(keys)}" if keys else "the next one"
    most = "" if longest_us is None else f", at most {format_duration(longest_us)}"
    shown = (", its interval in columns" if whole else "") + ("" if lasts else ", valid at its own instant")
    return f"each tuple until {next_one}{most}{shown}"


def extent_words(how: Coalescing, keys: tuple[str, ...]) -> str:
    """Return one line about samples that are coalesced."""
    by = f" by {listed(keys)}" if keys else ""
    link = "" if how.link is None else f" while {readable(how.link.condition)}"
    for name, column in how.link.before if how.link is not None else ():
        link = f"PREV({column})".join(re.split(rf"\b{re.escape(name)}\b", link))
    kept = "" if how.kept == "eager" else ", lazily"
    return f"coalesce {listed(how.columns)}{by}{link}{kept}"


def count_window_words(rows: int | None, slide_rows: int, keys: tuple[str, ...]) -> str:
    """Return one line about a window by count."""
    size = "unbounded" if rows is None else f"of the last {_tuples(rows)}"
    return f"window {size}{f' for each {listed(keys)}' if keys else ''}{_row_slide(slide_rows)}"


def kept_words(kept: KeptTuples) -> str:
    """Return one line about coalesced rows of a window that keeps fewer tuples."""
    in_time = window_words(kept.size_us, kept.slide_us)
    window = in_time if kept.rows is None else count_window_words(kept.rows, kept.slide_rows, ())
    by = f" by {listed(kept.keys)}" if kept.keys else ""
    return f"coalesced{by}, at most {_tuples(kept.most)} kept of a {window}"


def aggregate_words(calls: tuple[AggregateCall, ...], keys: tuple[str, ...]) -> str:
    """Return one line about an aggregate."""
    what = f" {listed(tuple(call_words(call) for call in calls))}" if calls else ""
    return f"aggregate{what}{f' by {listed(keys)}' if keys else ''}"


def ranked_words(
    function: RankFunction,
    keys: tuple[str, ...],
    order: tuple[Ordering, ...],
    places: tuple[int, int | None],
    name: str | None,
) -> str:
    """Return one line about rows by their places in an order."""
    above, most = places
    which = "all rows" if most is None else "no row" if most <= above else f"the first {most - above:,}"
    if above:
        which += f" behind {above:,}"
    by = listed(tuple(_key_words(each) for each in order))
    shown = "" if name is None else f", {name} = {function.upper()}()"
    return f"{which}{f' for each {listed(keys)}' if keys else ''} by {by}{shown}"


def _key_words(key: Ordering) -> str:
    return f"{key.column}{' DESC' if key.descending else ''}{' NULLS FIRST' if key.nulls_first else ''}"


def described_lookup(lookup: Lookup | TableLookup) -> str:
    """Return one line about a lookup, without its table."""
    names = listed(tuple(dict.fromkeys(relation.name for relation in relations_of(lookup.table))))
    on = f" on {readable(lookup.predicate)}" if lookup.predicate else ""
    match lookup.kind:
        case "inner":
            return f"look up in {names}{on}"
        case "left":
            return f"look up in {names}{on}, or NULLs"
        case "semi":
            return f"keep if found in {names}{on}"
        case "anti":
            return f"keep if not found in {names}{on}"


def held_words(table: Node, *, filled: bool) -> str:
    """Return one line about rows of relations that flow, without the plan of their table."""
    names = listed(tuple(dict.fromkeys(relation.name for relation in relations_of(table))))
    return f"rows of {names} while they hold{', once the windows they are held against can be full' if filled else ''}"


def in_one_line(text: str) -> str:
    """Return a text with pictures in place of control characters."""
    return text.translate(_PICTURES)


def readable(scalar: Scalar) -> str:
    """Return an expression in one line, without the quotes that simple names do not need.

    >>> from cluster.plan.expressions import read_scalar
    >>> from protocols.wire.streams import FieldType
    >>> readable(read_scalar('"speed" > "avg(speed)"', FieldType.BOOLEAN))
    'speed > "avg(speed)"'
    """
    pieces = re.split(r"('(?:[^']|'')*')", in_one_line(scalar.sql))
    return "".join(piece if piece.startswith("'") else _SIMPLE_NAME.sub(r"\1", piece) for piece in pieces)


def _count(node: Node, counts: Counter[Node]) -> None:
    counts[node] += 1
    if counts[node] == 1:
        for each in inputs_of(node):
            _count(each, counts)


def _source(node: Source) -> str:
    sample = "" if node.sample_period_us is None else f", sampled every {format_duration(node.sample_period_us)}"
    slowest = "" if not node.slowest_us else f", at least every {format_duration(node.slowest_us)}"
    lifetime = "" if not node.lifetime_us else f", to last {format_duration(node.lifetime_us)}"
    past = "" if node.history is None else f", since {since_words(node.history)}"
    errors = "".join(f", {each.field} within {each.error:g}" for each in node.tolerances)
    what = f"stream {node.stream}"
    if node.detector is not None:
        field, above, below = msgspec.structs.astuple(node.detector)
        what = f"events of {node.stream} where {field} rises to {above:g} and falls to {below:g}"
    lookups = "".join(f"; {described_lookup(each)}" for each in node.lookups)
    return f"{what}{past}{sample}{slowest}{errors}{lifetime}{lookups}"


def since_words(history: History) -> str:
    """Return from which instant on a query reads stored tuples."""
    return "the beginning" if history.back_us is None else f"{format_duration(history.back_us)} ago"


def zip_words(kind: ZipKind, low_us: int, high_us: int, keys: tuple[tuple[str, str], ...]) -> str:
    """Return one line about a zipper join."""
    which = "" if kind == "inner" else f"{kind} "
    bounds = _signed(high_us) if low_us == -high_us else f"{_signed(low_us)} to {_signed(high_us)}"
    on = f" on {listed(tuple(f'{one} = {other}' for one, other in keys))}" if keys else ""
    return f"{which}zip within {bounds}{on}"


def pattern_words(pattern: RowPattern, keys: tuple[str, ...]) -> str:
    """Return one line about a pattern of rows."""
    within = "" if pattern.within_us is None else f" within {format_duration(pattern.within_us)}"
    skip = (
        f", then {pattern.skip.kind} {pattern.skip.variable}".rstrip() if pattern.skip.kind != "past last row" else ""
    )
    by = f" for each {listed(keys)}" if keys else ""
    return f"match {pattern_text(pattern.elements)}{within}{skip}{by}"


def stamp_join_words(
    kind: ZipKind,
    bounds_us: tuple[int | None, int],
    keys: tuple[tuple[str, str], ...],
    predicate: Scalar | None,
    *,
    latest: bool,
) -> str:
    """Return one line about an ASOF join or an interval join."""
    low_us, high_us = bounds_us
    which = "" if kind == "inner" else f"{kind} "
    on = f" on {listed(tuple(f'{one} = {other}' for one, other in keys))}" if keys else ""
    if latest:
        before = "before" if high_us < 0 else "up to then"
        return f"{which}join with the latest {before}{'' if low_us is None else f' within {_signed(-low_us)}'}{on}"
    bounds = f"{'any time before' if low_us is None else _signed(low_us)} to {_signed(high_us)}"
    return f"{which}join of stamps {bounds} apart{on}{f' and {readable(predicate)}' if predicate else ''}"


def sequence_words(calls: tuple[SequenceCall, ...], keys: tuple[str, ...]) -> str:
    """Return one line about functions over tuples in order."""
    of_each = f" of each {listed(keys)}" if keys else ""
    return f"in order{of_each}: {listed(tuple(_sequence_call_words(call) for call in calls))}"


def _sequence_call_words(call: SequenceCall) -> str:
    argument = "*" if call.argument is None else call.argument
    if call.function in ("lag", "lead"):
        default = "" if call.default is None else f", {call.default}"
        within = "" if call.within_us is None else f" within {_signed(call.within_us)}"
        return f"{call.function.upper()}({argument}, {call.rows}{default}){within}"
    known = " IGNORE NULLS" if call.known else ""
    return f"{call.function.upper()}({argument}{known}) {_frame_words(call)}"


def _frame_words(call: SequenceCall) -> str:
    if call.rows is not None:
        if call.until_rows:
            return f"from {call.rows} to {call.until_rows} tuples before"
        return f"of {_tuples(call.rows)} before and this one"
    end = format_duration(call.until_us) if call.until_us else ""
    if call.range_us is not None:
        begin = format_duration(call.range_us)
        return f"from {begin} to {end} before" if end else f"of the last {begin}"
    if call.until_rows:
        end = "1 tuple" if call.until_rows == 1 else _tuples(call.until_rows)
    return f"until {end} before" if end else "so far"


def _signed(distance_us: int) -> str:
    return f"{'-' if distance_us < 0 else ''}{format_duration(abs(distance_us))}" if distance_us else "0s"


def output_words(output: Output) -> str:
    """Return one column of a projection, with its expression if that differs from its name."""
    return output.name if plain_column(output.scalar) == output.name else f"{output.name} = {readable(output.scalar)}"


def call_words(call: AggregateCall) -> str:
    """Return one aggregate, with its name if that differs from the call."""
    if call.argument is None:
        plain = "COUNT(*)" if call.function == "count" else f"{call.function.upper()}()"
        # Aggregates that share panes have names that describe them in full.
        return plain if call.name in (call.function, f"fjord_{call.function}(*)") else f"{call.name} = {plain}"
    distinct = "DISTINCT " if call.distinct else ""
    share = "" if call.parameter is None else f", {call.parameter:g}"
    compared = "" if call.by is msgspec.UNSET else f", {readable(call.by)}"
    return f"{call.function.upper()}({distinct}{readable(call.argument)}{compared}{share}{call.joined})"


def _tuples(count: int) -> str:
    return "tuple" if count == 1 else f"{count} tuples"


def _row_slide(rows: int) -> str:
    return "" if rows == 1 else f", moving every {rows} tuples"


def listed(names: tuple[str, ...]) -> str:
    """Return names as a list."""
    return ", ".join(names)


def _columns(node: Node) -> str:
    columns = ", ".join(
        f"{column.name} {column.type.value}{f' [{column.unit}]' if column.unit else ''}" for column in schema_of(node)
    )
    return f"  ({columns})"


def _readable_rule(name: str) -> str:
    return name.replace("_", " ")

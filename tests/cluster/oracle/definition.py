"""The oracle: what a logical plan means, instant by instant, straight from papers/pipes_algebra.md section 3.

Every node is one table expression of a single DuckDB query, with a row per stream set, instant and tuple:

    #run   which of several stream sets (one query answers many at once)
    #t     the instant
    #n     multiplicity, at least 1
    #o     place in order of arrival; NULL where there is none any more (only count windows with equal stamps ask)

and then the node's columns. Slow, small, and sharing nothing with the operators: no Polars, no intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
from msgspec import UNSET
from sqlglot import exp

from cluster.expressions.called_functions import (
    CLASSES,
    JsonExists,
    JsonExtract,
    JsonExtractString,
    JsonQuery,
    JsonValue,
    LeftPad,
    RegexExtract,
    RegexMatches,
    RegexReplace,
    RightPad,
)
from cluster.expressions.nodes import Call, Expression, UserCall
from cluster.expressions.text import text_of
from cluster.expressions.timestamps import interval_us, timestamp_us
from cluster.expressions.walks import rebuilt
from cluster.language.dialect import parse_scalar
from cluster.language.syntax import IntervalLiteral, TimeFunction, TimestampLiteral
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
    Project,
    Ranked,
    SemiJoin,
    SessionWindow,
    Source,
    TimeWindow,
    Union,
    UntilNext,
    WindowBounds,
)
from cluster.operators import Sequence as Ordered
from cluster.operators.columns import STAMP, AggregateCall, Joining, Scalar, Schema
from cluster.operators.window_shapes import DAY_US, Grid
from cluster.physical.rules.pipelines import stored_columns
from protocols.wire.streams import FieldType
from tests.cluster.aggregate_rows import AGGREGATE_ROWS
from tests.cluster.calendar_definition import boundaries_of
from tests.cluster.document_macros import DOCUMENT_MACROS
from tests.cluster.functions.declared import MEANINGS
from tests.cluster.oracle.sequence_sql import OrderSql
from tests.cluster.oracle.session_windows import session_closings
from tests.cluster.published_tuples import taken
from tests.cluster.scalar_rows import SCALAR_ROWS

Row = tuple[Any, ...]
Streams = Mapping[str, Sequence[tuple[int, Row]]]
"""By stream: stamped tuples, in the order in which they arrive."""
Bag = Counter[Row]
Snapshots = list[Bag]
"""The bag at each instant 0, 1, 2, ..."""

SQL_TYPES = {
    FieldType.BOOLEAN: "BOOLEAN",
    FieldType.INTEGER: "BIGINT",
    FieldType.REAL: "DOUBLE",
    FieldType.TEXT: "VARCHAR",
    FieldType.TIMESTAMP: "BIGINT",
    FieldType.LOCAL_TIMESTAMP: "BIGINT",
    FieldType.INTERVAL: "BIGINT",
}
ARROW_TYPES = {
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.INTEGER: pa.int64(),
    FieldType.REAL: pa.float64(),
    FieldType.TEXT: pa.string(),
}
SETTINGS = (
    "SET GLOBAL threads = 1",
    "SET GLOBAL error_on_division_by_zero = false",  # x / 0 and x % 0 are NULL
    "SET GLOBAL ieee_floating_point_ops = false",
    # The angle between two directions in space, from their sine and cosine: another formula than the haversine.
    """CREATE OR REPLACE MACRO distance_metres(a, b, c, d) AS
        CASE WHEN abs(a) <= 90 AND abs(c) <= 90 AND abs(b) <= 360 AND abs(d) <= 360 THEN 6371008.8 * atan2(
            sqrt(
                pow(cos(radians(c)) * sin(radians(d) - radians(b)), 2) + pow(
                    cos(radians(a)) * sin(radians(c))
                    - sin(radians(a)) * cos(radians(c)) * cos(radians(d) - radians(b)),
                    2
                )
            ),
            sin(radians(a)) * sin(radians(c)) + cos(radians(a)) * cos(radians(c)) * cos(radians(d) - radians(b))
        ) END""",
    # Timestamps are microseconds, and DuckDB's own only while something is computed of them.
    """CREATE OR REPLACE MACRO timestamp_micros(us) AS
        CASE WHEN us >= epoch_us(TIMESTAMP '0001-01-01') AND us < epoch_us(TIMESTAMP '10000-01-01') THEN us END""",
    "CREATE OR REPLACE MACRO timestamp_text(us) AS strftime(make_timestamp(us), '%Y-%m-%dT%H:%M:%S.%fZ')",
    "CREATE OR REPLACE MACRO local_text(us) AS strftime(make_timestamp(us), '%Y-%m-%dT%H:%M:%S.%f')",
    "CREATE OR REPLACE MACRO timestamp_seconds(n) AS timestamp_micros(n::HUGEINT * 1000000)::BIGINT",
    "CREATE OR REPLACE MACRO timestamp_plus(us, i) AS timestamp_micros(us::HUGEINT + i)::BIGINT",
    "CREATE OR REPLACE MACRO timestamp_minus(a, b) AS a - b",
    "CREATE OR REPLACE MACRO interval_times(i, n) AS CAST(round_even(i::DOUBLE * n, 0) AS BIGINT)",
    "CREATE OR REPLACE MACRO epoch_seconds(us) AS us::DOUBLE / 1000000.0::DOUBLE",
    "CREATE OR REPLACE MACRO timestamp_part(us, p) AS CAST(date_part(lower(p), make_timestamp(us)) AS BIGINT)",
    "CREATE OR REPLACE MACRO timestamp_floor(us, u) AS epoch_us(date_trunc(lower(u), make_timestamp(us)))",
    "CREATE OR REPLACE MACRO timestamp_number(us, u) AS date_diff(lower(u), make_timestamp(0), make_timestamp(us))",
    "CREATE OR REPLACE MACRO timestamp_format(us, p) AS strftime(make_timestamp(us), p)",
    "CREATE OR REPLACE MACRO zone_local(us, z) AS epoch_us(timezone(z, make_timestamptz(us)))",
    "CREATE OR REPLACE MACRO zone_instant(us, z) AS epoch_us(timezone(z, make_timestamp(us)))",
    *MEANINGS,
)
HEAD = '"#run", "#t"'


class NoDefinitionError(Exception):
    """The oracle does not know what this means."""


@dataclass(frozen=True)
class Meaning:
    """What a plan means on several stream sets.

    Parameters
    ----------
    snapshots
        By stream set: the bag at each instant.
    ambiguous
        Stream sets for which the plan has no one meaning: different tuples with equal stamps, in no known order,
        below a count window (section 3: "the window is ambiguous").
    granule
        Only instants that are multiples of this are promised.
    """

    snapshots: list[Snapshots]
    ambiguous: frozenset[int]
    granule: int


def evaluate(node: Node, runs: Sequence[Streams], instants: int) -> Meaning:
    """Return the snapshots of `node` at the instants 0 to `instants` - 1, for each of `runs`.

    Parameters
    ----------
    node
        The plan.
    runs
        Stream sets.
    instants
        How many; at least :func:`horizon_of`, so that nothing changes any more at the last one.
    """
    writer = _Writer(node, len(runs), instants)
    found = _connection().cursor()
    try:
        for source in _sources(node):
            found.register(_table(source), _arrow(source, runs))
        snapshots: list[Snapshots] = [[Counter() for _ in range(instants)] for _ in runs]
        for run, instant, count, *row in found.execute(writer.snapshots()).fetchall():
            snapshots[run][instant][tuple(row)] = count
        ambiguous = frozenset(run for (run,) in found.execute(sql).fetchall()) if (sql := writer.ambiguity()) else ()
    finally:
        found.close()
    return Meaning(snapshots, frozenset(ambiguous), granule_of(node))


def horizon_of(node: Node, last: int) -> int:
    """Return how many instants to look at so that nothing changes after them, if no stamp is above `last`."""
    reach = 4 + granule_of(node)
    stack = [node]
    while stack:
        each = stack.pop()
        stack.extend(each.inputs)
        if isinstance(each, TimeWindow) and each.grid is not UNSET and each.grid.step.calendar:
            reach += each.slide_us if each.grid.size is None else 0  # the next boundary is never reached
        elif isinstance(each, TimeWindow):
            reach += (each.size_us or 0) + each.slide_us
        if isinstance(each, SessionWindow):
            reach += each.session.gap_us
        if isinstance(each, KeptExtent):
            reach += each.kept.size_us + each.kept.slide_us
        if isinstance(each, UntilNext):
            reach += each.longest_us or 0
    return last + reach


def granule_of(node: Node) -> int:
    """Return at which multiples alone a plan's snapshots are promised; 1 for all (rule G1)."""
    import math

    own = node.granule_us if isinstance(node, Granularity) else 1
    return math.lcm(own, *(granule_of(each) for each in node.inputs))


@lru_cache(maxsize=1)
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for macro in DOCUMENT_MACROS:
        connection.execute(macro)
    for setting in SETTINGS:
        connection.execute(setting)
    return connection


def _sources(node: Node) -> list[Source]:
    if isinstance(node, Source):
        return [node]
    found = {_table(each): each for child in node.inputs for each in _sources(child)}
    return list(found.values())


def _table(source: Source) -> str:
    period = "" if source.sample_period_us is None else f" every {source.sample_period_us}"
    return f"stream {source.stream}{period}"


def _arrow(source: Source, runs: Sequence[Streams]) -> pa.Table:
    rows = [
        (run, stamp, place, *row)
        for run, streams in enumerate(runs)
        for place, ((stamp, row), kept) in enumerate(
            zip(streams[source.stream], taken(streams[source.stream], source.sample_period_us), strict=True)
        )
        if kept
    ]
    stored = stored_columns(source)
    columns = list(zip(*rows, strict=True)) if rows else [()] * (3 + len(stored))
    types = [pa.int64()] * 3 + [ARROW_TYPES[column.type] for column in stored]
    names = ["#run", "#t", "#o", *(column.name for column in stored)]
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


def _named(node: Expression) -> Expression:
    """Return a call of a function of a user as one of DuckDB's macro with its meaning."""
    return Call(f"own_{node.function.name}", node.arguments) if isinstance(node, UserCall) else node


@lru_cache(maxsize=16_384)
def scalar_sql(scalar: Scalar) -> str:
    """Return a scalar in DuckDB's words, of exactly its type."""
    root = exp.Paren(this=parse_scalar(text_of(rebuilt(scalar.expression, _named))).copy())
    for tree in reversed(list(root.this.dfs())):  # from the leaves up
        tree.replace(_in_duckdb(tree))
    return f"CAST({root.sql(dialect='duckdb', identify=True)} AS {SQL_TYPES[scalar.type]})"


_SUBSTRING = (
    "CASE WHEN {1} IS NOT NULL AND {2} IS NOT NULL "
    "THEN substring({0}, greatest({1}, 1), greatest({2} + least({1}, 1) - 1, 0)) END"
)


_SHORT = "list_filter([{0}], lambda made: length(made) <= 10000)[1]"  # TRY cannot be used with subqueries
_FILLED = "CASE WHEN {2} <= 10000 THEN {0}({1}, CAST(greatest({2}, 0) AS INTEGER), {3}) END"
_MATCHES = "REGEXP_MATCHES({0}, {1})"
_EXTRACT = "CASE WHEN REGEXP_MATCHES({0}, {1}) THEN REGEXP_EXTRACT({0}, {1}, {2}) END"
_REWRITE = _SHORT.format("REGEXP_REPLACE({0}, {1}, {2}, 'g')")
_PART = (
    "CASE WHEN {1} = '' THEN CASE WHEN {2} IN (1, -1) THEN {0} WHEN NOT {0} || {2} IS NULL THEN '' END "
    "ELSE split_part({0}, {1}, {2}) END"
)

_TRUTH = (
    "coalesce(TRY_CAST({0} AS BOOLEAN), TRY_CAST({0} AS DOUBLE) <> 0, "
    "TRY_CAST(trim(CAST({0} AS TEXT), ' ' || chr(9) || chr(10) || chr(13)) AS BOOLEAN))"
)


def _operands_of(tree: exp.Expr) -> list[str]:
    return [tree.args[slot].sql(dialect="duckdb") for slot in tree.arg_types if tree.args.get(slot)]


def _substring_of(tree: exp.Expr) -> list[exp.Expr]:
    return [tree.this, tree.args["start"], tree.args.get("length") or exp.Literal.number(1_000_000)]


_WRITTEN = {
    RegexMatches: _MATCHES,
    RegexReplace: _REWRITE,
    JsonValue: "f_json_scalar({0}, {1})",
    JsonQuery: "f_json_container({0}, {1})",
    JsonExists: "f_json_exists({0}, {1})",
    JsonExtract: "f_json_part({0}, {1})",
    JsonExtractString: "f_json_text({0}, {1})",
}
_PARTIAL = tuple(CLASSES[row.name] for row in SCALAR_ROWS if row.gives is FieldType.REAL)
"""Functions that DuckDB refuses for some arguments."""


def _in_duckdb(tree: exp.Expr) -> exp.Expr:
    """Make explicit what FjordSQL says and DuckDB does otherwise."""
    match tree:
        case exp.TryCast():
            return tree
        case exp.Cast():  # a failed cast is NULL
            cast = exp.TryCast(this=tree.this.copy(), to=tree.args["to"].copy())
            if tree.args["to"].is_type("boolean"):  # a text of a number is as true as the number; spaces do not matter
                return exp.maybe_parse(_TRUTH.format(tree.this.sql(dialect="duckdb", identify=True)), dialect="duckdb")
            if tree.args["to"].is_type("int", "bigint"):  # a half becomes the even one, in a text as in a number
                number = exp.TryCast(this=tree.this.copy(), to=exp.DataType.build("DOUBLE"))
                rounded = exp.TryCast(this=number, to=tree.args["to"].copy())
                text = exp.Cast(this=tree.this.copy(), to=exp.DataType.build("TEXT"))
                fraction = exp.Like(this=text, expression=exp.Literal.string("%.%"))
                return exp.Paren(this=exp.case().when(fraction, rounded).else_(cast))
            return cast
        case exp.Substring():  # standard SQL: places before the first count towards the length
            return exp.maybe_parse(
                _SUBSTRING.format(*(each.sql(dialect="duckdb") for each in _substring_of(tree))), dialect="duckdb"
            )
        case exp.Literal() if not tree.is_string and not tree.this.isdecimal():  # reals, never decimals
            return exp.Cast(this=tree.copy(), to=exp.DataType.build("DOUBLE"))
        case LeftPad() | RightPad():  # an empty filling fills nothing, and what is too long is NULL
            text, length, *filling = _operands_of(tree)
            return exp.maybe_parse(
                _FILLED.format(tree.sql_name(), text, length, *(filling or ("' '",))), dialect="duckdb"
            )
        case exp.SplitPart():  # nothing separates by an empty separator
            return exp.maybe_parse(_PART.format(*_operands_of(tree)), dialect="duckdb")
        case exp.Replace():
            return exp.maybe_parse(_SHORT.format(tree.sql(dialect="duckdb")), dialect="duckdb")
        case RegexExtract():  # NULL where nothing matches
            text, pattern, *group = _operands_of(tree)
            return exp.maybe_parse(_EXTRACT.format(text, pattern, *(group or ("0",))), dialect="duckdb")
        case _ if type(tree) in _WRITTEN:
            return exp.maybe_parse(_WRITTEN[type(tree)].format(*_operands_of(tree)), dialect="duckdb")
        case exp.Concat():  # leaves NULLs out
            parts = [exp.Coalesce(this=part.copy(), expressions=[exp.Literal.string("")]) for part in tree.expressions]
            return exp.Concat(expressions=parts, **{k: v for k, v in tree.args.items() if k != "expressions"})
        case _ if type(tree) in _PARTIAL:  # NULL where there is none
            return exp.Anonymous(this="TRY", expressions=[tree.copy()])
        case _:
            return _about_time(tree)


def _about_time(tree: exp.Expr) -> exp.Expr:
    """Return the number that a timestamp or an interval is, and calls of the macros above; other trees as they are."""
    if isinstance(tree, TimeFunction):
        return exp.Anonymous(this=tree.this, expressions=[each.copy() for each in tree.expressions])
    if isinstance(tree, TimestampLiteral | IntervalLiteral):
        read = timestamp_us if isinstance(tree, TimestampLiteral) else interval_us
        return exp.Literal.number(read(tree.this.this))
    return tree


def _names(schema: Schema) -> str:
    return "".join(f', "{column.name}"' for column in schema)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _within(schema: Schema, table: str) -> str:
    return "".join(f', {table}."{column.name}"' for column in schema)


def _floor(instant: str, step: int, offset: int = 0) -> str:
    """Return the greatest multiple of a step, moved by an offset, that is not above an instant (of 0 or later)."""
    return f"((({instant}) - {offset} + {step}) // {step} - 1) * {step} + {offset}"


def _bounds_of(window: TimeWindow) -> tuple[str, str]:
    """Return the first instant whose tuples a window has at i, and the one behind the last."""
    if window.grid is UNSET:
        last = _floor('i."#t" + 1', window.slide_us)
        return "0" if window.size_us is None else f"{last} - {window.size_us}", last
    step, offset = window.grid.step.count, window.grid.offset_us
    if window.grid.step.calendar:
        return _bounds_by_calendar(window.grid, window.slide_us)
    if window.grid.size is not None:
        last = _floor('i."#t" + 1', step, offset)
        return f"{last} - {window.grid.size.count}", last
    # What it has changes at multiples of the slide, and at boundaries.
    last = f'greatest({_floor("""i."#t" + 1""", window.slide_us)}, {_floor("""i."#t" + 1""", step, offset)})'
    return _floor(f"{last} - 1", step, offset), last


def _bounds_by_calendar(grid: Grid, slide: int) -> tuple[str, str]:
    """Return the same for a calendar, of which one boundary is near the instants, and another before them."""
    near = boundaries_of(grid, -800 * DAY_US, DAY_US // 2)[::-1]

    def last_of(instant: str, *, begin: bool = False) -> str:
        cases = " ".join(f"WHEN {instant} >= {at} THEN {since if begin else at}" for at, since in near)
        return f"(CASE {cases} END)"

    if grid.size is not None:
        return last_of('i."#t" + 1', begin=True), last_of('i."#t" + 1')
    last = f'greatest({_floor("""i."#t" + 1""", slide)}, {last_of("""i."#t" + 1""")})'
    return last_of(f"{last} - 1"), last


class _Writer:
    """Writes the query: one common table expression per node; equal nodes share one."""

    def __init__(self, root: Node, runs: int, instants: int) -> None:
        ranges = f"range({runs}) r, range({instants}) i"
        self._parts = [f'instants AS MATERIALIZED (SELECT r.range AS "#run", i.range AS "#t" FROM {ranges})']
        self._written: dict[Node, str] = {}
        self._ambiguity: list[str] = []
        self._last = instants - 1
        self._root = self.of(root)
        self._names = _names(root.schema)

    def snapshots(self) -> str:
        """Return the query for all snapshots of the root."""
        return (
            f'WITH {", ".join(self._parts)} SELECT {HEAD}, CAST(sum("#n") AS BIGINT){self._names} '
            f"FROM {self._root} GROUP BY {HEAD}{self._names}"
        )

    def ambiguity(self) -> str | None:
        """Return the query for the stream sets on which the plan is ambiguous; None if it cannot be."""
        if not self._ambiguity:
            return None
        return f"WITH {', '.join(self._parts)} {' UNION '.join(self._ambiguity)}"

    def of(self, node: Node) -> str:
        """Write a node's table expression; return its name."""
        if node not in self._written:
            sql = self._sql(node)
            counted = f'SELECT * REPLACE (CAST("#n" AS BIGINT) AS "#n") FROM ({sql})'
            self._written[node] = self._part("node", counted)
        return self._written[node]

    def _part(self, kind: str, sql: str) -> str:
        name = f"{kind}{len(self._parts)}"
        self._parts.append(f"{name} AS MATERIALIZED ({sql})")
        return name

    def _sql(self, node: Node) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per kind of node
        names = _names(node.schema)
        match node:
            case Source():
                stored = _names(stored_columns(node))
                stamp = f', "#t" AS "{STAMP.name}"' if STAMP in node.columns else ""
                return f'SELECT {HEAD}, 1 AS "#n", "#o"{stored}{stamp} FROM "{_table(node)}"'
            case TimeWindow():
                return self._time_window(node, names)
            case WindowBounds():
                step = node.grid.step.usual_us
                first, last = _bounds_of(TimeWindow(node.input, node.grid.size_us, step, node.grid))
                bounds = f'{first} AS "{node.start}", {last} AS "{node.end}"'.replace('i."#t"', '"#t"')
                return f"SELECT *, {bounds} FROM {self.of(node.input)}"
            case SessionWindow():
                return self._sessions(node)
            case UntilNext():
                return self._until_next(node)
            case CountWindow():
                return self._count_window(node, node.rows, node.slide_rows, ())
            case PartitionedWindow():
                return self._count_window(node, node.rows, node.slide_rows, tuple(dict.fromkeys(node.keys)))
            case Filter():
                return f"SELECT * FROM {self.of(node.input)} WHERE {scalar_sql(node.predicate)}"
            case Project():
                outputs = "".join(f', {scalar_sql(each.scalar)} AS "{each.name}"' for each in node.outputs)
                return f'SELECT {HEAD}, "#n", "#o"{outputs} FROM {self.of(node.input)}'
            case Union():
                right = _names(node.right.schema)
                return (
                    f'SELECT {HEAD}, "#n", NULL::BIGINT AS "#o"{names} FROM {self.of(node.left)} UNION ALL '
                    f'SELECT {HEAD}, "#n", NULL::BIGINT AS "#o"{right} FROM {self.of(node.right)}'
                )
            case Join():
                columns = _within(node.left.schema, "l") + _within(node.right.schema, "r")
                return (
                    f'SELECT l."#run", l."#t", l."#n" * r."#n" AS "#n", NULL::BIGINT AS "#o"{columns} '
                    f'FROM {self.of(node.left)} l JOIN {self.of(node.right)} r ON l."#run" = r."#run" '
                    f'AND l."#t" = r."#t" AND {self._condition(node.predicate)}'
                )
            case SemiJoin() | AntiJoin():
                some = "EXISTS" if isinstance(node, SemiJoin) else "NOT EXISTS"
                return (
                    f'SELECT l."#run", l."#t", l."#n", NULL::BIGINT AS "#o"{names} FROM {self.of(node.left)} l WHERE '
                    f'{some} (SELECT 1 FROM {self.of(node.right)} r WHERE l."#run" = r."#run" AND l."#t" = r."#t" '
                    f"AND {self._condition(node.predicate)})"
                )
            case Distinct():
                return f'SELECT DISTINCT {HEAD}, 1 AS "#n", NULL::BIGINT AS "#o"{names} FROM {self.of(node.input)}'
            case Difference():
                return self._subtract(
                    self.of(node.left), self.of(node.right), node, 'greatest(sum("#l") - sum("#r"), 0)'
                )
            case Intersection():
                return self._subtract(self.of(node.left), self.of(node.right), node, 'least(sum("#l"), sum("#r"))')
            case Granularity():
                return f'SELECT * FROM {self.of(node.input)} WHERE "#t" % {node.granule_us} = 0'
            case Istream():  # S(t) - S(t - 1)
                return self._change(node, f'SELECT "#run", "#t" + 1 AS "#t", "#n"{names} FROM {self.of(node.input)}')
            case Dstream():  # S(t) - S(t + 1), and nothing changes after the last instant
                below = self.of(node.input)
                return self._change(
                    node,
                    f'SELECT "#run", "#t" - 1 AS "#t", "#n"{names} FROM {below} UNION ALL '
                    f'SELECT "#run", "#t", "#n"{names} FROM {below} WHERE "#t" = {self._last}',
                )
            case Aggregate():
                return self._aggregate(node)
            case Extent():
                return self._extent(node)
            case Ranked():
                return self._ranked(node)
            case Ordered():
                return self._ordered(node, names)

    def _ordered(self, node: Ordered, names: str) -> str:
        """Every copy of a tuple is one of its own."""
        below = f'(SELECT *, unnest(range("#n")) AS "#copy" FROM {self.of(node.input)})'
        quoted = [[f'"{name}"' for name in each] for each in (node.keys, node.ties)]
        order = OrderSql(('"#run"', *dict.fromkeys(quoted[0])), '"#t"', quoted[1])
        calls = "".join(
            f", {order.of(call, call.argument and _quoted(call.argument), call.default and _quoted(call.default))}"
            f' AS "{call.name}"'
            for call in node.calls
        )
        own = _names(node.input.schema)
        rows = f"SELECT {HEAD}{own}{calls} FROM {order.placed(below)}"
        return f'SELECT {HEAD}, count(*) AS "#n", NULL::BIGINT AS "#o"{names} FROM ({rows}) GROUP BY {HEAD}{names}'

    def _time_window(self, node: TimeWindow, names: str) -> str:
        """Sum of S(x) for x in [max(k - w, 0), k - 1], where k = floor((t + 1) / a) * a; empty for t < a - 1."""
        below = self.of(node.input)
        if node.size_us == 1 and node.slide_us == 1:
            return f"SELECT * FROM {below}"  # by the same formula, but keeps the order of arrival
        first, last = _bounds_of(node)
        return (
            f'SELECT i."#run", i."#t", sum(s."#n") AS "#n", NULL::BIGINT AS "#o"{names} FROM instants i '
            f'JOIN {below} s ON i."#run" = s."#run" AND s."#t" >= {first} AND s."#t" <= {last} - 1 '
            f'WHERE {last} > 0 GROUP BY i."#run", i."#t"{names}'
        )

    def _sessions(self, node: SessionWindow) -> str:
        """S(x) where the session of its tuples closes at t, or, if it is shown early, is open at t."""
        below, keys = self.of(node.input), [f'"{key}"' for key in dict.fromkeys(node.keys)]
        names = _within(node.schema, "s")
        closings = self._part("sessions", session_closings(below, '"#run"', '"#t"', keys, node.session))
        same = " AND ".join(f"s.{each} IS NOT DISTINCT FROM c.{each}" for each in ('"#run"', '"#t"', *keys))
        valid = 's."#t" <= i."#t" AND i."#t" < c.closes' if node.session.early else 'i."#t" = c.closes'
        return (
            f'SELECT i."#run", i."#t", sum(s."#n") AS "#n", NULL::BIGINT AS "#o"{names} FROM instants i '
            f'JOIN {below} s ON i."#run" = s."#run" JOIN {closings} c ON {same} AND {valid} '
            f'GROUP BY i."#run", i."#t"{names}'
        )

    def _until_next(self, node: UntilNext) -> str:
        """S(x) where x is the last stamp of its key up to t, and not too long ago."""
        below, keys = self.of(node.input), [f'"{key}"' for key in dict.fromkeys(node.keys)]
        names = _within(node.input.schema, "s")
        by = ", ".join(('"#run"', *keys))
        most = "" if node.longest_us is None else f', "#t" + {node.longest_us}'
        ends = self._part(
            "held",
            f'SELECT *, least(lead("#t") OVER (PARTITION BY {by} ORDER BY "#t"){most}) AS ends '
            f'FROM (SELECT DISTINCT {by}, "#t" FROM {below})',
        )
        same = " AND ".join(f"s.{each} IS NOT DISTINCT FROM e.{each}" for each in ('"#run"', '"#t"', *keys))
        valid = 's."#t" <= i."#t" AND (e.ends IS NULL OR i."#t" < e.ends)' if node.lasts else 's."#t" = i."#t"'
        both = zip(('s."#t"', "e.ends"), node.bounds or (), strict=False)
        bounds = "".join(f', {value} AS "{name}"' for value, name in both)
        groups = ', s."#t", e.ends' if bounds else ""
        return (
            f'SELECT i."#run", i."#t", sum(s."#n") AS "#n", NULL::BIGINT AS "#o"{names}{bounds} '
            f'FROM instants i JOIN {below} s ON i."#run" = s."#run" JOIN {ends} e ON {same} AND {valid} '
            f'GROUP BY i."#run", i."#t"{groups}{names}'
        )

    def _count_window(
        self, node: CountWindow | PartitionedWindow, rows: int | None, slide: int, keys: tuple[str, ...]
    ) -> str:
        """Elements numbered [max(k - N + 1, 1), k], where k = floor(n(t) / A) * A; by group."""
        below, names = self.of(node.input), _names(node.schema)
        groups = "".join(f', "{key}"' for key in keys)
        same = "".join(f' AND c."{key}" IS NOT DISTINCT FROM s."{key}"' for key in keys)
        by_group = "".join(f', s."{key}"' for key in keys)
        numbered = self._part(
            "numbered",
            f'SELECT *, row_number() OVER (PARTITION BY "#run"{groups} ORDER BY "#t", "#o") AS "#i" '
            f'FROM (SELECT *, unnest(range("#n")) AS "#copy" FROM {below})',
        )
        counted = self._part(
            "counted",
            f'SELECT i."#run", i."#t", (count(*) // {slide}) * {slide} AS "#k"{by_group} '
            f'FROM instants i JOIN {numbered} s ON i."#run" = s."#run" AND s."#t" <= i."#t" '
            f'GROUP BY i."#run", i."#t"{by_group}',
        )
        self._ambiguity.append(
            f'SELECT "#run" FROM (SELECT DISTINCT {HEAD}{names} FROM {below} WHERE "#o" IS NULL) '
            f"GROUP BY {HEAD}{groups} HAVING count(*) > 1"
        )
        first = "" if rows is None else f' AND s."#i" > c."#k" - {rows}'
        return (
            f'SELECT c."#run", c."#t", count(*) AS "#n", NULL::BIGINT AS "#o"{_within(node.schema, "s")} '
            f'FROM {counted} c JOIN {numbered} s ON c."#run" = s."#run"{same} AND s."#i" <= c."#k"{first} '
            f'GROUP BY c."#run", c."#t"{_within(node.schema, "s")}'
        )

    def _condition(self, predicate: Scalar | None) -> str:
        return "true" if predicate is None else scalar_sql(predicate)

    def _subtract(self, left: str, right: str, node: Difference | Intersection, count: str) -> str:
        return self._counted(
            f'SELECT {HEAD}, "#n"{_names(node.schema)} FROM {left}',
            f'SELECT {HEAD}, "#n"{_names(node.right.schema)} FROM {right}',
            node,
            count,
        )

    def _change(self, node: Istream | Dstream, other: str) -> str:
        return self._counted(
            f'SELECT {HEAD}, "#n"{_names(node.schema)} FROM {self.of(node.input)}',
            other,
            node,
            'greatest(sum("#l") - sum("#r"), 0)',
        )

    def _counted(self, left: str, right: str, node: Node, count: str) -> str:
        """Multiplicities of both sides, side by side; NULLs are equal to each other."""
        names = _names(node.schema)
        return (
            f'SELECT {HEAD}, {count} AS "#n", NULL::BIGINT AS "#o"{names} FROM '
            f'(SELECT "#run", "#t", "#n" AS "#l", 0 AS "#r"{names} FROM ({left}) UNION ALL '
            f'SELECT "#run", "#t", 0, "#n", * EXCLUDE ("#run", "#t", "#n") FROM ({right})) '
            f"GROUP BY {HEAD}{names} HAVING {count} > 0"
        )

    def _ranked(self, node: Ranked) -> str:
        """Every copy has a place of its own; of equal ones it does not matter which."""
        below, names = self.of(node.input), _names(node.input.schema)
        groups = "".join(f', "{key}"' for key in node.keys)
        order = ", ".join(
            f'"{each.column}" {"DESC" if each.descending else "ASC"} NULLS {"FIRST" if each.nulls_first else "LAST"}'
            for each in node.order
        )
        place = f"{node.function}() OVER (PARTITION BY {HEAD}{groups} ORDER BY {order})"
        shown = "" if node.name is None else f', "#place" AS "{node.name}"'
        most = "" if node.most is None else f' AND "#place" <= {node.most}'
        return (
            f'SELECT {HEAD}, count(*) AS "#n", NULL::BIGINT AS "#o"{names}{shown} FROM (SELECT *, {place} AS "#place" '
            f'FROM (SELECT *, unnest(range("#n")) AS "#copy" FROM {below})) WHERE "#place" > {node.above}{most} '
            f"GROUP BY ALL"
        )

    def _extent(self, node: Extent) -> str:
        """Number the samples of a key, and their runs by those that are not linked with the one before."""
        how, below = node.coalescing, self.of(node.input)
        keys = "".join(f', "{key}"' for key in node.keys)
        ties = "".join(f', "{name}" NULLS LAST' for name in how.ties)
        order = f'(PARTITION BY {HEAD}{keys} ORDER BY "{how.stamp}"{ties})'
        if how.link is None:
            pairs = [(f"#{name}", name) for name in how.columns]
            link = " AND ".join(f'"{name}" IS NOT DISTINCT FROM "{before}"' for before, name in pairs)
        else:
            pairs, link = list(how.link.before), scalar_sql(how.link.condition)
        before = "".join(f', lag("{column}") OVER {order} AS "{name}"' for name, column in pairs)
        samples = f'(SELECT *, unnest(range("#n")) AS "#copy" FROM {below})'
        placed = f'(SELECT *, row_number() OVER {order} AS "#place"{before} FROM {samples})'
        marked = f'(SELECT *, "#place" = 1 OR ({link}) IS NOT TRUE AS "#begins" FROM {placed})'
        by = f"PARTITION BY {HEAD}{keys}"
        runs = f'(SELECT *, sum("#begins"::INT) OVER ({by} ORDER BY "#place") AS "#nth" FROM {marked})'
        first = "".join(f', first("{name}" ORDER BY "#place") AS "{name}"' for name in how.columns)
        begin, end = (f'"{name}"' for name in how.bounds)
        stamps = f'min("{how.stamp}") AS {begin}, max("{how.stamp}") AS "#last"'
        own = f'(SELECT {HEAD}{keys}, "#nth"{first}, {stamps} FROM {runs} GROUP BY {HEAD}{keys}, "#nth")'
        ended = f'coalesce(lead({begin}) OVER ({by} ORDER BY "#nth"), "#last") AS {end}'
        shown = "".join(f', "{name}"' for name in how.columns) + f", {begin}"
        rows = f"(SELECT {HEAD}{keys}{shown}, {ended} FROM {own})"
        head = f'{HEAD}, count(*) AS "#n", NULL::BIGINT AS "#o"'
        return f"SELECT {head}{keys}{shown}, {end} FROM {rows} GROUP BY ALL"

    def _aggregate(self, node: Aggregate) -> str:
        keys = "".join(f', "{key}"' for key in node.keys)
        calls = "".join(f', CAST({_call(call)} AS {SQL_TYPES[call.type]}) AS "{call.name}"' for call in node.calls)
        return (
            f'SELECT {HEAD}, 1 AS "#n", NULL::BIGINT AS "#o"{keys}{calls} FROM '
            f'(SELECT *, unnest(range("#n")) AS "#copy" FROM {self.of(node.input)}) GROUP BY {HEAD}{keys}'
        )


def _call(call: AggregateCall) -> str:
    if call.argument is None:
        return "count(*)"
    values = ("DISTINCT " if call.distinct else "") + scalar_sql(call.argument)
    match call.function:
        case function if function in AGGREGATE_ROWS:
            return AGGREGATE_ROWS[function].duckdb.format(values)
        case "count" | "sum" | "min" | "max":
            return f"{call.function}({values})"
        case "arg_min" | "arg_max" if isinstance(call.by, Scalar):
            by = scalar_sql(call.by)
            pair = f"struct_pack(t := {by}, v := {values})"
            return f"({call.function[-3:]}({pair}) FILTER (WHERE {values} IS NOT NULL AND {by} IS NOT NULL)).v"
        case "string_agg" if isinstance(call.joining, Joining):
            separator = call.joining.separator.replace("'", "''")
            order = f"ORDER BY {scalar_sql(call.argument)}{' DESC' if call.joining.descending else ''}"
            joined = f"string_agg({values}, '{separator}' {order})"
            return f"CASE WHEN length({joined}) <= 10000 THEN {joined} END"
        case "percentile_disc":
            return f"quantile_disc({values}, {call.parameter})"
        case "mode":
            pair = "struct_pack(n := -(each.value::BIGINT), v := each.key)"
            return f"list_min([{pair} FOR each IN map_entries(histogram({values}))]).v"
        case "quantile":
            return f"quantile_cont({values}, {0.5 if call.parameter is None else call.parameter})"
        case "first" | "last":
            extreme = "min" if call.function == "first" else "max"
            pair = f'struct_pack(t := "{call.order}", v := {values})'
            return f"({extreme}({pair}) FILTER (WHERE {values} IS NOT NULL)).v"
        case _:
            raise NoDefinitionError(f"the aggregate {call.function}")

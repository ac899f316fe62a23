"""Forms as SQL for DuckDB, over snapshots: what a text means at every instant.

The meaning is that of docs/reference/sql.md and papers/pipes_algebra.md section 3.

Every query is a table with a row for each tuple, and for each copy of it, at each instant at which it is valid:

    r    which of several stream sets
    t    the instant
    o    place in the order of arrival, where a tuple has one; else NULL
    c0 ...

A window makes an interval of each row, from `vs` until just before `ve`, and that rows at the instants between. The
rest is SQL at every instant: the rows of one instant know nothing of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.cluster.oracle.text_aggregates import aggregate_sql
from tests.cluster.oracle.text_expressions import INSTANT, QUERY, Hole, Scalar
from tests.cluster.oracle.text_extents import coalesced_rows
from tests.cluster.oracle.text_forms import (
    Changes,
    Extent,
    InOrder,
    Item,
    KeySet,
    Named,
    Nested,
    Output,
    Query,
    Relation,
    Select,
    SetOperation,
    Stream,
    Window,
    Zipped,
    connector_of,
    outputs_of,
    side_of,
    types_of,
)
from tests.cluster.oracle.text_intervals import COLUMN
from tests.cluster.oracle.text_operations import SQL_TYPES
from tests.cluster.oracle.text_order import first_rows, keeps_order
from tests.cluster.oracle.text_windows import row_intervals, session_intervals, time_intervals, until_next_intervals
from tests.cluster.oracle.text_world import PLACES
from tests.cluster.oracle.time_texts import SHOWN


@dataclass(frozen=True)
class ZipSides:
    """What has to be known before a zipper join can be defined: the tables of its sides."""

    zipped: Zipped
    before: str
    left: str
    right: str
    table: str


@dataclass
class _Group:
    """What the rows of a grouped SELECT are called: its keys by the columns that they are, its aggregates."""

    mark: str
    renames: dict[str, str] = field(default_factory=dict)
    aggregates: list[Scalar] = field(default_factory=list)


def stream_table(stream: str, period: int | None) -> str:
    """Return the table with what a query with a sample period reads of a stream."""
    return stream if period is None else f"{stream} every {period}"


class Meaning:
    """Writes the definition of one text; equal parts of it are one table.

    Parameters
    ----------
    names
        Derived streams, by name.
    runs, instants
        How many stream sets and instants there are.
    """

    def __init__(self, names: Mapping[str, Query], runs: int, instants: int) -> None:
        self._names = dict(names)
        self._parts = [
            f"instants AS MATERIALIZED (SELECT r.range AS r, i.range AS t FROM range({runs}) r, range({instants}) i)"
        ]
        self._known: dict[object, str] = {}
        self.ambiguity: list[str] = []
        self.zips: list[ZipSides] = []

    def snapshots(self, query: Query) -> str:
        """Return SQL for all rows of a query, counted: run, instant, copies, and the columns."""
        table, types = self._query(query), types_of(query)
        columns = "".join(f", c{n}" for n in range(len(types)))
        shown = "".join(f", {SHOWN.get(kind, '{0}').format(f'c{n}')}" for n, kind in enumerate(types))
        return f"{self.tables()} SELECT r, t, count(*){shown} FROM {table} GROUP BY r, t{columns}"

    def ambiguous(self) -> str | None:
        """Return SQL for the stream sets for which a text has no one meaning; None if it always has."""
        return f"{self.tables()} {' UNION '.join(self.ambiguity)}" if self.ambiguity else None

    def tables(self) -> str:
        """Return what stands before a query of the tables written so far."""
        return f"WITH {', '.join(self._parts)}"

    def _table(self, key: object, sql: str) -> str:
        if key not in self._known:
            name = f"q{len(self._parts)}"
            self._parts.append(f"{name} AS MATERIALIZED ({sql})")
            self._known[key] = name
        return self._known[key]

    def _query(self, query: Query) -> str:
        outer = dict(self._names)
        for name, inner in query.names:
            self._names[name] = inner
        # What a name means depends on where it stands.
        key = (query, tuple(sorted((name, id(each)) for name, each in self._names.items())))
        if key not in self._known:
            sql = self._select(query) if isinstance(query, Select) else self._set_operation(query)
            self._table(key, sql if query.top is None else first_rows(query, query.top, sql))
        self._names = outer
        return self._known[key]

    def _set_operation(self, query: SetOperation) -> str:
        shape = ", ".join(f"c{n}::{SQL_TYPES[kind]} AS c{n}" for n, kind in enumerate(query.types))
        left, right = (f"SELECT r, t, {shape} FROM {self._query(side)}" for side in (query.left, query.right))
        word = f"{query.kind} {'ALL' if query.all else ''}"
        columns = "".join(f", c{n}" for n in range(len(query.types)))
        return f"SELECT r, t, NULL::BIGINT AS o{columns} FROM (({left}) {word} ({right}))"

    def _select(self, query: Select, link: tuple[str, str] | None = None, group: _Group | None = None) -> str:
        """Return SQL; `link` are run and instant of the query around it, whose groups are `group`."""
        from_, at = self._from(query)
        order = f"{query.items[0].mark}.o" if keeps_order(query) else "NULL::BIGINT"
        head = "" if link else f"{at[0]} AS r, {at[1]} AS t, {order} AS o, "
        conditions = [f"{at[0]} = {link[0]}", f"{at[1]} = {link[1]}"] if link else []
        if query.where is not None:
            conditions.append(self._scalar(query.where, at, group))
        where = f" WHERE {' AND '.join(f'({each})' for each in conditions)}" if conditions else ""
        if query.grouped:
            return self._grouped(query, f"{from_}{where}", at, link, group)
        outputs = ", ".join(
            f"{self._scalar(each.scalar, at, group)} AS c{n}" for n, each in enumerate(outputs_of(query))
        )
        return self._qualified(query, f"{head}{outputs} {from_}{where}", at, group, link)

    def _qualified(
        self, query: Select, select: str, at: tuple[str, str], group: _Group | None, link: tuple[str, str] | None
    ) -> str:
        """Return a SELECT with its condition on ranks.

        One that is a column, too, is written once: DuckDB would number equal rows twice, each time in another order.
        """
        distinct = "DISTINCT " if query.distinct else ""
        if query.qualify is None:
            return f"SELECT {distinct}{select}"
        column = _column_of(query.qualify, outputs_of(query))
        if column is None:
            return f"SELECT {distinct}{select} QUALIFY {self._scalar(query.qualify, at, group)}"
        head = "" if link else "r, t, o, "
        shown = ", ".join(f"c{n}" for n in range(len(outputs_of(query))))
        return f"SELECT {distinct}{head}{shown} FROM (SELECT {select}) WHERE {column}"

    def _grouped(
        self, query: Select, from_: str, at: tuple[str, str], link: tuple[str, str] | None, outer: _Group | None
    ) -> str:  # fmt: skip
        group = _Group(f"g{len(self._parts)}_{query.items[0].mark}")
        own = (f"{group.mark}.r", f"{group.mark}.t")
        keys = [self._scalar(each.scalar, at, outer) for each in query.keys]
        for number, key in enumerate(query.keys):
            if key.scalar.known is not None:
                group.renames[key.scalar.known.sql] = f"{group.mark}.k{number}"
        outputs = [self._scalar(each.scalar, own, group) for each in outputs_of(query)]
        having = f" WHERE {self._scalar(query.having, own, group)}" if query.having is not None else ""
        if query.qualify is not None:
            self._scalar(query.qualify, own, group)  # for its aggregates
        inside, calls = [f"{key} AS k{n}" for n, key in enumerate(keys)], []
        for number, scalar in enumerate(group.aggregates):
            assert scalar.aggregate is not None
            if scalar.aggregate.function == "grouping":
                calls.append(f"GROUPING({', '.join(f'k{each.key}' for each in scalar.parts)})::BIGINT AS g{number}")
                continue
            parts = [self._scalar(each, at, outer) for each in scalar.parts]
            if scalar.aggregate.filtered:
                inside.append(f"{parts.pop()} AS f{number}")
            if parts:
                inside.append(f"{parts[0]} AS a{number}")
            if len(parts) > 1:
                inside.append(f"{parts[1]} AS b{number}")
            if scalar.aggregate.stamp:
                inside.append(f"{scalar.aggregate.stamp} AS s{number}")
            calls.append(f"{aggregate_sql(scalar.aggregate, number, scalar)} AS g{number}")
        listed = "".join(f", {each}" for each in inside)
        names = "".join(f", k{n}" for n in range(len(keys)))
        answers = "".join(f", {each}" for each in calls)
        rows = f"SELECT {at[0]} AS r, {at[1]} AS t{listed} {from_}"
        by = "".join(f", {_element(each)}" for each in query.elements) or names
        grouped = f"SELECT r, t{names}{answers} FROM ({rows}) GROUP BY r, t{by}"
        head = "" if link else f"{own[0]} AS r, {own[1]} AS t, NULL::BIGINT AS o, "
        shown = ", ".join(f"{each} AS c{n}" for n, each in enumerate(outputs))
        return self._qualified(query, f"{head}{shown} FROM ({grouped}) {group.mark}{having}", own, group, link)

    def _scalar(self, scalar: Scalar, at: tuple[str, str], group: _Group | None) -> str:
        if group is not None:
            if scalar.key is not None and group.mark == at[0].partition(".")[0]:
                return f"{group.mark}.k{scalar.key}"
            if scalar.aggregate is not None:
                if scalar not in group.aggregates:
                    group.aggregates.append(scalar)
                return f"{group.mark}.g{group.aggregates.index(scalar)}"
        found = []
        for each in scalar.sql:
            if isinstance(each, Hole):
                found.append(self._part(scalar, each, at, group))
            elif each == INSTANT:
                found.append(f"{at[0]}, {at[1]}")
            else:
                found.append(group.renames.get(each, each) if group is not None else each)
        return "".join(found)

    def _part(self, scalar: Scalar, hole: Hole, at: tuple[str, str], group: _Group | None) -> str:
        if hole.part != QUERY:
            return f"({self._scalar(scalar.parts[hole.part], at, group)})"
        assert scalar.query is not None
        if isinstance(scalar.query, Select) and not scalar.query.names:
            return self._select(scalar.query, at, group)
        table = self._query(scalar.query)
        columns = ", ".join(f"z.c{n}" for n in range(len(types_of(scalar.query))))
        return f"SELECT {columns} FROM {table} z WHERE z.r = {at[0]} AND z.t = {at[1]}"

    def _from(self, query: Select) -> tuple[str, tuple[str, str]]:
        """Return SQL, and the run and the instant of its rows."""
        found, at = self._joined(query.items[: _end_of_group(query.items, 0)])
        begin = _end_of_group(query.items, 0)
        while begin < len(query.items):
            end = _end_of_group(query.items, begin)
            group = query.items[begin:end]
            if any(side_of(item) in ("RIGHT", "FULL") for item in group):
                own, there = self._joined(group)
                found += f" JOIN ({own}) ON {there[0]} = {at[0]} AND {there[1]} = {at[1]}"
            else:
                found, at = self._joined(group, (found, at))
            begin = end
        return f"FROM {found}", at

    def _joined(
        self, items: Sequence[Item | Zipped], before: tuple[str, tuple[str, str]] | None = None
    ) -> tuple[str, tuple[str, str]]:  # fmt: skip
        """Return items joined from left to right with what stands before them; an instant may be of one side alone."""
        found, at = before or (f"{self._item(items[0])} {items[0].mark}", (f"{items[0].mark}.r", f"{items[0].mark}.t"))
        for item in items if before else items[1:]:
            own = (f"{item.mark}.r", f"{item.mark}.t")
            met = [f"{own[0]} = {at[0]}", f"{own[1]} = {at[1]}"]
            on = item.on if isinstance(item, Item) else item.on_join
            if on is not None:
                met.append(f"({self._scalar(on, at, None)})")
            side = side_of(item)
            found += f" {side} JOIN {self._item(item)} {item.mark} ON {' AND '.join(met)}"
            if side == "RIGHT":
                at = own
            elif side == "FULL":
                at = (f"coalesce({at[0]}, {own[0]})", f"coalesce({at[1]}, {own[1]})")
        return found, at

    def _item(self, item: Item | Zipped) -> str:
        """Return the table of an item of FROM."""
        if isinstance(item, Zipped):
            return self._zip(item)
        columns = [f"c{n}" for n in range(item.width if item.extent is None else len(item.extent.types))]
        table = self._below(item)
        more = ["own"] if isinstance(item.source, Stream) else []
        if item.valid is not None:
            more.append(COLUMN)
            table = self._until_next(table, item.valid, columns)
        if item.extent is not None and not more:
            more = ["own"]
            table = self._table(("stamped", table), f"SELECT *, t AS own FROM {table}")
        if item.window is not None:
            order = self._order(item, columns)
            table = self._windowed(table, item.window, [*more, *columns], columns, order)
        if item.extent is not None:
            table = self._coalesced(table, item.extent, quality=bool(item.keep))
        for each in item.reshaped:
            table = self._table((each.clause.word, table, each.amount_us), each.clause.sql(table, each.amount_us))
        return table

    def _until_next(self, table: str, valid: Window, columns: Sequence[str]) -> str:
        """Return the tuples of a table with their intervals."""
        intervals = until_next_intervals(table, valid, [columns[key] for key in valid.keys])
        sql = f"SELECT * EXCLUDE (vs, ve), struct_pack(b := vs, e := ve) AS {COLUMN} FROM ({intervals})"
        return self._table(("valid", sql), sql)

    def _coalesced(self, table: str, extent: Extent, *, quality: bool) -> str:
        condition = None if extent.condition is None else self._scalar(extent.condition, ("e.r", "e.t"), None)
        sql = coalesced_rows(table, extent, condition, quality=quality)
        return self._table(("extent", sql), sql)

    def _below(self, item: Item) -> str:
        source = item.source
        match source:
            case Stream():
                table = f'SELECT *, t AS own FROM "{stream_table(source.table, source.period)}"'
                return self._table((Stream, source.table, source.period), table)
            case Relation():
                columns = ", ".join(f"p.c{n}" for n in range(len(PLACES.columns)))
                sql = f"SELECT i.r, i.t, NULL::BIGINT AS o, {columns} FROM instants i JOIN places p ON p.r = i.r"
                return self._table("places", sql)
            case Named():
                return self._query(self._names[source.name])
            case Nested():
                return self._query(source.query)
            case Changes():
                return self._changes(source)
            case InOrder():
                return self._in_order(source)

    def _order(self, item: Item, columns: Sequence[str]) -> str | None:
        """Return by what tuples of one stamp are ordered where tuples are counted; None if by nothing."""
        if item.keep and item.extent is not None:
            return ", ".join(f"{columns[tie]} ASC NULLS LAST" for tie in item.extent.ties)
        source = item.source
        if item.valid is not None:
            return None
        if isinstance(source, Nested):
            return "o" if keeps_order(source.query) else None
        if isinstance(source, Named):
            return "o" if keeps_order(self._names[source.name]) else None
        return "o" if isinstance(source, Stream) else None

    def _in_order(self, query: InOrder) -> str:
        kept = "" if query.where is None else f" WHERE c{query.where[0]} IS NOT NULL"
        order = query.order
        calls = [call.sql(order) for call, _ in query.calls]
        shown = [*(f"c{place}" for place, _ in query.columns), *calls]
        columns = "".join(f", {each} AS d{n}" for n, each in enumerate(shown))
        named = "".join(f", d{n} AS c{n}" for n in range(len(shown)))
        condition = "TRUE"
        if query.qualify is not None:
            _, call, condition = query.qualify
            condition = condition if call is None else condition.format(call.sql(order))
        placed = order.placed(f"(SELECT * FROM {self._item(query.item)}{kept})")
        sql = f"SELECT r, t{columns}, {condition} AS q FROM {placed}"
        return self._table(("in order", sql), f"SELECT r, t, NULL::BIGINT AS o{named} FROM ({sql}) WHERE q")

    def _changes(self, changes: Changes) -> str:
        table = self._item(changes.item)
        columns = "".join(f", c{n}" for n in range(changes.item.width))
        if changes.kind == "RSTREAM":
            return self._table(("r", table), f"SELECT r, t, NULL::BIGINT AS o{columns} FROM {table}")
        step = 1 if changes.kind == "ISTREAM" else -1
        other = f"SELECT r, t + {step} AS t{columns} FROM {table}"
        sql = f"(SELECT r, t{columns} FROM {table}) EXCEPT ALL ({other})"
        return self._table((changes.kind, table), f"SELECT r, t, NULL::BIGINT AS o{columns} FROM ({sql})")

    def _windowed(
        self, table: str, window: Window, kept: Sequence[str], columns: Sequence[str], order: str | None
    ) -> str:  # fmt: skip
        """Return the tuples of a table at each instant at which they count, with the columns that are kept."""
        own = [columns[key] for key in window.keys]
        shown = [f"s.{column}" for column in kept]
        if window.kind == "ROWS":
            intervals = self._by_rows(table, window, columns, order)
        elif window.kind == "SESSION":
            intervals = session_intervals(table, window, own)
        elif window.kind == "NEXT":
            intervals = until_next_intervals(table, window, own)
            shown.append(f"struct_pack(b := s.vs, e := s.ve) AS {COLUMN}")
        else:
            intervals = time_intervals(table, window)
        # A window of a stream that is valid at instants keeps the order of its tuples only if it does nothing.
        alone = window.kind == "RANGE" and window.size == window.slide == 1
        sql = (
            f"SELECT i.r, i.t, {'s.o' if alone else 'NULL::BIGINT AS o'}, {', '.join(shown)} "
            f"FROM instants i JOIN ({intervals}) s ON s.r = i.r AND s.vs <= i.t AND i.t < s.ve"
        )
        return self._table(("window", table, replace(window, text=""), order), sql)

    def _by_rows(self, table: str, window: Window, columns: Sequence[str], order: str | None) -> str:
        keys = [columns[key] for key in window.keys]
        group = "".join(f", {key}" for key in keys)
        sql = f"SELECT *, row_number() OVER (PARTITION BY r{group} ORDER BY t, {order or 'o'}) AS i FROM {table}"
        numbered = self._table(("numbered", table, window.keys, order), sql)
        if order is None:
            listed = ", ".join(columns)
            rows = f"SELECT DISTINCT r, t, {listed} FROM {table}"
            self.ambiguity.append(f"SELECT r FROM ({rows}) GROUP BY r, t{group} HAVING count(*) > 1")
        return row_intervals(numbered, window, keys)

    def _zip(self, zipped: Zipped) -> str:
        left, right = self._item(zipped.left), self._item(zipped.right)
        key = (zipped.word, left, right, zipped.keys, zipped.bounds, zipped.kind, zipped.also)
        if key not in self._known:
            table = f"zip{len(self.zips)}"
            self.zips.append(ZipSides(zipped, self.tables(), left, right, table))
            self._table(key, f"SELECT * FROM {table}")
        return self._known[key]


def _end_of_group(items: Sequence[Item | Zipped], begin: int) -> int:
    """Return where the next comma is: what stands before it is joined on its own."""
    return next((n for n in range(begin + 1, len(items)) if connector_of(items[n]) == ","), len(items))


def _element(element: int | KeySet) -> str:
    """Return what GROUP BY consists of: DuckDB makes sets of it as PostgreSQL does."""
    if isinstance(element, int):
        return f"k{element}"
    return f"{element.word}({', '.join(map(_element, element.parts))})"


def _column_of(condition: Scalar, outputs: Sequence[Output]) -> str | None:
    """Return the condition as one on the column that is its rank, or the condition itself; None if there is none."""
    for number, output in enumerate(outputs):
        if output.scalar == condition:
            return f"c{number}"
        if output.scalar.rank and (output.scalar.sql, output.scalar.parts) == (condition.sql[:-1], condition.parts):
            return f"c{number}{condition.sql[-1]}"
    return None

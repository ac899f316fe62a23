"""What queries over streams and relations mean, for DuckDB, straight from star_joins.md 1.3 and pipes_algebra.md.

A stream in FROM is a table of its tuples:

    own      its stamp: the instant whose rows of a relation it meets
    vs, ve   the interval in which it is valid, from its window, or until the next tuple of its sensor

A relation in FROM is the table of its rows at every instant `m`, by whose streams' time: that is what a version's
[begin, end) depends on. It is met by the stream its conditions read, the first if they read none; when they read
several, their pair, which begins when the later one does. A row of an aggregate begins at a step of its window, else
where a tuple of its group begins or ends. The rest is SQL, at every instant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import duckdb
import pyarrow as pa

from cluster.physical.nodes import Host
from protocols.wire.streams import FieldType
from tests.cluster.oracle.relation_forms import Computed, Probe, Query, Rows, Select, Stream, Table, aliases_in
from tests.cluster.oracle.relation_world import ALL_RELATIONS, STREAMS, History, versions_of

INSTANTS = 140
"""More than any random history has."""

TYPES = {
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.INTEGER: pa.int64(),
    FieldType.REAL: pa.float64(),
    FieldType.TEXT: pa.string(),
}
CLOCKS = (*((name,) for name in sorted(STREAMS)), tuple(sorted(STREAMS)))


class Definition:
    """Answers what queries mean over one history. Close it.

    Parameters
    ----------
    history
        What happened.
    instants
        How many to look at.
    """

    def __init__(self, history: History, instants: int = INSTANTS) -> None:
        self._connection = _connection().cursor()
        self._instants = instants
        self._history = history
        self._register("instants", ["t"], [pa.int64()], [(instant,) for instant in range(instants)])
        for name, columns in STREAMS.items():
            rows = [(step, stamp, *row) for step, stamp, row in history.tuples(name)]
            self._register(
                name, ["step", "own", *columns], [pa.int64(), pa.int64(), *(TYPES[each] for each in columns.values())],
                rows,
            )  # fmt: skip
        for name, versions in versions_of(history).items():
            types = [pa.int64(), *(TYPES[each] for each in ALL_RELATIONS[name].values())]
            for clock in CLOCKS if versions else ():
                begins = [max(version.begins[stream] for stream in clock) for version in versions]
                begins[:1] = [0]  # the first has always held
                rows = []
                for instant in range(instants):
                    active = max(number for number, begin in enumerate(begins) if begin <= instant)
                    rows += [(instant, *row) for row in versions[active].rows or ()]
                self._register(_at(name, clock), ["m", *ALL_RELATIONS[name]], types, rows)

    def close(self) -> None:
        """Forget the history."""
        self._connection.close()

    def snapshots(self, query: Query, host: Host) -> list[Counter[tuple[object, ...]]]:
        """Return the bag at each instant, if `query` is not dropped.

        Without state it begins at an instant: how far each stream had come; else with what comes from then on.
        """
        came = self._history.steps[query.first - 1].watermarks if query.first else dict.fromkeys(STREAMS, 0)
        seen = {
            stream: f"own >= {came[stream]}" if host is Host.STATELESS else f"step >= {query.first}"
            for stream in STREAMS
        }  # fmt: skip
        found: list[Counter[tuple[object, ...]]] = [Counter() for _ in range(self._instants)]
        for select in query.selects:
            for instant, *row in self._connection.execute(snapshot_sql(select, seen)).fetchall():
                found[instant][tuple(row)] += 1
        return found

    def _register(self, name: str, names: list[str], types: list[pa.DataType], rows: list[tuple[object, ...]]) -> None:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        self._connection.register(name, pa.table(arrays, names=names))


@lru_cache(maxsize=1)
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET GLOBAL threads = 1")
    return connection


def snapshot_sql(select: Select, seen: Mapping[str, str]) -> str:
    """Return SQL for a row per instant and tuple: the instant, then the outputs of a query that sees such tuples."""
    names = ", ".join(f"o.{each.name}" for each in select.outputs)
    distinct = "DISTINCT " if select.distinct else ""
    return (
        f"SELECT {distinct}i.t, {names} FROM instants i JOIN ({_Meaning(select, seen).rows()}) o "
        "ON o.vs <= i.t AND i.t < o.ve"
    )


def _at(relation: str, clock: Iterable[str]) -> str:
    return f"{relation}_by_{'_'.join(sorted(clock))}"


@dataclass(frozen=True)
class _Moment:
    """When relations are looked at, as SQL; and by which streams' time."""

    sql: str
    clock: frozenset[str]


class _Meaning:
    """SQL for the rows, with their intervals, of one SELECT."""

    def __init__(self, select: Select, seen: Mapping[str, str]) -> None:
        self._select = select
        self._seen = seen
        self._conditions = [*select.where]
        # Which streams met which table; a table may be met through another one.
        self._met_by = {each.alias: frozenset({each.alias}) for each in select.sources}
        for table in select.tables:
            if table.join == "JOIN":
                self._conditions += table.on
        for table in select.tables:
            outer = table.join == "LEFT JOIN"
            own = table.on if outer else [each for each in self._conditions if self._belongs(each, table)]
            self._met_by[table.alias] = self._who(aliases_in(own) - {table.alias})

    def rows(self) -> str:
        """Return SQL for the outputs, with vs and ve."""
        select = self._select
        if select.keys is None:
            outputs = ", ".join(f"{each.text} AS {each.name}" for each in select.outputs)
            return f"SELECT {outputs}, {self._vs} AS vs, {self._ve} AS ve {self._from()} {self._where()}"
        return self._aggregated(select.keys)

    def _belongs(self, condition: str, table: Table) -> bool:
        """Return whether a condition is what a table is chosen by: it reads nothing that FROM names after it."""
        read = aliases_in([condition])
        return table.alias in read and read <= {*self._met_by, table.alias}

    def _who(self, read: frozenset[str]) -> frozenset[str]:
        found: frozenset[str] = frozenset().union(*(self._met_by[alias] for alias in read))
        return found or frozenset({self._select.sources[0].alias})

    def _moment(self, aliases: frozenset[str]) -> _Moment:
        met = [each for each in self._select.sources if each.alias in aliases]
        clock: set[str] = set()
        for each in met:
            clock |= each.select.streams if isinstance(each, Computed) else {each.name}
        if len(met) == 1:
            return _Moment(f"{met[0].alias}.own", frozenset(clock))
        return _Moment(f"greatest({', '.join(f'{each.alias}.vs' for each in met)})", frozenset(clock))

    @property
    def _vs(self) -> str:
        return f"greatest({', '.join(f'{each.alias}.vs' for each in self._select.sources)})"

    @property
    def _ve(self) -> str:
        return f"least({', '.join(f'{each.alias}.ve' for each in self._select.sources)})"

    def _from(self) -> str:
        parts = [f"({self._flowing(each)}) {each.alias}" for each in self._select.sources]
        found = "FROM " + " CROSS JOIN ".join(parts)
        for table in self._select.tables:
            moment = self._moment(self._met_by[table.alias])
            met = [f"{table.alias}.m = {moment.sql}", *(table.on if table.join == "LEFT JOIN" else ())]
            join = "LEFT JOIN" if table.join == "LEFT JOIN" else "JOIN"
            source = _at(table.relation, moment.clock) if table.rows is None else f"({_made(table.rows, moment.clock)})"
            found += f" {join} {source} {table.alias} ON {' AND '.join(f'({each})' for each in met)}"
        return found

    def _flowing(self, source: Stream | Computed) -> str:
        if isinstance(source, Computed):
            return f"SELECT *, vs AS own FROM ({_Meaning(source.select, self._seen).rows()})"
        if source.holds is not None:
            following = (
                f"(SELECT min(n.own) FROM {source.name} n "
                f"WHERE n.sensor = s.sensor AND n.own > s.own AND n.{self._seen[source.name]})"
            )
            until = f"least(s.own + {source.holds}, {following})"  # which ignores NULL
            seen = f"s.{self._seen[source.name]}"
            return f"SELECT * EXCLUDE (step), s.own AS vs, {until} AS ve FROM {source.name} s WHERE {seen}"
        size, a = source.size or 1, source.slide
        ends = (f"((own + {shift} + {a} - 1) // {a}) * {a} - 1" for shift in (1, size + 1))
        vs, ve = ("own", f"own + {size}") if a == 1 else ends
        return (
            f"SELECT * FROM (SELECT * EXCLUDE (step), {vs} AS vs, {ve} AS ve FROM {source.name} "
            f"WHERE {self._seen[source.name]}) WHERE vs < ve"
        )

    def _where(self, *more: str) -> str:
        tests = (_tested(each, self._moment(self._who(each.reads))) for each in self._select.tests)
        conditions = [f"{self._vs} < {self._ve}", *self._conditions, *tests, *more]
        return "WHERE " + " AND ".join(f"({each})" for each in conditions)

    def _aggregated(self, keys: tuple[str, ...]) -> str:
        select = self._select
        names = [f"k{number}" for number in range(len(keys))]
        named = "".join(f", {key} AS {name}" for key, name in zip(keys, names, strict=True))
        outputs = "".join(f", {each.text} AS {each.name}" for each in select.outputs)
        tested = "".join(f", {each.left} AS h{number}" for number, each in enumerate(select.having_tests) if each.left)
        having = f" HAVING {' AND '.join(f'({each})' for each in select.having)}" if select.having else ""
        at = (
            f"SELECT i.t AS t{named}{outputs}{tested} {self._from()} CROSS JOIN instants i "
            f"{self._where(f'{self._vs} <= i.t', f'i.t < {self._ve}')} "
            f"GROUP BY {', '.join(['i.t', *keys])}{having}"
        )
        begun = f"SELECT d.*, {self._begin(names, named)} AS vs FROM ({at}) d"
        moment = _Moment("e.vs", select.streams)
        tests = [
            _tested(replace(each, left=each.left and f"e.h{number}"), moment)
            for number, each in enumerate(select.having_tests)
        ]
        kept = f" WHERE {' AND '.join(f'({each})' for each in tests)}" if tests else ""
        values = ", ".join(f"any_value({each.name}) AS {each.name}" for each in select.outputs)
        # any_value would pass over a NULL, but all of a span are alike.
        return (
            f"SELECT {values}, vs, max(t) + 1 AS ve FROM (SELECT * FROM ({begun}) e{kept}) "
            f"GROUP BY {', '.join([*names, 'vs'])}"
        )

    def _begin(self, names: list[str], named: str) -> str:
        """Return SQL for the instant at which what a group says at d.t began."""
        sources = self._select.sources
        if len(sources) == 1 and isinstance(sources[0], Stream) and sources[0].slide > 1:
            return f"((d.t + 1) // {sources[0].slide}) * {sources[0].slide} - 1"
        edges = " UNION ".join(
            f"SELECT {edge} AS c{named} {self._from()} {self._where()}" for edge in (self._vs, self._ve)
        )
        same = "".join(f" AND c.{name} IS NOT DISTINCT FROM d.{name}" for name in names)
        return f"(SELECT max(c.c) FROM ({edges}) c WHERE c.c <= d.t{same})"


def _made(rows: Rows, clock: frozenset[str]) -> str:
    """Return SQL for rows made of relations, at every instant m; where they are grouped, each instant is for itself."""
    (_, first), *others = rows.relations
    tables = " CROSS JOIN ".join(f"{_at(name, clock)} {alias}" for name, alias in rows.relations)
    conditions = [*rows.where, *(f"{first}.m = {other}.m" for _, other in others)]
    where = f" WHERE {' AND '.join(f'({each})' for each in conditions)}" if conditions else ""
    outputs = ", ".join(f"{each.text} AS {each.name}" for each in rows.outputs) or "1"
    group = "" if rows.keys is None else f" GROUP BY {', '.join([f'{first}.m', *rows.keys])}"
    return f"SELECT {first}.m AS m, {outputs} FROM {tables}{where}{group}"


def _tested(test: Probe, moment: _Moment) -> str:
    """Return SQL for a condition that looks at relations as they are at a moment."""
    tables = " CROSS JOIN ".join(f"{_at(name, moment.clock)} {alias}" for name, alias in test.rows.relations)
    conditions = [f"{alias}.m = {moment.sql}" for _, alias in test.rows.relations] + [*test.rows.where]
    outputs = ", ".join(each.text for each in test.rows.outputs) or "1"
    where = " AND ".join(f"({each})" for each in conditions)
    text = f"{test.left} {test.kind} (SELECT {outputs} FROM {tables} WHERE {where})"
    return f"{test.instead} OR {text}" if test.instead else text

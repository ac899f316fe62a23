"""What a query over streams and relations is made of, and its FjordSQL; relation_definition.py says what it means.

Conditions and expressions are texts that FjordSQL and DuckDB read alike: every column has its alias in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from protocols.wire.streams import FieldType


@dataclass(frozen=True)
class Named:
    """An expression with a name."""

    text: str
    name: str
    type: FieldType


@dataclass(frozen=True)
class Stream:
    """A stream in FROM; `size` None: without a window; with `holds`, until the next one of the sensor."""

    alias: str
    name: str
    size: int | None
    slide: int = 1
    holds: int | None = None

    @property
    def fjord(self) -> str:
        if self.holds is not None:
            return f"{self.name} VALID UNTIL NEXT BY sensor MAX {self.holds} US AS {self.alias}"
        slide = f" SLIDE {self.slide} US" if self.slide > 1 else ""
        window = "" if self.size is None else f" WINDOW(RANGE {self.size} US{slide})"
        return f"{self.name} AS {self.alias}{window}"


@dataclass(frozen=True)
class Computed:
    """An aggregate of streams in FROM."""

    alias: str
    select: Select

    @property
    def fjord(self) -> str:
        return f"({self.select.fjord}) AS {self.alias}"


@dataclass(frozen=True)
class Rows:
    """Rows made of relations: their product, restricted, projected, perhaps grouped (`keys` not None).

    Parameters
    ----------
    relations
        (name, alias).
    where
        Conditions, those that refer to the query around it too.
    outputs
        What it selects; empty for `*`.
    """

    relations: tuple[tuple[str, str], ...]
    where: tuple[str, ...]
    outputs: tuple[Named, ...]
    keys: tuple[str, ...] | None = None

    @property
    def fjord(self) -> str:
        outputs = ", ".join(f"{each.text} AS {each.name}" for each in self.outputs) or "*"
        tables = ", ".join(f"{name} AS {alias}" for name, alias in self.relations)
        return f"SELECT {outputs} FROM {tables}{_clause('WHERE', self.where)}{_grouping(self.keys)}"


@dataclass(frozen=True)
class Table:
    """Relations in FROM: one as it is, or `rows` made of some; with a comma, JOIN or LEFT JOIN."""

    alias: str
    relation: str
    join: str = ","
    on: tuple[str, ...] = ()
    rows: Rows | None = None

    @property
    def fjord(self) -> str:
        return f"{self.relation} AS {self.alias}" if self.rows is None else f"({self.rows.fjord}) AS {self.alias}"


@dataclass(frozen=True)
class Probe:
    """A condition with relations in it: `left` `kind` (`rows`), for example ``t.sensor`` ``NOT IN`` (...).

    With `instead`, that condition will do too.
    """

    left: str
    kind: str
    rows: Rows
    instead: str = ""

    @property
    def fjord(self) -> str:
        text = f"{self.left} {self.kind} ({self.rows.fjord})".strip()
        return f"({self.instead} OR {text})" if self.instead else text

    @property
    def reads(self) -> frozenset[str]:
        """Aliases of the query around it that it reads: what stands beside it in OR does not decide when it is met."""
        own = {alias for _, alias in self.rows.relations}
        return aliases_in([self.left, *self.rows.where, *(each.text for each in self.rows.outputs)]) - own


Item = Stream | Computed | Table


@dataclass(frozen=True)
class Select:
    """A query; aggregated if `keys` is not None."""

    items: tuple[Item, ...]
    where: tuple[str, ...]
    tests: tuple[Probe, ...]
    outputs: tuple[Named, ...]
    keys: tuple[str, ...] | None = None
    having: tuple[str, ...] = ()
    having_tests: tuple[Probe, ...] = ()
    distinct: bool = False

    @property
    def fjord(self) -> str:
        tables = ""
        for item in self.items:
            join = item.join if isinstance(item, Table) else ","
            on = _clause("ON", item.on) if isinstance(item, Table) else ""
            tables += f"{',' if join == ',' else f' {join}'} {item.fjord}{on}"
        outputs = ", ".join(f"{each.text} AS {each.name}" for each in self.outputs)
        where = _clause("WHERE", [*self.where, *(each.fjord for each in self.tests)])
        having = _clause("HAVING", [*self.having, *(each.fjord for each in self.having_tests)])
        distinct = "DISTINCT " if self.distinct else ""
        return f"SELECT {distinct}{outputs} FROM {tables.lstrip(', ')}{where}{_grouping(self.keys)}{having}"

    @property
    def sources(self) -> tuple[Stream | Computed, ...]:
        """Items of FROM that flow."""
        return tuple(each for each in self.items if not isinstance(each, Table))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Items of FROM that are looked up."""
        return tuple(each for each in self.items if isinstance(each, Table))

    @property
    def streams(self) -> frozenset[str]:
        """Names of the streams it reads."""
        each = (source.select.streams if isinstance(source, Computed) else {source.name} for source in self.sources)
        return frozenset().union(*each)

    @property
    def relations(self) -> frozenset[str]:
        """Names of the relations it reads."""
        asked = [each.rows for each in (*self.tests, *self.having_tests)]
        asked += [each.rows for each in self.tables if each.rows is not None]
        found = {name for rows in asked for name, _ in rows.relations}
        found |= {each.relation for each in self.tables if each.rows is None}
        return frozenset(found).union(*(each.select.relations for each in self.sources if isinstance(each, Computed)))

    @property
    def reach(self) -> int:
        """How long, at most, a tuple matters."""
        found = 2
        for source in self.sources:
            found += (
                source.select.reach
                if isinstance(source, Computed)
                else (source.holds or source.size or 0) + source.slide
            )
        return found


@dataclass(frozen=True)
class Query:
    """A query, or several with UNION ALL between them; alive from step `first` to step `last`."""

    selects: tuple[Select, ...]
    first: int
    last: int

    @property
    def fjord(self) -> str:
        return " UNION ALL ".join(each.fjord for each in self.selects)

    @property
    def relations(self) -> frozenset[str]:
        """Names of the relations it reads."""
        return frozenset().union(*(each.relations for each in self.selects))

    @property
    def reach(self) -> int:
        """How long, at most, a tuple matters."""
        return max(each.reach for each in self.selects)


def aliases_in(texts: Iterable[str]) -> frozenset[str]:
    """Return what stands before the dots of expressions.

    >>> sorted(aliases_in(["t.speed > 1.5", "p.name LIKE 'a.b'"]))
    ['p', 't']
    """
    return frozenset(alias for text in texts for alias in _ALIAS.findall(_QUOTED.sub("''", text)))


_ALIAS = re.compile(r"\b([a-z]\w*)\.")
_QUOTED = re.compile(r"'[^']*'")


def _clause(word: str, conditions: Iterable[str]) -> str:
    conditions = list(conditions)
    return f" {word} {' AND '.join(conditions)}" if conditions else ""


def _grouping(keys: tuple[str, ...] | None) -> str:
    return f" GROUP BY {', '.join(keys)}" if keys else ""

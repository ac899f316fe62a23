"""Names: which column of the plan a word means, what ``*`` stands for, which names SELECT may give, and stamps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.catalog import BaseStream
from cluster.language.errors import suggest
from cluster.language.foreign_names import FOREIGN_COLUMNS
from cluster.language.stream_item import StreamItem
from cluster.language.syntax import END, STAMP_NAME, VALID_SHAPE, Now, Stamp, ValidBound, Validity, span_of
from protocols.text.closeness import did_you_mean
from protocols.wire.names import NAME_SHAPE, fault_of_identifier
from protocols.wire.streams import RESERVED_PREFIX, FieldType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.language.context import Context
    from cluster.language.errors import FjordSqlError

NOWS = (Now, exp.CurrentTimestamp)
"""Classes of NOW()."""
UNTIL = "write WHERE STAMP() > NOW() - INTERVAL '5' MINUTE, which is WINDOW(RANGE 5 MINUTES)"
AGGREGATED = "write MAX(STAMP()) or MIN(STAMP()), or add it to GROUP BY"
SELECTED = "select STAMP() AS at where the stream itself is read, and use that column"


def refuse_now(context: Context, now: exp.Expr) -> FjordSqlError:
    """Return the error about NOW() where it has no meaning."""
    reason = "NOW() goes on without tuples: it can only be compared with STAMP(), by itself in WHERE"
    return context.error(now, reason, UNTIL)


def stamps_read(select: exp.Select, context: Context) -> tuple[bool, frozenset[str]]:
    """Return whether STAMP stands in a SELECT or a subquery of it, and the names there that may be those of stamps.

    Few texts do either, and whether a text may is seen without walking through its tree.
    """
    entries = context.catalog.entries.values()
    named = {(each.stamp or "").casefold() for each in entries if isinstance(each, BaseStream)} - {""}
    named = {each for each in named if each in context.folded}
    if STAMP_NAME not in context.folded and not named:
        return False, frozenset()
    columns = [*select.find_all(exp.Column)]
    names = {each.name.casefold() for each in columns}
    return any(isinstance(each, Stamp) for each in columns), frozenset(named & names)


def ambiguous(reference: exp.Column, aliases: Sequence[str], context: Context) -> FjordSqlError:
    """Return the error about a name, or STAMP(), that several items of FROM have, under these aliases."""
    name = reference.name
    if isinstance(reference, Validity | ValidBound):
        names = [f"VALID({each})" for each in aliases]
        reason = "VALID() is ambiguous: tuples of several streams of FROM have intervals"
    elif isinstance(reference, Stamp):
        names = [f"STAMP({each})" for each in aliases]
        reason = "STAMP() is ambiguous: several streams of FROM have stamps"
    else:
        names = [f"{each}.{name}" for each in aliases]
        reason = f"{name!r} is ambiguous: several streams of FROM have it"
    return context.error(reference, reason, f"write {' or '.join(names)}" if names else "give them aliases")


def check_stamp(reference: exp.Column, context: Context) -> None:
    """Refuse arguments of STAMP that are no name of a stream.

    Raises
    ------
    FjordSqlError
        If there are some.
    """
    if isinstance(reference, Stamp) and (wrong := reference.args.get("expressions")) is not None:
        hint = "it is written STAMP(), or STAMP(t) where t is a stream of FROM"
        raise context.error(wrong[0], "STAMP takes the name of a stream, or nothing", hint)


def without_stamp(reference: exp.Column, context: Context, *, grouped: bool) -> FjordSqlError:
    """Return the error about a stamp where there is none: of groups, or of rows of another kind."""
    written = context.source_text(reference)
    if grouped:
        reason = f"{written} is neither grouped nor aggregated: a group has no stamp, it is valid for a while"
        return context.error(reference, reason, AGGREGATED)
    return context.error(reference, f"{written} is the stamp of a tuple, and the rows here have none", SELECTED)


SHORT = 60
"""Characters of an expression that is worth repeating."""
_DEEPEST = 10
"""Queries that are looked through."""


def check_column_name(name: exp.Expr, context: Context) -> None:
    """Do nothing if a column of an answer may have this name.

    Raises
    ------
    FjordSqlError
        If it may not.
    """
    check_letters(name, context, "column")
    if name.name.casefold().startswith(RESERVED_PREFIX):
        reason = f"{name.name!r} is no name for a column"
        raise context.error(name, reason, f"{RESERVED_PREFIX} begins Fjord's own names")


def check_letters(name: exp.Expr, context: Context, what: str) -> None:
    """Do nothing if `what` may have this name.

    Raises
    ------
    FjordSqlError
        If it is no identifier of Unicode.
    """
    fault = fault_of_identifier(name.name)
    if fault is not None:
        reason = f"{name.name!r} is no name for a {what}"
        raise context.error(name, reason if name.name.isascii() else f"{reason}: {fault}", NAME_SHAPE)


def named_by_select(reference: exp.Column, context: Context) -> str | None:
    """Return what to write if a condition of WHERE refers to a name that its SELECT gives."""
    query = reference.find_ancestor(exp.Select)
    if query is None or reference.table or reference.find_ancestor(exp.Where, exp.Select) is query:
        return None
    named = {each.alias.casefold(): each.this for each in query.expressions if isinstance(each, exp.Alias)}
    meant = named.get(reference.name.casefold())
    if meant is None:
        return None
    if meant.find(exp.AggFunc) is not None:
        return "SELECT gives that name, after WHERE: conditions on aggregates belong into HAVING"
    written = context.source_text(meant)
    return f"SELECT gives that name, after WHERE: write {written if len(written) <= SHORT else 'what it stands for'}"


def is_further_out(reference: exp.Column) -> bool:
    """Return whether `reference` names a stream of a query that is not directly around its own."""
    wanted = reference.table.casefold()
    around = reference.find_ancestor(exp.Select)
    for distance in range(_DEEPEST):
        if around is None:
            return False
        if distance > 1 and wanted in _streams_of(around):
            return True
        around = around.find_ancestor(exp.Select)
    return False


def _streams_of(query: exp.Select) -> frozenset[str]:
    """Return the names in FROM."""
    source = query.args.get("from_")
    items = [each.this for each in (source, *query.args.get("joins", ())) if each is not None]
    return frozenset((each.alias or each.this.name).casefold() for each in items if isinstance(each, StreamItem))


MOST_COLUMNS = 4_096
"""Columns that all ``*`` of one SELECT may stand for."""


def shown_by_star(item: exp.Expr, scope: Scope, context: Context) -> list[ScopeColumn]:
    """Return the columns that ``*`` or ``stream.*`` means, without those of ``EXCEPT (a, b)``.

    Raises
    ------
    FjordSqlError
        If there is no such stream or column, or no column is left.
    """
    shown = scope.starred(item, context)
    left_out = left_out_by(item)
    seen: set[str] = set()
    for each in left_out:
        if not isinstance(each, exp.Identifier):
            raise context.error(each, "EXCEPT is followed by names of columns", "SELECT * EXCEPT (a, b) FROM stream")
        name = each.name.casefold()
        if name in seen:
            raise context.error(each, f"EXCEPT names {each.name!r} twice")
        if name not in {column.visible.casefold() for column in shown}:
            hint = suggest(each.name, [column.visible for column in shown], what="columns are")
            raise context.error(each, f"there is no column {each.name!r} to leave out", hint)
        seen.add(name)
    found = [column for column in shown if column.visible.casefold() not in seen]
    if not found:
        raise context.error(left_out[-1] if left_out else item, "EXCEPT leaves no column", "name the columns you want")
    return found


def is_star(item: exp.Expr) -> bool:
    """Return whether an item of SELECT is ``*`` or ``stream.*``."""
    return isinstance(item.this if isinstance(item, exp.Column) else item, exp.Star)


def left_out_by(item: exp.Expr) -> list[exp.Expr]:
    """Return what stands behind EXCEPT; nothing if `item` is no star."""
    star = item.this if isinstance(item, exp.Column) else item
    return list(star.args.get("except_") or ()) if isinstance(star, exp.Star) else []


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column that a query can name.

    Parameters
    ----------
    visible
        The name in queries.
    internal
        The name in the plan.
    type, unit, nullable
        As in :class:`cluster.language.typing_rules.Typed`.
    """

    visible: str
    internal: str
    type: FieldType
    unit: str = ""
    nullable: bool = True
    is_stamp: bool = False
    """True if it holds the stamps of a stream, in microseconds."""


@dataclass(frozen=True, slots=True)
class ScopeItem:
    """One item of FROM: its alias and columns.

    Parameters
    ----------
    alias, columns
        Its names.
    stamp
        The name of the stamp, if it has one: another way to write STAMP() where no column has that name.
    sampled_at
        The column of the plan that holds the stamps, if the query asks for them and there is one.
    shared
        Columns that USING has made one with those of an item before it, by folded name: the name alone means those.
    """

    alias: str | None
    columns: tuple[ScopeColumn, ...]
    stamp: str | None = None
    sampled_at: str | None = None
    shared: frozenset[str] = frozenset()
    validity: tuple[str, str] | None = None
    """The columns of the plan with begin and end of the intervals of its tuples, if the query reads them."""
    counted: bool = False
    """True if a window, and not this interval, says how long a tuple counts."""
    quality: str | None = None
    """The column with the share of its exact row that each row is, if tuples may be dropped."""

    def matches(self, name: str) -> bool:
        """Return whether it has a column called `name`."""
        return any(column.visible.casefold() == name.casefold() for column in self.columns)

    def is_called(self, alias: str) -> bool:
        """Return whether it has an alias."""
        return (self.alias or "").casefold() == alias.casefold()

    def has(self, reference: exp.Column) -> bool:
        """Return whether `reference` may mean a column of it."""
        return (not reference.table or self.is_called(reference.table)) and self.matches(reference.name)

    def is_stamped_by(self, reference: exp.Column) -> bool:
        """Return whether `reference` is the stamp of its tuples, as far as the plan has it."""
        if self.sampled_at is None or (reference.table and not self.is_called(reference.table)):
            return False
        if isinstance(reference, Stamp):
            return True
        return (self.stamp or "").casefold() == reference.name.casefold() and not self.matches(reference.name)

    @property
    def holds_values(self) -> bool:
        """True for no item of FROM, but the values of subqueries, which have no names."""
        return self.alias is None and bool(self.columns) and not any(column.visible for column in self.columns)

    @property
    def stamps(self) -> tuple[ScopeColumn, ...]:
        """The column with its stamps, if the plan has one."""
        if self.sampled_at is None:
            return ()
        name = self.stamp or STAMP_NAME
        return (ScopeColumn(name, self.sampled_at, FieldType.TIMESTAMP, is_stamp=True),)

    @property
    def bounds(self) -> tuple[ScopeColumn, ...]:
        """The columns with begin and end of its tuples' intervals, if the plan has them."""
        return tuple(ScopeColumn("", each, FieldType.TIMESTAMP, is_stamp=True) for each in self.validity or ())

    def renamed(self, names: Mapping[str, str]) -> ScopeItem:
        """Return the item after columns of the plan were renamed (old to new)."""
        return replace(
            self,
            columns=tuple(
                replace(column, internal=names.get(column.internal, column.internal)) for column in self.columns
            ),
            sampled_at=names.get(self.sampled_at, self.sampled_at) if self.sampled_at else None,
            validity=(names.get(both[0], both[0]), names.get(both[1], both[1])) if (both := self.validity) else None,
            quality=names.get(self.quality, self.quality) if self.quality else None,
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """The items of FROM, and for a subquery those around it."""

    items: tuple[ScopeItem, ...]
    outer: Scope | None = None
    grouped: bool = False
    """True if these are the columns left by GROUP BY."""
    before_grouping: Scope | None = None
    starring: tuple[ScopeColumn, ...] | None = None
    """What ``*`` means; all columns, in order, unless USING has made some of them one."""
    _of_plan: dict[str, ScopeColumn] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def columns(self) -> tuple[ScopeColumn, ...]:
        """All columns, in order."""
        return tuple(column for item in self.items for column in item.columns)

    def of_plan(self, internal: str) -> ScopeColumn | None:
        """Return the column that has a name in the plan, or None."""
        if not self._of_plan:
            self._of_plan.update((column.internal, column) for column in reversed(self.columns))
        return self._of_plan.get(internal)

    def renamed(self, names: Mapping[str, str]) -> Scope:
        """Return the scope after columns of the plan were renamed (old to new)."""
        items = tuple(item.renamed(names) for item in self.items)
        if self.starring is None:
            return replace(self, items=items)
        starring = tuple(replace(each, internal=names.get(each.internal, each.internal)) for each in self.starring)
        return replace(self, items=items, starring=starring)

    def matches(self, name: str, qualifier: str | None) -> list[ScopeColumn]:
        """Return the columns called `name`, of the item called `qualifier` if given."""
        if qualifier is None:
            items = [item for item in self.items if name.casefold() not in item.shared]
        else:
            items = [item for item in self.items if (item.alias or "").casefold() == qualifier.casefold()]
        return [column for item in items for column in item.columns if column.visible.casefold() == name.casefold()]

    def starred(self, item: exp.Expr, context: Context) -> tuple[ScopeColumn, ...]:
        """Return the columns that ``*`` or ``stream.*`` means.

        Raises
        ------
        FjordSqlError
            If there is no such stream.
        """
        qualifier = item.text("table")
        if not qualifier:
            return self.columns if self.starring is None else self.starring
        for each in self.items:
            if (each.alias or "").casefold() == qualifier.casefold():
                return each.columns
        aliases = ", ".join(each.alias for each in self.items if each.alias)
        raise context.error(item, f"FROM has no stream {qualifier!r}", f"it has {aliases}")

    def is_other_column(self, body: exp.Expr, name: str) -> bool:
        """Return whether `body` is a column, and `name` the name of another one."""
        return (
            isinstance(body, exp.Column) and body.name.casefold() != name.casefold() and bool(self.matches(name, None))
        )

    def knows(self, reference: exp.Column) -> bool:
        """Return whether `reference` means a column of this scope, not of an outer one."""
        return bool(self._meant(reference))

    def reaches(self, reference: exp.Column) -> bool:
        """Return whether `reference` means a column or a stamp of this scope, or of one around it."""
        if self.knows(reference) or self.knows_stamp(reference):
            return True
        return self.outer is not None and self.outer.reaches(reference)

    def knows_stamp(self, reference: exp.Column) -> bool:
        """Return whether `reference` is the name of a stamp of this scope."""
        return bool(self._stamps(reference))

    def _meant(self, reference: exp.Column) -> list[ScopeColumn]:
        if isinstance(reference, Stamp):
            return self._stamps(reference)
        if isinstance(reference, Validity | ValidBound):
            return self._validities(reference)
        return self.matches(reference.name, reference.table or None)

    def _validities(self, reference: exp.Column) -> list[ScopeColumn]:
        """Return the bound that is meant of the interval of the tuples of an item; of the whole interval, the begin."""
        place = int(reference.name == END)
        named = (item for item in self.items if not reference.table or item.is_called(reference.table))
        return [item.bounds[place] for item in named if item.validity]

    def _stamps(self, reference: exp.Column) -> list[ScopeColumn]:
        """Return the stamps that STAMP, or the name of a stamp, may mean."""
        called, qualifier = isinstance(reference, Stamp), reference.table
        return [
            stamp
            for item in self.items
            if not qualifier or item.is_called(qualifier)
            for stamp in item.stamps
            if called or (item.stamp or "").casefold() == reference.name.casefold()
        ]

    def find(self, reference: exp.Column, context: Context) -> ScopeColumn:
        """Return the column that `reference` means.

        Raises
        ------
        FjordSqlError
            If there is none, or several.
        """
        check_stamp(reference, context)
        found = self._meant(reference)
        outside = self.yields(reference, self.outer)
        if not found and not outside:
            # Last of all, so that a text in which the name has another meaning keeps it.
            found = self._stamps(reference)
        if len(found) == 1:
            return found[0]
        if found:
            having = [
                item
                for item in self.items
                if any(each in (*item.columns, *item.stamps, *item.bounds) for each in found)
            ]
            raise ambiguous(reference, [item.alias for item in having if item.alias], context)
        if self.outer is not None and outside:
            return self.outer.find(reference, context)
        raise self._unknown(reference, context)

    def yields(self, reference: exp.Column, outer: Scope | None) -> bool:
        """Return whether a column that this scope does not have is one of the query around it."""
        return outer is not None and (
            outer.knows(reference) or (outer.reaches(reference) and not self.knows_stamp(reference))
        )

    def _unknown(self, reference: exp.Column, context: Context) -> FjordSqlError:
        if isinstance(reference, Validity | ValidBound):
            return self._without_validity(reference, context)
        name, qualifier = reference.name, reference.table or None
        items = [item for item in self.items if not qualifier or item.is_called(qualifier)]
        named = any((item.stamp or "").casefold() == name.casefold() for item in items)
        if items and (named or isinstance(reference, Stamp)):
            return without_stamp(reference, context, grouped=self.grouped)
        if self.before_grouping is not None and self.before_grouping.knows(reference):
            return context.error(
                reference,
                f"{name!r} is neither grouped nor aggregated",
                f"add it to GROUP BY, or write for example MAX({name})",
            )
        aliases = [item.alias for item in self.items if item.alias]
        if qualifier is not None and qualifier.casefold() not in {alias.casefold() for alias in aliases}:
            at = reference.args["table"]
            if is_further_out(reference):
                reason = f"a subquery can refer to the query directly around it, and {qualifier!r} is further out"
                return context.error(at, reason, "compare with the query between, and there with the one around it")
            return context.error(at, f"FROM has no stream {qualifier!r}", suggest(qualifier, aliases, what="it has"))
        visible = [
            column.visible
            for item in self.items
            if qualifier is None or (item.alias or "").casefold() == qualifier.casefold()
            for column in item.columns
        ]
        whole = [*visible, *(column.visible for column in self.outer.columns)] if self.outer else visible
        if qualifier is not None:
            elsewhere = [item.alias for item in self.items if item.alias and item.matches(name)]
            hint = f"write {elsewhere[0]}.{name}" if elsewhere else suggest(name, whole, what="columns are")
            return context.error(reference, f"there is no column {name!r} in {qualifier!r}", hint)
        hint = FOREIGN_COLUMNS.get(name.upper()) or did_you_mean(name, whole)
        if hint is None and name.casefold() in {alias.casefold() for alias in aliases}:
            hint = f"it is a stream: write {name}.column"
        if hint is None and reference.this.args.get("quoted"):
            hint = f"a text goes into single quotes: '{name}'"
        if hint is None and has_bare_alias(reference.parent, context):
            hint = did_you_mean(name, ("DISTINCT",))
        hint = named_by_select(reference, context) or hint or suggest(name, whole, what="columns are")
        return context.error(reference, f"there is no column {name!r}", hint)

    def _without_validity(self, reference: exp.Column, context: Context) -> FjordSqlError:
        qualifier = reference.table
        aliases = [item.alias for item in self.items if item.alias]
        if self.grouped:
            reason = "a group has no interval of its own: its tuples have"
            return context.error(reference, reason, "aggregate it: MAX(DURATION(VALID(t))), SUM(...), MIN(...)")
        if qualifier and not any(item.is_called(qualifier) for item in self.items):
            hint = suggest(qualifier, aliases, what="it has")
            return context.error(reference, f"FROM has no stream {qualifier!r}", hint)
        reason = f"VALID is the interval until the next tuple, and {qualifier or 'FROM'} has no VALID UNTIL NEXT"
        return context.error(reference, reason, f"write {VALID_SHAPE}")


def has_bare_alias(item: exp.Expr | None, context: Context) -> bool:
    """Return whether an item of SELECT has an alias without AS: perhaps two columns, or a word and a column."""
    if not isinstance(item, exp.Alias):
        return False
    here, there = span_of(item.this), span_of(item.args["alias"])
    return here is not None and there is not None and not context.words[here[1] : there[0]].strip()

"""Names: which column of the plan a word of the query means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.errors import suggest
from cluster.language.foreign_streams import FOREIGN_COLUMNS
from cluster.language.select_names import is_further_out, named_by_select
from cluster.language.stamps import ambiguous, check_stamp, without_stamp
from cluster.language.syntax import STAMP_NAME, Stamp, span_of
from cluster.language.validity_syntax import END, VALID_SHAPE, ValidBound, Validity
from protocols.text.closeness import did_you_mean
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.language.context import Context
    from cluster.language.errors import FjordSqlError


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

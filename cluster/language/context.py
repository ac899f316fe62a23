"""The context of a translation: its text, the catalog, the warnings, and how often it has read streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cluster.language.errors import FjordSqlError, shortened
from cluster.language.statement_texts import without_comments
from cluster.language.syntax import span_of
from cluster.operators.source import MOST_READINGS

if TYPE_CHECKING:
    from sqlglot import exp

    from cluster.language.catalog import Catalog


@dataclass(slots=True)
class Readings:
    """How often a query has read streams and relations so far, with WITH and derived streams expanded.

    This is an upper bound on copies of a tuple. A name for a query that uses another name twice doubles the number;
    twenty such names make it a million. Plans share the part that is named twice, so they stay small, but the rows that
    they make do not.
    """

    count: int = 0


@dataclass(slots=True)
class Context:
    """The context of a translation: the text (for errors), the catalog, and the warnings that it collects."""

    text: str
    catalog: Catalog
    registered: bool = False
    """True if the text was accepted before, perhaps by an earlier version: it keeps the meaning that it had then."""
    warnings: list[str] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    """Names of the streams read so far, and of those that WITH defines."""
    readings: Readings = field(default_factory=Readings)
    from_clauses: dict[tuple[int, int], Any] = field(default_factory=dict)
    """Translated FROM clauses, by identity of the SELECT and the catalog, which are kept with them (selects.py)."""
    lasting: set[tuple[int, int]] = field(default_factory=set)
    """Places of the LIFETIMEs that apply to a stream: at least one of its streams has no nearer one."""
    operands: dict[tuple[int, int], Any] = field(default_factory=dict)
    """Translated subqueries, by identity of subquery and plan on its left, which are kept with them (subqueries.py)."""
    temporal: set[int] = field(default_factory=set)
    """Conditions on NOW() that have become windows, by identity (temporal_filters.py)."""

    outermost: exp.Expr | None = None
    """The SELECT whose rows are those of a whole query that is no derived stream."""
    qualities: set[str] = field(default_factory=set)
    """Columns with the quality of rows of which tuples may be dropped that some SELECT shows (kept_extents.py)."""

    spelled: dict[tuple[int, int], str] = field(default_factory=dict)
    """By place in the text: what the same is written as in a text that is kept (interval_joins.py)."""

    _words: str | None = field(default=None, repr=False)
    _folded: str | None = field(default=None, repr=False)

    @property
    def words(self) -> str:
        """The text with spaces in place of comments, in which words are searched."""
        if self._words is None:
            self._words = without_comments(self.text)
        return self._words

    @property
    def folded(self) -> str:
        """The words without case."""
        if self._folded is None:
            self._folded = self.words.casefold()
        return self._folded

    def add_readings(self, readings: int, at: exp.Expr) -> None:
        """Count a name in FROM with the number of its readings.

        Raises
        ------
        FjordSqlError
            If there are too many in all.
        """
        self.readings.count += readings
        if self.readings.count > MOST_READINGS:
            raise self.error(
                at,
                f"with every name written out, this query reads streams {self.readings.count:,} times or more; at most "
                f"{MOST_READINGS:,} are possible",
                "what doubles with every step can be computed at once: multiply instead of repeating UNION ALL",
            )

    def error(self, at: exp.Expr, reason: str, hint: str | None = None) -> FjordSqlError:
        """Return an error about the text from which `at` was read."""
        place: exp.Expr | None = at
        span = None
        while place is not None and (span := span_of(place)) is None:
            place = place.parent
        start, end = span or (0, len(self.text))
        return FjordSqlError(reason, text=self.text, start=start, end=end, hint=hint)

    def refuse_ignored(self, at: exp.Expr, reason: str, hint: str | None = None) -> None:
        """Refuse syntax that would be ignored; in registered texts it stays ignored, with a warning.

        Raises
        ------
        FjordSqlError
            As :meth:`error`, unless the text was accepted before.
        """
        if not self.registered:
            raise self.error(at, reason, hint)
        self.warn(f"{self.source_text(at)} is ignored: {reason}")

    def warn(self, message: str) -> None:
        """Add a warning, once."""
        short = shortened(message)
        if short not in self.warnings:
            self.warnings.append(short)

    def source_text(self, expression: exp.Expr) -> str:
        """Return the text from which `expression` was read, as far as it is known."""
        span = span_of(expression)
        return self.text[span[0] : span[1]] if span else expression.sql()

"""Parsing items of FROM: streams with windows, granularity, events, sample periods and history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from sqlglot import exp, parser
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.acquisition import LEAVE_OUT, OWN, with_sources
from cluster.language.foreign_names import FOREIGN_STREAMS, stream_hint
from cluster.language.item_clause import ItemClause
from cluster.language.quantities import duration_us, read_quantity
from cluster.language.row_pattern_parsing import RowPatternParsing
from cluster.language.sensor_clauses import SensorClauseParsing, placeholder
from cluster.language.stream_item import ITEM_CLAUSES, Changes, StreamItem
from cluster.language.syntax import Bounds, StreamWindow
from cluster.language.tokens import is_mark
from cluster.language.validity_parsing import ValidityParsing
from cluster.language.words import (
    ALIAS_EXPECTED,
    CALLED_CLAUSES,
    FOREIGN_CLAUSES,
    HOPPING,
    RESET_SHAPE,
    SESSION_SHAPE,
    TUMBLING,
    UNQUOTED,
    WINDOW_SHAPES,
    ZONE_SHAPE,
)
from cluster.operators import Node, Source
from cluster.operators.source import History
from protocols.text.closeness import closest, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection

    from cluster.language.context import Context
    from cluster.language.syntax import SinceClause

SESSION_WINDOW = f"a window of sessions is written {SESSION_SHAPE}"
RESET_WINDOW = f"a window that is reset is written {RESET_SHAPE}"
FOREIGN_WINDOWS = {
    "TUMBLING": TUMBLING.format(""),
    "HOPPING": HOPPING.format(""),
    "SESSION": SESSION_WINDOW,
    "CUMULATE": RESET_WINDOW,
}
KINDS: tuple[str, ...] = ("RANGE", "ROWS", "SESSION", "RESET")


class StreamWindowParsing(SensorClauseParsing):
    """The part of the parser that reads a window."""

    def _parse_stream_window(self) -> StreamWindow:
        self._advance()
        self._expect_paren(WINDOW_SHAPES)
        partition = self._parse_window_keys()
        if not any(map(self._match_text_seq, KINDS)):
            if self._match_text_seq("PARTITION"):
                self.refuse_word(self._curr or self._prev)
            hint = FOREIGN_WINDOWS.get(self._curr.text.upper() if self._curr else "")
            hint = hint or f"a window is written {WINDOW_SHAPES}"
            words = KINDS if partition else (*KINDS, "PARTITION BY")
            self.refuse("RANGE, ROWS, SESSION or RESET was expected here", hint=hint, words=words)
        kind = self._prev.text.upper()
        if kind == "SESSION":
            return self._parse_session(partition)
        if kind == "RESET":
            return self._parse_reset(partition)
        size: exp.Expr | None = None
        place = self._curr
        if self._match_text_seq("SINCE", advance=False):
            hint = f"reset the window now and then: {RESET_SHAPE}"
            self.refuse("a window since an instant would keep its tuples for ever", hint=hint)
        if not self._match_text_seq("UNBOUNDED"):
            size = self._parse_bounds("MIN", "MAX") or self._parse_quantity(
                hint=f"a window is written {WINDOW_SHAPES}", words=("UNBOUNDED", "MIN")
            )
        window = StreamWindow(kind=kind, this=size, partition=partition)
        self._parse_grid(window)
        missing = tuple(word for word, part in (("SLIDE", "slide"), ("OFFSET", "offset")) if not window.args.get(part))
        self._close_paren(f"a window is written {WINDOW_SHAPES}", missing)
        return self.expression(window, place)

    def _parse_session(self, partition: list[exp.Expr] | None) -> StreamWindow:
        place = self._prev
        if not self._match_text_seq("GAP"):
            self.refuse("GAP was expected here", hint=SESSION_WINDOW, words=("GAP",))
        window = StreamWindow(kind="SESSION", this=self._parse_quantity(hint=SESSION_WINDOW), partition=partition)
        words = {"MAX": "longest", "EARLY": "early", "PARTITION BY": "partition"}
        while self._curr:
            token = self._curr
            if self._match_text_seq("MAX"):
                self._set_part(window, "longest", self._parse_quantity(hint=SESSION_WINDOW))
            elif self._match_text_seq("EARLY"):
                self._set_part(window, "early", value=True)
            elif self._match(TokenType.PARTITION_BY, advance=False):
                self._set_part(window, "partition", self._parse_window_keys())
            elif token.text.upper() in ("SLIDE", "SLIDES", "OFFSET", "AT"):
                reason = "a session closes when its tuples cease to come: its window does not move by time"
                self.refuse(reason, token=token, hint=SESSION_WINDOW)
            else:
                break
        missing = tuple(word for word, part in words.items() if not window.args.get(part))
        self._close_paren(SESSION_WINDOW, missing)
        return self.expression(window, place)

    def _parse_reset(self, partition: list[exp.Expr] | None) -> StreamWindow:
        place = self._prev
        if not self._match_text_seq("EVERY"):
            self.refuse("EVERY was expected here", hint=RESET_WINDOW, words=("EVERY",))
        window = StreamWindow(kind="RESET", this=self._parse_quantity(hint=RESET_WINDOW), partition=partition)
        self._parse_grid(window)
        self._close_paren(RESET_WINDOW, ("SLIDE", "OFFSET"))
        return self.expression(window, place)

    def _parse_grid(self, window: StreamWindow) -> None:
        """Read SLIDE, OFFSET and AT TIME ZONE, each once at most, in any order."""
        while self._curr:
            if self._match_text_seq("SLIDE") or self._match_text_seq("SLIDES"):
                self._set_part(window, "slide", self._parse_quantity())
            elif self._match_text_seq("OFFSET"):
                self._set_part(window, "offset", self._parse_quantity(hint="it is written OFFSET 6 HOURS"))
            elif self._match_text_seq("AT", "TIME", "ZONE"):
                self._set_part(window, "zone", self._parse_zone())
            else:
                return

    def _set_part(self, window: StreamWindow, part: str, value: object) -> None:
        if window.args.get(part):
            self.refuse(f"this window has two {part} clauses", token=self._prev)
        window.set(part, value)

    def _parse_zone(self) -> exp.Expr:
        token = self._curr
        if is_mark(token):
            self._advance()
            return placeholder(self, token)
        if not self._match(TokenType.STRING):
            self.refuse("the name of a time zone was expected here", hint=f"it is written {ZONE_SHAPE}")
        return self.expression(exp.Literal(this=token.text, is_string=True), token)

    def _parse_window_keys(self) -> list[exp.Expr] | None:
        return self._parse_csv(self._parse_column) if self._match(TokenType.PARTITION_BY) else None

    def _parse_bounds(self, low: str, high: str) -> Bounds | None:
        if not self._match_text_seq(low):
            return None
        first = self._parse_quantity()
        self._match(TokenType.COMMA)
        if not self._match_text_seq(high):
            self.refuse(f"{high} was expected here", hint=f"a range is written {low} a, {high} b", words=(high,))
        return self.expression(Bounds(this=first, expression=self._parse_quantity()))

    def _expect_paren(self, shapes: str) -> None:
        if not self._match(TokenType.L_PAREN):
            hint = FOREIGN_WINDOWS.get(self._curr.text.upper() if self._curr else "", f"it is written {shapes}")
            self.refuse("an opening parenthesis was expected here", hint=hint)

    def _close_paren(self, hint: str, words: tuple[str, ...] = ()) -> None:
        if not self._match(TokenType.R_PAREN):
            self.refuse("a closing parenthesis was expected here", hint=hint, words=words)


ALIAS_TOKENS = parser.Parser.TABLE_ALIAS_TOKENS - {TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH}
JOINS = ("LEFT", "RIGHT", "ZIP", "ASOF", "FULL", "INNER", "CROSS")
CHANGES = ("ISTREAM", "DSTREAM", "RSTREAM")
NO_ALIASES = frozenset((
    *("ANTI", "APPLY", "ASOF", "EMIT", "FINAL", "FOR", "LATERAL", "MATCH_RECOGNIZE", "MINUS", "NATURAL", "ONLY"),
    *("ORDINALITY", "OUTER", "OVER", "PARTITION", "PIVOT", "PREWHERE", "QUALIFY", "SEMI", "STRAIGHT_JOIN"),
    *("TABLESAMPLE", "UNNEST", "UNPIVOT", "USING", "WITH"),
    *("ALL", "ANY", "ASC", "BY", "CASE", "COLLATE", "DESC", "DIV", "END", "ESCAPE", "EXISTS", "FALSE", "IN", "IS"),
    *("ISNULL", "NULL", "OVERLAPS", "SOME", "TABLE", "TRUE", "UNIQUE"),
))  # fmt: skip
"""Words with a meaning behind a table in other databases, or of an unfinished clause: names only behind AS."""


class StreamItemParsing(RowPatternParsing, StreamWindowParsing, ValidityParsing):
    """The part of the parser that reads one item of FROM."""

    def _parse_table(  # noqa: PLR0917 - sqlglot's signature
        self,
        schema: bool = False,  # noqa: ARG002, FBT001, FBT002 - sqlglot's signature
        joins: bool = False,  # noqa: FBT001, FBT002
        alias_tokens: Collection[TokenType] | None = None,  # noqa: ARG002
        parse_bracket: bool = False,  # noqa: ARG002, FBT001, FBT002
        is_db_reference: bool = False,  # noqa: ARG002, FBT001, FBT002
        parse_partition: bool = False,  # noqa: ARG002, FBT001, FBT002
        consume_pipe: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> exp.Expr | None:
        if joins:
            first = self._prev if self._prev and self._prev.token_type == TokenType.FROM else None
            self.refuse("a query begins with SELECT", token=first, hint="SELECT ... FROM stream")
        joined = bool(self._prev and self._prev.token_type != TokenType.FROM)
        return self._parse_joined_item() if joined else self._parse_stream_item()

    def _at_asof(self) -> bool:
        """Return whether an ASOF join comes next."""
        raise NotImplementedError

    def _parse_joined_item(self) -> StreamItem:
        """Return the item of FROM that comes next, behind JOIN."""
        raise NotImplementedError

    def _parse_stream_item(self) -> StreamItem:
        item = StreamItem(this=self._parse_stream_reference())
        while self._curr:
            token = self._curr
            if self._curr.token_type == TokenType.WINDOW:
                self._set_once(item, "window", token, self._parse_stream_window())
            elif self._at_clause("VALID", "UNTIL"):
                self._set_once(item, "valid", token, self._parse_valid_clause())
            elif self._at_clause("COALESCE", "("):
                self._set_once(item, "coalesce", token, self._parse_coalesce_clause())
            elif self._at_keep():
                self._set_once(item, "keep", token, self._parse_keep_clause())
            elif (clause := self._at_item_clause()) is not None:
                self._set_once(item, clause.slot, token, self._parse_item_clause(clause))
            elif self._at_clause("EVENTS", "("):
                self._set_once(item, "events", token, self._parse_events())
            elif self._at_since():
                self._set_once(item, "since", token, self._parse_since())
            elif self._at_row_pattern():
                item = StreamItem(this=self._parse_row_pattern(self.expression(item)))
            elif self._at_lifetime():
                break
            elif (sample := self._parse_sample_clause()) is not None:
                self._set_once(item, "sample", token, sample)
            elif (alias := self._parse_stream_alias()) is not None:
                self._set_once(item, "alias", token, alias)
            else:
                break
        return self.expression(item)

    def _at_item_clause(self) -> ItemClause | None:
        """Return the clause that comes next, if it transforms the tuples of the item."""
        return next((each for each in ITEM_CLAUSES if self._at_clause(each.word, "(")), None)

    def _parse_item_clause(self, clause: ItemClause) -> exp.Expr:
        token = self._curr
        self._advance(2)
        shape = f"it is written {clause.example}"
        bounds = self._parse_bounds(*clause.bounds) if clause.bounds else None
        size = bounds or self._parse_quantity(hint=shape, words=(clause.bounds or ())[:1])
        self._close_paren(shape)
        return self.expression(clause.syntax(this=size), token)

    def _set_once(self, item: StreamItem, part: str, token: Token, value: exp.Expr) -> None:
        if item.args.get(part):
            if part == "alias":
                self.refuse_word(token)
            self.refuse(f"this stream has two {part} clauses", token=token)
        item.set(part, value)

    def _parse_stream_alias(self) -> exp.Identifier | None:
        explicit = self._match(TokenType.ALIAS)
        joins = self._at_clause("ZIP", "JOIN") or self._at_asof() or self._at_clause("MATCH_CONDITION", "(")
        if not explicit and (joins or self._at_word("WITHIN")):
            return None
        word = self._curr
        alias = self._parse_id_var(any_token=False, tokens=ALIAS_TOKENS)
        if explicit and alias is None:
            quoted = self._match(TokenType.STRING, advance=False)
            self.refuse(ALIAS_EXPECTED, hint=UNQUOTED if quoted else None)
        if alias is not None and self._curr and self._curr.token_type == TokenType.L_PAREN:
            hint = f"a window is written {WINDOW_SHAPES}"
            if len(found := closest(alias.name, CALLED_CLAUSES)) == 1:
                hint = f"did you mean {found[0]}? It is written {CALLED_CLAUSES[found[0]]}"
            elif not explicit:
                self.refuse_misspelled(self._prev)
            else:
                reason = "a list of columns behind a name is not part of FjordSQL"
                self.refuse(reason, hint="name the columns with AS in SELECT")
            self.refuse(f"{alias.name!r} is no clause of FROM", token=self._prev, hint=hint)
        if not isinstance(alias, exp.Identifier):
            return None
        if not explicit and not alias.args.get("quoted") and alias.name.upper() in NO_ALIASES:
            if alias.name.upper() in FOREIGN_CLAUSES:
                self.refuse_word(word)
            self.refuse_misspelled(word)
            hint = f"as the name of a stream it is written AS {alias.name}"
            self.refuse(f"{alias.name!r} was not expected here", token=word, hint=hint)
        if not explicit and self._match(TokenType.JOIN, advance=False):
            # This is a join all the same, but perhaps not the intended one.
            alias.meta["meant"] = did_you_mean(alias.name, JOINS)
        return alias

    def _parse_stream_reference(self) -> exp.Expr:
        token = self._curr
        if self._match(TokenType.L_PAREN):
            query = self._parse_set_operations(self._parse_select(nested=True, parse_subquery_alias=False))
            if query is None:
                self.refuse("a query was expected after the parenthesis", hint="FROM (SELECT ...) AS name")
            self._match_r_paren()
            return self.expression(exp.Subquery(this=query))
        if self._curr and self._curr.text.upper() in CHANGES and self._at_clause(self._curr.text.upper(), "("):
            self._advance(2)
            changes = self.expression(Changes(kind=token.text.upper(), this=self._parse_stream_item()), token)
            self._match_r_paren()
            return changes
        name = self._parse_id_var(any_token=False)
        if not isinstance(name, exp.Identifier):
            word = self._curr.text.upper() if self._curr else ""
            quoted = self._match(TokenType.STRING, advance=False)
            hint = "the name of a stream has no quotes, or double ones" if quoted else FOREIGN_STREAMS.get(word)
            self.refuse("a stream was expected here", hint=hint)
        if self._match(TokenType.DOT):
            self.refuse("the name of a stream has no dots", token=self._prev)
        if self._curr and self._curr.token_type == TokenType.L_PAREN:
            inner = self._next.text.upper() if self._next else ""
            if inner in ("RANGE", "ROWS", "PARTITION BY", "SESSION", "RESET") and name.name.upper() != "TABLE":
                self.refuse("a window begins with WINDOW", hint=f"a window is written {WINDOW_SHAPES}")
            self.refuse(
                f"{name.name!r} is no function that gives a stream",
                token=token,
                hint=stream_hint(name.name, inner) or "Istream, Dstream and Rstream do",
                words=CHANGES,
            )
        return self.expression(exp.Table(this=name))


def with_history(node: Node, since: SinceClause, context: Context, *, name: str) -> Node:
    """Return `node`, the stream called `name`, with the history set at every stream below it that has none yet.

    Raises
    ------
    FjordSqlError
        If it is not a duration, or each of them has a history.
    """
    ago = since.args.get("this")
    history = History(None if ago is None else read_quantity(ago, duration_us, context, meant="HOURS"))

    def note_history(source: Source) -> Source:
        return source if source.history is not None else replace(source, history=history)

    found = with_sources(node, note_history)
    if found is node:
        context.refuse_ignored(since, OWN.format(f"that {name} reads", "SINCE"), LEAVE_OUT)
    return found

"""Parsing windows behind a stream: by time, by count, by sessions, and those that are reset."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.language.parameter_marks import is_mark
from cluster.language.sensor_clauses import SensorClauseParsing, placeholder
from cluster.language.syntax import Bounds, StreamWindow
from cluster.language.words import HOPPING, RESET_SHAPE, SESSION_SHAPE, TUMBLING, WINDOW_SHAPES, ZONE_SHAPE

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

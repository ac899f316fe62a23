"""Parsing joins by stamps: ASOF JOIN, JOIN ... WITHIN and ZIP JOIN."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.item_parsing import StreamItemParsing
from cluster.language.sensor_clauses import stands_for_number
from cluster.language.stream_item import StreamItem
from cluster.language.syntax import Quantity, StampJoin, Within, ZipBounds, ZipJoin
from cluster.language.words import ASOF_SHAPE, NEAR_SHAPE, ZIP_SHAPE

ZIP_SIDES = ("INNER", "LEFT", "FULL")
BOUNDS_SHAPES = "WITHIN 50 MILLISECONDS or WITHIN 0 SECONDS TO 2 SECONDS"


class ZipJoinParsing(StreamItemParsing):
    """The part of the parser that reads zipper joins."""

    def _parse_zip_join(self) -> ZipJoin | None:
        """Return the zipper join that comes next, or None if something else does."""
        index, first = self._index, self._curr
        side = first.text.upper() if first and self._match_set(self.JOIN_SIDES | self.JOIN_KINDS) else "INNER"
        if side != "INNER":
            self._match_text_seq("OUTER")
        if not self._at_clause("ZIP", "JOIN"):
            self._retreat(index)
            return None
        if side not in ZIP_SIDES:
            hint = "exchange the two streams and write LEFT" if side == "RIGHT" else f"it is written {ZIP_SHAPE}"
            self.refuse(f"{side} ZIP JOIN is not part of FjordSQL", token=first, hint=hint)
        place = self._curr
        self._advance(2)
        join = ZipJoin(this=self._parse_stream_item(), side=side)
        if self._at_word("WITHIN"):
            join.set("within", self._parse_zip_bounds())
        no_using = "ZIP JOIN ... USING is not part of FjordSQL"
        twice = "this zipper join has two WITHIN", f"bounds are written {BOUNDS_SHAPES}"
        self._parse_condition_of(join, ZIP_SHAPE, no_using=no_using, twice=twice)
        return self.expression(join, place)

    def _parse_condition_of(self, join: exp.Join, shape: str, *, no_using: str, twice: tuple[str, str]) -> None:
        """Read ON behind a join with bounds; refuse USING, and bounds that stand behind it or twice."""
        if self._match(TokenType.ON):
            condition = self._parse_disjunction()
            if condition is not None and condition.find(Within):
                self.refuse("WITHIN stands before ON", token=self._prev, hint=f"it is written {shape}")
            join.set("on", condition)
        elif self._match(TokenType.USING):
            self.refuse(no_using, token=self._prev, hint=f"write {shape}")
        elif self._at_word("WITHIN"):
            self.refuse(twice[0], hint=twice[1])

    def _parse_zip_bounds(self) -> ZipBounds:
        place = self._curr
        self._advance()
        low, high = None, self._parse_distance()
        if self._match_text_seq("TO"):
            low, high = high, self._parse_distance()
        bounds = self.expression(ZipBounds(this=low, expression=high), place)
        bounds.meta["end"] = self._prev.end
        return bounds

    def _parse_distance(self) -> Quantity:
        start = self._curr
        negative = self._match(TokenType.DASH)
        if not self._curr or not stands_for_number(self._curr):
            self.refuse("a duration was expected here", hint=f"bounds are written {BOUNDS_SHAPES}")
        quantity = self._parse_quantity()
        if negative:
            self._negative(quantity.this, start)
        return quantity


STAMP_JOIN_SIDES = ("INNER", "LEFT")
_MATCH_SHAPE = "a ASOF [LEFT] JOIN b WITHIN 5 MINUTES MATCH_CONDITION (STAMP(a) >= STAMP(b)) ON a.x = b.x"
NO_USING = "a join by stamps has no USING"


class StampJoinParsing(ZipJoinParsing):
    """The part of the parser that reads joins by stamps."""

    def _parse_asof_join(self) -> StampJoin | None:
        """Return the ASOF join that comes next, or None if something else does."""
        index, first = self._index, self._curr
        before = first.text.upper() if first and self._match_set(self.JOIN_SIDES | self.JOIN_KINDS) else ""
        if not self._at_asof():
            self._retreat(index)
            return None
        if before:
            self.refuse(f"{before} stands behind ASOF", token=first, hint=f"it is written {ASOF_SHAPE}")
        place = self._curr
        self._advance()
        side_token = self._curr
        side = side_token.text.upper() if self._match_set(self.JOIN_SIDES | self.JOIN_KINDS) else "INNER"
        if side not in STAMP_JOIN_SIDES:
            reason = f"ASOF {side} JOIN is not part of FjordSQL"
            self.refuse(reason, token=side_token, hint=f"exchange the streams, or write {ASOF_SHAPE}")
        if side == "LEFT":
            self._match_text_seq("OUTER")
        if not self._match(TokenType.JOIN):
            self.refuse("JOIN was expected here", hint=f"it is written {ASOF_SHAPE}", words=("JOIN",))
        join = StampJoin(this=self._parse_stream_item(), kind="ASOF", side=side)
        if self._at_word("WITHIN"):
            join.set("within", self._parse_zip_bounds())
        if self._at_clause("MATCH_CONDITION", "("):
            self._advance()
            self._match(TokenType.L_PAREN)
            join.set("match", self._parse_disjunction())
            self._match_r_paren()
            if self._at_word("WITHIN") and join.args.get("within") is None:
                self.refuse("WITHIN stands before MATCH_CONDITION", hint=f"it is written {_MATCH_SHAPE}")
        twice = "this join has two WITHIN", f"it is written {ASOF_SHAPE}"
        self._parse_condition_of(join, ASOF_SHAPE, no_using=NO_USING, twice=twice)
        return self.expression(join, place)

    def _at_asof(self) -> bool:
        """Return whether an ASOF join comes next, and not a name."""
        quoted = self._curr is not None and self._curr.token_type == TokenType.IDENTIFIER
        return not quoted and self._at_clause("ASOF", "JOIN", "LEFT", "RIGHT", "FULL", "INNER")

    def _parse_joined_item(self) -> StreamItem:
        """Return the item of FROM that comes next, with WITHIN behind it, if it is one of a join."""
        item = self._parse_stream_item()
        if self._at_word("WITHIN"):
            item.meta["within"] = self._parse_zip_bounds()
        return item

    def _with_bounds(self, join: exp.Join, first: Token) -> exp.Join:
        """Return a join that has been read, as a join by stamps if it has WITHIN."""
        bounds = join.this.meta.pop("within", None) if isinstance(join.this, StreamItem) else None
        if bounds is None:
            return join
        side, kind = join.args.get("side"), join.args.get("kind")
        if join.args.get("method") or kind not in {None, "INNER", "OUTER"} or (kind == "OUTER" and not side):
            self.refuse("WITHIN bounds joins with a condition", token=first, hint=f"write {NEAR_SHAPE}")
        if join.args.get("using"):
            using = next(each for each in reversed(self._tokens[: self._index]) if each.token_type == TokenType.USING)
            self.refuse(NO_USING, token=using, hint=f"write {NEAR_SHAPE}")
        on = join.args.get("on")
        if on is not None and on.find(Within):
            self.refuse("WITHIN stands before ON", token=first, hint=f"it is written {NEAR_SHAPE}")
        near = StampJoin(this=join.this, kind="WITHIN", side=side or "INNER", within=bounds, on=on)
        return self.expression(near, first)

"""Parsing ZIP JOIN: two streams paired one to one in the order of their stamps."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.language.sensor_clauses import stands_for_number
from cluster.language.stream_items import StreamItemParsing
from cluster.language.syntax import Quantity, Within, ZipBounds, ZipJoin
from cluster.language.words import ZIP_SHAPE

SIDES = ("INNER", "LEFT", "FULL")
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
        if side not in SIDES:
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

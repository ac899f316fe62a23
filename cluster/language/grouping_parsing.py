"""Parsing GROUP BY: keys, sets of keys in parentheses, ROLLUP, CUBE and GROUPING SETS."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.call_parsing import CallParsing
from cluster.language.words import GROUPING_SHAPES, MISPLACED_WINDOW

_LISTS: dict[TokenType, type[exp.Rollup | exp.Cube]] = {TokenType.ROLLUP: exp.Rollup, TokenType.CUBE: exp.Cube}


class GroupingParsing(CallParsing):
    """The part of the parser that reads GROUP BY."""

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:  # noqa: FBT001, FBT002 - sqlglot's
        start = self._prev if skip_group_by_token else self._curr
        place = self._index + (0 if skip_group_by_token else 1)
        first = self._tokens[place : place + 2]
        if [each.token_type for each in first] == [TokenType.WINDOW, TokenType.L_PAREN]:
            reason, hint = MISPLACED_WINDOW
            self.refuse(reason, token=first[0], hint=hint)
        if first and first[0].token_type == TokenType.ALL:
            hint = "name what to group by, or its places in SELECT: GROUP BY 1, 2"
            self.refuse("GROUP BY ALL is not part of FjordSQL", token=first[0], hint=hint)
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            hint = "name columns to group by, or leave GROUP BY away"
            self.refuse("GROUP BY has nothing behind it", token=start, hint=hint)
        if group is not None:
            group.set("expressions", [_of_one_set(each) for each in group.expressions])
        return group

    def _parse_grouping_sets(self) -> exp.GroupingSets | None:
        start = self._curr
        if not self._match(TokenType.GROUPING_SETS):
            return None
        found = exp.GroupingSets(expressions=self._parse_sets(start))
        self._spanning(start, found)
        return self.expression(found)

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:  # noqa: FBT001, FBT002
        start = self._curr
        if with_prefix:  # WITH ROLLUP, which is refused later
            found = super()._parse_cube_or_rollup(with_prefix)
            self._spanning(start, found)
            return found
        kind = _LISTS.get(start.token_type) if start else None
        if kind is None or self._next is None or self._next.token_type != TokenType.L_PAREN:
            return None
        self._advance()
        found = kind(expressions=self._parse_sets(start))
        self._spanning(start, found)
        return self.expression(found)

    def _parse_sets(self, word: Token) -> list[exp.Expr]:
        """Return the keys, sets and lists in parentheses behind a word; sqlglot reads no comparisons there."""
        if not self._match(TokenType.L_PAREN):
            self.refuse(f"{word.text.upper()} is followed by sets of keys in parentheses", hint=GROUPING_SHAPES)
        found = self._parse_csv(
            lambda: self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()
        )
        if not found:
            self.refuse(f"{word.text.upper()} has no keys", token=word, hint=GROUPING_SHAPES)
        self._match_r_paren()
        return [_of_one_set(each) for each in found]


def _of_one_set(element: exp.Expr) -> exp.Expr:
    """Return an element of GROUP BY without parentheses around those of a set, which change nothing."""
    inner = element.unnest() if isinstance(element, exp.Paren) else element
    return inner if isinstance(inner, exp.Tuple) else element

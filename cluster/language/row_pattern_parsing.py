"""Parsing MATCH_RECOGNIZE: patterns of rows, as the SQL standard and Flink SQL write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.sensor_clauses import SensorClauseParsing
from cluster.language.syntax import (
    CLAUSE,
    CLAUSE_SHAPE,
    PATTERN_SHAPE,
    QUERIES,
    SKIP_SHAPES,
    WITHIN_SHAPE,
    Navigation,
    PatternText,
    Quantity,
    RowPatternClause,
    SkipClause,
    VariableDefinition,
    Within,
    place_of,
)
from cluster.language.tokens import is_mark
from cluster.operators.pattern_match import MOST_ELEMENTS, MOST_REPEATED, PatternElement
from protocols.wire.names import is_identifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.language.stream_item import StreamItem

NAVIGATIONS = ("PREV", "FIRST", "LAST")
QUANTIFIERS = "quantifiers are A?, A*, A+, A{2}, A{1,3} and A{2,}, each with a ? behind it to take few rows"
_PARTS = ("MEASURES", "ONE", "ALL", "AFTER", "PATTERN", "SUBSET", "DEFINE")
_MARKS: dict[TokenType, tuple[str, str]] = {
    TokenType.L_PAREN: (
        "parentheses in PATTERN are not part of FjordSQL: a quantifier belongs to one variable",
        "write the variables one after the other; for alternatives, OR in one DEFINE",
    ),
    **dict.fromkeys(
        (TokenType.PIPE, TokenType.DPIPE),
        ("alternatives in PATTERN are not part of FjordSQL", "write OR in the DEFINE of one variable"),
    ),
    TokenType.CARET: ("a stream has no first row for ^ to stand for", PATTERN_SHAPE),
    TokenType.DOLLAR: ("a stream has no last row for $ to stand for", PATTERN_SHAPE),
}
"""Marks of other databases in PATTERN: why they are refused, and what to write instead."""
_EXCLUSION = (
    "{- ... -} leaves rows out of ALL ROWS PER MATCH, which is not part of FjordSQL",
    "a variable that no measure reads is not shown",
)


class RowPatternParsing(SensorClauseParsing):
    """The part of the parser that reads MATCH_RECOGNIZE."""

    def _at_row_pattern(self) -> bool:
        return self._at_clause(CLAUSE, "(") and self._curr.token_type == TokenType.VAR

    def _parse_row_pattern(self, item: StreamItem) -> RowPatternClause:
        """Return the pattern over an item of FROM that has been read."""
        token = self._curr
        self._advance(2)
        clause = RowPatternClause(this=item)
        if self._match(TokenType.PARTITION_BY):
            clause.set("partition", self._parse_csv(self._parse_disjunction))
        self._parse_row_order(clause)
        self._expect("MEASURES")
        clause.set("measures", self._parse_csv(self._parse_measure))
        if not clause.args["measures"]:
            self.refuse("a measure was expected here", hint="MEASURES LAST(B.x) AS x")
        self._parse_rows_per_match(clause)
        if self._at_clause("AFTER", "MATCH"):
            clause.set("skip", self._parse_skip())
        self._parse_pattern_and_time(clause)
        if self._at_word("SUBSET"):
            self.refuse("SUBSET is not part of FjordSQL", hint="write the conditions and measures for each variable")
        if self._match_text_seq("DEFINE"):
            clause.set("definitions", self._parse_csv(self._parse_definition))
        if not self._match(TokenType.R_PAREN):
            words = () if clause.args.get("definitions") else ("DEFINE",)
            self.refuse("a closing parenthesis was expected here", hint=f"it is written {CLAUSE_SHAPE}", words=words)
        found = self.expression(clause, token)
        found.meta["start"], found.meta["end"] = token.start, self._prev.end
        return found

    def _expect(self, *words: str) -> None:
        for word in words:
            if not self._match_text_seq(word):
                self.refuse(f"{word} was expected here", hint=f"it is written {CLAUSE_SHAPE}", words=(word,))

    def _parse_row_order(self, clause: RowPatternClause) -> None:
        if not self._match(TokenType.ORDER_BY):
            reason = "ORDER BY STAMP() was expected here: the rows of a pattern are in the order of their stamps"
            self.refuse(reason, hint=f"it is written {CLAUSE_SHAPE}", words=("ORDER BY", "PARTITION BY"))
        first = self._index
        if self._at_clause("STAMP", "("):
            self._advance(2)
            if not self._match(TokenType.R_PAREN):
                self.refuse("STAMP takes no argument", hint="ORDER BY STAMP()")
        elif not self._parse_column():
            self.refuse("the stamp was expected here", hint="ORDER BY STAMP()")
        clause.set("order", [self._as_name(token) for token in self._tokens[first : self._index]])
        if self._curr and self._curr.token_type == TokenType.ASC:
            clause.append("order", self._as_name(self._curr))
            self._advance()
        if self._curr and self._curr.token_type == TokenType.DESC:
            self.refuse("a stream is read forwards: the rows of a pattern are in the order of their stamps")
        if self._curr and self._curr.token_type == TokenType.COMMA:
            hint = "ORDER BY STAMP(); rows of one stamp are in the order of the columns that are read"
            self.refuse("the rows of a pattern are in the order of their stamps", hint=hint)

    def _as_name(self, token: Token) -> exp.Identifier:
        return self.expression(exp.Identifier(this=token.text, quoted=False), token)

    def _parse_measure(self) -> exp.Expr | None:
        start = self._curr
        if start and start.text.upper() in ("FINAL", "RUNNING") and self._next and self._next.text != ".":
            self.refuse(f"{start.text.upper()} is not part of FjordSQL", hint="measures are about the whole match")
        measure = self._parse_disjunction()
        if measure is None:
            return None
        if not self._match(TokenType.ALIAS):
            self.refuse("AS and a name were expected here", hint="MEASURES LAST(B.x) AS x", words=("AS",))
        name = self._parse_id_var(any_token=True)
        if not isinstance(name, exp.Identifier):
            self.refuse("a name was expected here", hint="MEASURES LAST(B.x) AS x")
        return self.expression(exp.Alias(this=self._navigated(measure), alias=name))

    def _parse_rows_per_match(self, clause: RowPatternClause) -> None:
        if self._at_clause("ALL", "ROWS"):
            self.refuse(
                "ALL ROWS PER MATCH is not part of FjordSQL: a row is certain only when its match is complete",
                hint="write ONE ROW PER MATCH, with FIRST, LAST and aggregates in MEASURES",
            )
        if self._at_clause("ONE", "ROW"):
            self._expect("ONE", "ROW", "PER", "MATCH")
            clause.set("one_row", value=True)

    def _parse_skip(self) -> SkipClause:
        token = self._curr
        self._advance(2)
        self._expect("SKIP")
        skip = SkipClause(kind="TO")
        if self._match_text_seq("PAST"):
            self._expect("LAST", "ROW")
            skip.set("kind", "PAST LAST ROW")
        elif not self._match_text_seq("TO"):
            self.refuse("PAST or TO was expected here", hint=SKIP_SHAPES, words=("PAST", "TO"))
        elif self._at_clause("NEXT", "ROW"):
            self._advance(2)
            skip.set("kind", "TO NEXT ROW")
        else:
            if self._curr and self._curr.text.upper() in ("FIRST", "LAST") and self._next_is_name():
                skip.set("kind", f"TO {self._curr.text.upper()}")
                self._advance()
            variable = self._parse_id_var(any_token=False)
            if not isinstance(variable, exp.Identifier):
                self.refuse(
                    "a variable of PATTERN was expected here", hint=SKIP_SHAPES, words=("NEXT", "FIRST", "LAST")
                )
            skip.set("this", variable)
        return self.expression(skip, token)

    def _next_is_name(self) -> bool:
        """Return whether a name stands behind the next word; what comes behind SKIP TO x is a word of the clause."""
        following = self._next
        return bool(following and is_identifier(following.text) and following.text.upper() not in _PARTS)

    def _parse_pattern_and_time(self, clause: RowPatternClause) -> None:
        self._expect("PATTERN")
        opened = self._prev
        if not self._match(TokenType.L_PAREN):
            self.refuse("an opening parenthesis was expected here", hint=PATTERN_SHAPE)
        first = self._index
        elements: list[PatternElement] = []
        while self._curr and self._curr.token_type != TokenType.R_PAREN:
            elements.append(self._parse_element())
        if not elements:
            self.refuse("the pattern is empty", token=self._curr or self._prev, hint=PATTERN_SHAPE)
        pattern = PatternText(expressions=[self._as_name(token) for token in self._tokens[first : self._index]])
        if len(elements) > MOST_ELEMENTS:
            self.refuse(f"a pattern has at most {MOST_ELEMENTS} variables", token=opened)
        self._match_r_paren()
        pattern.meta["elements"] = tuple(elements)
        clause.set("pattern", self.expression(pattern))
        if self._match_text_seq("WITHIN"):
            self._parse_time(clause)

    def _parse_element(self) -> PatternElement:
        token = self._curr
        following = self._next
        if token.token_type in _MARKS or token.text == "$":
            reason, hint = _MARKS.get(token.token_type, _MARKS[TokenType.DOLLAR])
            self.refuse(reason, hint=hint)
        if self._at_clause("{", "-"):
            self.refuse(_EXCLUSION[0], hint=_EXCLUSION[1])
        if not is_identifier(token.text) or token.token_type == TokenType.STRING:
            self.refuse("a variable was expected here", hint=PATTERN_SHAPE)
        if token.text.upper() == "PERMUTE" and following and following.token_type == TokenType.L_PAREN:
            self.refuse("PERMUTE is not part of FjordSQL", hint="write a pattern for each order, joined by UNION ALL")
        self._advance()
        least, most, reluctant = self._parse_quantifier()
        return PatternElement(token.text, least, most, reluctant)

    def _parse_quantifier(self) -> tuple[int, int | None, bool]:
        """Return how often a variable comes at least and at most, and whether it takes as few rows as possible."""
        if self._match(TokenType.DQMARK):
            return 0, 1, True
        bounds = self._parse_repeats()
        if bounds is None:
            return 1, 1, False
        reluctant = self._at_question()
        if reluctant:
            self._advance()
        if self._at_question() or self._match(TokenType.DQMARK, advance=False):
            self.refuse("this quantifier has too many question marks", hint=PATTERN_SHAPE)
        return *bounds, reluctant

    def _parse_repeats(self) -> tuple[int, int | None] | None:
        if self._match(TokenType.STAR):
            return 0, None
        if self._match(TokenType.PLUS):
            return 1, None
        if self._at_question():
            self._advance()
            return 0, 1
        opened = self._curr
        if self._at_clause("{", "-") or not self._match(TokenType.L_BRACE):
            return None
        least = self._parse_count()
        most = least
        if self._match(TokenType.COMMA):
            most = self._parse_count()
        elif least is None:
            self.refuse("a number was expected here", hint=QUANTIFIERS)
        if not self._match(TokenType.R_BRACE):
            self.refuse("a closing brace was expected here", hint=QUANTIFIERS)
        least = least or 0
        if most is not None and (most < least or not most):
            reason = "the most is less than the least" if most else "a variable that takes no row is none"
            self.refuse_span(reason, opened.start, self._prev.end + 1, hint=QUANTIFIERS)
        return least, most

    def _parse_count(self) -> int | None:
        token = self._curr
        if is_mark(token):
            self.refuse("a quantifier is part of the pattern, and no parameter can stand in it")
        if not self._match(TokenType.NUMBER):
            return None
        if not token.text.isdigit() or int(token.text) > MOST_REPEATED:
            self.refuse(f"this is no whole number of at most {MOST_REPEATED:,}", token=token)
        return int(token.text)

    def _at_question(self) -> bool:
        return bool(self._curr and self._curr.token_type == TokenType.PLACEHOLDER and not is_mark(self._curr))

    def _parse_time(self, clause: RowPatternClause) -> None:
        if not self._match(TokenType.INTERVAL):
            clause.set("within", self._parse_quantity(hint=f"it is written {WITHIN_SHAPE}"))
            return
        clause.set("interval", value=True)
        number, unit = self._curr, self._next
        if not (number and number.token_type in (TokenType.STRING, TokenType.NUMBER) and unit):
            self.refuse("a number in quotes was expected here", hint="WITHIN INTERVAL '10' MINUTE")
        self._advance(2)
        value = self.expression(exp.Literal(this=number.text.strip(), is_string=False), number)
        clause.set("within", self.expression(Quantity(this=value, unit=self.expression(exp.Var(this=unit.text), unit))))

    def _parse_definition(self) -> VariableDefinition | None:
        token = self._curr
        name = self._parse_id_var(any_token=True)
        if not isinstance(name, exp.Identifier):
            return None
        if not self._match(TokenType.ALIAS):
            self.refuse("AS was expected here", hint="DEFINE A AS A.x > 1", words=("AS",))
        condition = self._parse_disjunction()
        if condition is None:
            self.refuse("a condition was expected here", hint="DEFINE A AS A.x > 1")
        return self.expression(VariableDefinition(this=name, expression=self._navigated(condition)), token)

    def _navigated(self, expression: exp.Expr) -> exp.Expr:
        """Return an expression of the clause with nodes of their own for PREV, FIRST and LAST."""
        holder = exp.Paren(this=expression)
        for call in list(_calls(holder)):
            name = _called(call)
            if isinstance(call, (*QUERIES, Within)):
                what, hint = "a subquery", "put its conditions into a subquery of FROM, below MATCH_RECOGNIZE"
                if isinstance(call, Within):
                    what, hint = "WITHIN", "allow an error where the stream is read, in a subquery of FROM"
                self._refuse_call(call, f"{what} cannot stand in MATCH_RECOGNIZE", hint)
            if name in NAVIGATIONS:
                call.replace(self._navigation(call, name))
            elif name == "NEXT":
                reason = "NEXT is not part of FjordSQL: a row is decided without those behind it"
                self._refuse_call(call, reason, "compare the later row with PREV in its own DEFINE")
            elif name in ("CLASSIFIER", "MATCH_NUMBER", "MATCH_ROWTIME"):
                hints = {"MATCH_ROWTIME": "write STAMP(): the row of a match is valid at the instant of its last row"}
                self._refuse_call(call, f"{name} is not part of FjordSQL", hints.get(name))
        found: exp.Expr = holder.this
        found.parent = None
        return found

    def _navigation(self, call: exp.Expr, name: str) -> Navigation:
        arguments = call.expressions if isinstance(call, exp.Anonymous) else [call.this, *call.expressions]
        if not isinstance(call, exp.Anonymous) and call.args.get("expression") is not None:
            arguments = [call.this, call.args["expression"]]
        if len(arguments) not in (1, 2):
            self._refuse_call(call, f"{name} takes one or two arguments", f"it is written {name}(A.x[, n])")
        offset = arguments[1] if len(arguments) > 1 else None
        if offset is not None and not (
            isinstance(offset, exp.Literal) and offset.is_int and int(offset.this) <= MOST_REPEATED
        ):
            reason = f"how many rows {name} goes is a whole number, written out, of at most {MOST_REPEATED:,}"
            self._refuse_call(call, reason, f"{name}(A.x, 1)")
        navigation = Navigation(kind=name, this=arguments[0], offset=offset)
        navigation.meta.update({key: value for key, value in call.meta.items() if key in ("start", "end")})
        return navigation

    def _refuse_call(self, call: exp.Expr, reason: str, hint: str | None) -> None:
        start, end = place_of(call)
        self.refuse_span(reason, start, end, hint=hint)


def _calls(expression: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of an expression, those within others first."""
    for child in list(expression.iter_expressions()):
        if not isinstance(child, QUERIES):
            yield from _calls(child)
        yield child


def _called(call: exp.Expr) -> str:
    if isinstance(call, exp.Anonymous):
        return str(call.this).upper()
    if isinstance(call, exp.First | exp.Last):
        return "FIRST" if isinstance(call, exp.First) else "LAST"
    return ""

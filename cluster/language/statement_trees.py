"""The syntax tree of one statement, and EMIT behind it: what is checked of its text before and after it is parsed.

**EMIT EARLY and EMIT FINAL, the last words of a query: when its rows are published, not which.**

They are taken off before the rest is parsed, so that a query means the same with and without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.parser import IsPredicatePrecedence
from sqlglot.tokenizer_core import TokenType

from cluster.language.catalog import Catalog
from cluster.language.context import Context
from cluster.language.dialect import FjordSQL, tokens_of
from cluster.language.errors import FjordSqlError
from cluster.language.nesting import FLATTER, TOO_DEEP, check_nesting, levels_too_deep
from cluster.language.parsing import IMPLIED, FjordSqlParser
from cluster.language.statement_texts import unclosed
from cluster.language.syntax import span_of
from cluster.language.tokens import check_numbers, is_mark
from protocols.text.closeness import did_you_mean

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

EMIT, EARLY, FINAL = "EMIT", "EARLY", "FINAL"
EMIT_SHAPE = "SELECT ... FROM ... EMIT EARLY, or EMIT FINAL"

_NO_WORDS = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER)
_GOES_ON = (TokenType.R_PAREN, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_CLAUSES = ("LIFETIME", "SAMPLE", EMIT)
_BEFORE = ("LIMIT", "FETCH", "ORDER", "ORDER BY", "WHERE", "GROUP BY", "HAVING", "QUALIFY")
"""Clauses that stand before EMIT."""
_NAMES_BEHIND = ("FROM", "JOIN", ",", "SELECT")
"""Behind these, EMIT is a name, and EARLY or FINAL its alias."""


def emitted(tokens: list[Token], text: str) -> tuple[list[Token], bool | None]:
    """Return the tokens of a statement without its EMIT clause, and whether rows come early; None without a clause.

    Raises
    ------
    FjordSqlError
        If the clause stands elsewhere than at the end of a query, is there twice, or says neither EARLY nor FINAL.
    """
    early = None
    whole, end = tokens, len(tokens)
    while end and whole[end - 1].token_type == TokenType.SEMICOLON:
        end -= 1
    tokens = whole[:end]
    if (
        len(tokens) > 1
        and _is(tokens[-2], EMIT)
        and tokens[-1].token_type not in _NO_WORDS
        and tokens[-1].text.isalpha()
    ):
        word = tokens[-1]
        if word.text.upper() not in (EARLY, FINAL):
            hint = did_you_mean(word.text, (EARLY, FINAL)) or f"it is written {EMIT_SHAPE}"
            _refuse("EARLY or FINAL was expected here", text, word, word, hint)
        if _is(tokens[0], "CREATE") or _is(tokens[0], "DROP"):
            reason = "EMIT says when a query's rows are published, and this statement publishes none"
            _refuse(reason, text, tokens[-2], word, "leave it out here, and add it to the query that reads the stream")
        tokens, early = tokens[:-2], word.text.upper() == EARLY
    for place, token in enumerate(tokens[:-1]):
        if not (_is(token, EMIT) and (_is(tokens[place + 1], EARLY) or _is(tokens[place + 1], FINAL))):
            continue
        if place + 2 == len(tokens):
            _refuse("this query has two EMIT clauses", text, token, tokens[place + 1], "leave one of them out")
        following = tokens[place + 2]
        if following.token_type in _GOES_ON or any(_is(following, word) for word in _CLAUSES):
            reason = "EMIT stands at the end of the whole query: only its rows are published"
            _refuse(reason, text, token, tokens[place + 1], f"it is written {EMIT_SHAPE}")
        named = place > 0 and any(_is(tokens[place - 1], word) for word in _NAMES_BEHIND)
        if not named and any(_is(following, word) for word in _BEFORE):
            clause, kind = following.text.upper(), tokens[place + 1].text.upper()
            reason = f"EMIT stands at the end of a query, behind {clause}"
            _refuse(reason, text, token, tokens[place + 1], f"write {clause} ... EMIT {kind}")
    return (whole if early is None else tokens), early


def _is(token: Token, word: str) -> bool:
    return token.token_type not in _NO_WORDS and token.text.upper() == word


def _refuse(reason: str, text: str, first: Token, last: Token, hint: str) -> NoReturn:
    raise FjordSqlError(reason, text=text, start=first.start, end=last.end + 1, hint=hint)


EARLY_MARK = "early"
"""By this name the tree of a statement has what it says of EMIT."""
LONGEST_TEXT = 100_000
"""Most characters of a statement."""
NO_DECLARATION = "a declaration has no parameters"
_DECLARE = ("CREATE", "DROP")
_AS_IT_IS: Mapping[tuple[int, int], str] = MappingProxyType({})


class FormerParser(FjordSqlParser):
    """The parser of texts that were kept: in earlier versions, IS was stronger than comparisons ([decision 0041])."""

    IS_PREDICATE_PRECEDENCE = IsPredicatePrecedence.HIGH


def statement_tree(text: str, *, template: bool = False, registered: bool = False) -> exp.Expr:
    """Return the tree of the one statement in a text.

    Parameters
    ----------
    text
        Readable text; see :func:`cluster.language.tokens.readable`.
    template
        True for a query in which parameters may stand; they are placeholders in its tree.
    registered
        True for a text that was kept, perhaps by an earlier version, and keeps its meaning.

    Raises
    ------
    FjordSqlError
        If it is not exactly one statement, is too long or too deep, or has parameters though it is no template.
    """
    if len(text) > LONGEST_TEXT:
        reason = f"the statement is longer than {LONGEST_TEXT} characters"
        raise FjordSqlError(reason, text=text, start=LONGEST_TEXT, end=len(text))
    try:
        tree = _tree(text, FormerParser if registered else FjordSqlParser, template=template)
    except RecursionError:
        raise FjordSqlError(TOO_DEEP, text=text, start=0, end=len(text), hint=FLATTER) from None
    for deepest in levels_too_deep(tree):
        raise Context(text, Catalog()).error(deepest, TOO_DEEP, FLATTER)
    return tree


def _tree(text: str, parser: type[FjordSqlParser], *, template: bool) -> exp.Expr:
    try:
        tokens = tokens_of(text)
        while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
            tokens.pop()
    except TokenError as error:
        reason, start, hint = unclosed(text) or ("this cannot be read as SQL", 0, None)
        raise FjordSqlError(reason, text=text, start=start, end=len(text), hint=hint) from error
    check_numbers(tokens, text)
    _check_parameters(tokens, text, template=template)
    check_nesting(tokens, text)
    tokens, early = emitted(tokens, text)
    tree = parser(dialect=FjordSQL()).parse_one(tokens, text)
    tree.meta[EARLY_MARK] = early
    return tree


def _check_parameters(tokens: list[Token], text: str, *, template: bool) -> None:
    """Refuse parameters where no value is bound to them."""
    mark = next((token for token in tokens if is_mark(token)), None)
    if mark is None:
        return
    if tokens[0].text.upper() in _DECLARE:
        reason, hint = NO_DECLARATION, "write the value itself; only queries have parameters"
    elif not template:
        name = mark.text[1:]
        reason = f"the parameter :{name} has no value"
        hint = f'give it one when the query is added: --set {name}=VALUE, or {{"parameters": {{"{name}": VALUE}}}}'
    else:
        return
    raise FjordSqlError(reason, text=text, start=mark.start, end=mark.end + 1, hint=hint)


def implied(tree: exp.Expr) -> list[tuple[int, int]]:
    """Return the places of operands of a comparison or of IS that the other reading would cut."""
    spans = [span_of(part) for part in tree.find_all(exp.Paren) if part.meta.get(IMPLIED)]
    return [span for span in spans if span is not None]


def with_parentheses(text: str, tree: exp.Expr, spelled: Mapping[tuple[int, int], str] = _AS_IT_IS) -> str:
    """Return the text from which a tree was read, with the parentheses that make both readings one.

    `spelled` is what else is written differently, by place.
    """
    spans = implied(tree)
    marks = [(start, 1, "(", start) for start, _ in spans] + [(end, 0, ")", end) for _, end in spans]
    marks += [(start, 1, words, end) for (start, end), words in spelled.items()]
    parts, done = [], 0
    for place, _, mark, behind in sorted(marks):
        parts += [text[done:place], mark]
        done = behind
    return "".join([*parts, text[done:]])

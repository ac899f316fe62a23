"""Refusing syntax that would be accepted and ignored: arguments that no rule reads, and words that leave no trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.accepted_syntax import STATEMENTS, Accepted, Occurrence, ignored
from cluster.language.dialect import tokens_of
from cluster.language.errors import FjordSqlError
from cluster.language.spelling import CANONICAL_NAMES, SYNONYMS, TYPE, written_words
from cluster.language.statement_trees import emitted
from cluster.language.stream_item import StreamItem
from cluster.language.syntax import WINDOW_BOUNDS, place_of, span_of
from cluster.language.words import ALIAS_EXPECTED, FOREIGN_OPERATORS, UNQUOTED

if TYPE_CHECKING:
    from cluster.language.context import Context

TYPES = (TokenType.BIGINT, TokenType.DOUBLE, TokenType.TEXT, TokenType.BOOLEAN, TokenType.TIMESTAMP)
MEANINGLESS: Collection[tuple[str, str]] = {
    *(("SELECT", "ALL"), *((side, "OUTER") for side in ("LEFT", "RIGHT", "FULL")), ("NULLS", "LAST")),
    *((word, "DISTINCT") for word in ("UNION", "EXCEPT", "INTERSECT")),
}
"""Words that change nothing directly behind certain others."""
NEEDLESS: Collection[tuple[str, str]] = {
    *(("INNER", "JOIN"), ("INNER", "ZIP"), (",", "MAX"), (",", "FINEST"), ("NULLS", "LAST")),
}
"""Words that change nothing directly before certain others, unless these are called as functions: ``, MAX(x)``."""
CLOSING = (",", ")", ";", "", "FROM", "WHERE", "GROUP BY", "HAVING", "UNION", "EXCEPT", "INTERSECT")
"""Words and marks before which a comma cannot stand."""
OPENING = ("SELECT", "DISTINCT", "(", "[", "GROUP BY", ",")
"""Words and marks behind which a comma cannot stand."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word or mark of a text.

    Parameters
    ----------
    word
        In the form of :func:`cluster.language.spelling.written_words`.
    span
        Its place in the text.
    dangles
        For a comma, True if something is missing before or behind it.
    """

    word: str
    span: tuple[int, int]
    dangles: bool


def words_of(text: str, leaves: Mapping[int, exp.Expr], aliases: Collection[int]) -> Iterator[Word]:
    """Yield the words and marks of a text, without pairs of parentheses and other words that change nothing.

    Parameters
    ----------
    text
        A statement.
    leaves
        Names, numbers and texts by their ends: these do not count as words.
    aliases
        Ends of names that may have AS before them.
    """
    tokens, _ = emitted(tokens_of(text), text)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    words = [_canonical(token, leaves) for token in tokens]
    for place, word in enumerate(words):
        if word == "UNKNOWN" and "IS" in (words[place - 1], words[place - 2] if words[place - 1] == "NOT" else ""):
            words[place] = "NULL"
    calls: list[tuple[str, Word]] = []
    for place, token in enumerate(tokens):
        if not words[place]:
            continue
        before = words[place - 1] if place else ""
        ahead = [*words[place + 1 : place + 3], "", ""]
        following = tokens[place + 1].end if place + 1 < len(tokens) else -1
        if words[place] == "(":
            calls.append((before, Word("(", (token.start, token.end + 1), dangles=False)))
        elif words[place] == ")" and calls:
            call, opened = calls.pop()
            if before == "(" and call not in ("COMPLETENESS", "PI", "STAMP", "VALID", "NOW", *WINDOW_BOUNDS, ""):
                yield Word("()", (opened.span[0], token.end + 1), dangles=False)
        elif not (
            _changes_nothing(before, words[place], ahead)
            or (words[place] == "AS" and following in aliases)
            or _begins(words[place], leaves.get(following))
        ):
            dangles = before in OPENING or (ahead[0] in CLOSING and following not in leaves)
            call = calls[-1][0] if calls and before != "DISTINCT" else ""  # IS DISTINCT FROM is no part of a call
            for word in _meant(words[place], ahead[0], call):
                yield Word(word, (token.start, token.end + 1), dangles)
    yield from (opened for _, opened in calls)


def _canonical(token: Token, leaves: Mapping[int, exp.Expr]) -> str:
    leaf = leaves.get(token.end)
    # A name in single quotes is a text.
    if leaf is not None and (token.token_type != TokenType.STRING or not isinstance(leaf, exp.Identifier)):
        return ""
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return repr(token.text)
    word = TYPE if token.token_type in TYPES else " ".join(token.text.upper().split())
    return SYNONYMS.get(word, word)


def _changes_nothing(before: str, word: str, ahead: list[str]) -> bool:
    return (before, word) in MEANINGLESS or ((word, ahead[0]) in NEEDLESS and (ahead[0] == "JOIN" or ahead[1] != "("))


def _begins(mark: str, leaf: exp.Expr | None) -> bool:
    """Return whether a mark is the sign of a number in a level or bound."""
    return mark == "-" and isinstance(leaf, exp.Literal) and not leaf.is_string and str(leaf.this).startswith("-")


def _meant(word: str, after: str, call: str) -> tuple[str, ...]:
    """Return the words for which one stands in the arguments of a call."""
    match word, after, call:
        case "::", _, _:
            return "CAST", "AS"
        case "MOD", "(", _:
            return ("%",)
        case ",", _, "MOD":
            return ()
        case "FROM" | "FOR", _, "SUBSTRING" | "SUBSTR":
            return (",",)
        case "!", "~" | "~*", _:
            return ("NOT",)
        case _, "(", _:
            return (CANONICAL_NAMES.get(word, word),)
        case _:
            return (word,)


WORDS: dict[tuple[type[exp.Expr], str], tuple[str, str | None]] = {
    (exp.CTE, "materialized"): ("MATERIALIZED", "whatever several queries have in common runs once anyway"),
    (exp.TableAlias, "columns"): ("a list of columns behind a name", "name the columns with AS in SELECT"),
    (exp.Star, "replace"): ("* REPLACE", "name the columns you want"),
    (exp.Star, "rename"): ("* RENAME", "name the columns you want"),
    (exp.Column, "db"): ("a name before stream.column", "write column or stream.column"),
    (exp.Column, "catalog"): ("a name before stream.column", "write column or stream.column"),
    (exp.Cast, "default"): ("DEFAULT", "what cannot be converted is NULL: write COALESCE(CAST(x AS type), y)"),
    (exp.Cast, "format"): ("FORMAT", "CAST(x AS type) takes no format"),
    (exp.Subquery, "alias"): ("a name behind a query", "only in FROM a query has a name"),
    (exp.Group, "all"): ("GROUP BY ALL", "name the keys"),
}
"""Names that users know for an argument that is not accepted, and what to write instead."""

_LEAVES = (exp.Identifier, exp.Literal, exp.Var)


def refuse_ignored_syntax(tree: exp.Expr, context: Context, known: Accepted = STATEMENTS) -> None:
    """Do nothing if a rule reads all that `tree` carries, and `tree` has all that its text contains.

    To be called after `tree` has been translated: rules give more specific errors.

    Parameters
    ----------
    tree
        A whole statement.
    context
        With its text.
    known
        The syntax that rules read.

    Raises
    ------
    FjordSqlError
        If something in it would be accepted and ignored.
    """
    if occurrence := ignored(tree, known):
        raise _refused(occurrence, tree, context)
    _refuse_swallowed_words(tree, context)


def _refused(occurrence: Occurrence, tree: exp.Expr, context: Context) -> FjordSqlError:
    node, argument, value = occurrence.node, occurrence.argument, occurrence.value
    meant = argument.strip("_").upper().replace("_", " ")
    kinds = [kind for kind in type(node).__mro__ if (kind, argument) in WORDS]
    what, hint = WORDS[kinds[0], argument] if kinds else (meant, None)
    spans = [span for part in _around(tree, node) if (span := span_of(part))]
    if isinstance(value, exp.Expr) and (span := span_of(value)):
        start, end = span
        what = what if kinds else repr(context.text[start:end])
    else:
        start, end = next(_places(meant.split()[0], spans, context), (spans or [(0, len(context.text))])[0])
    return FjordSqlError(f"{what} is not part of FjordSQL here", text=context.text, start=start, end=end, hint=hint)


def _around(tree: exp.Expr, node: exp.Expr) -> list[exp.Expr]:
    """Return `node` and its ancestors, the nearest first; translation may have given nodes other parents."""
    parents: dict[int, exp.Expr] = {}
    for part, parent in _with_parents(tree):
        if parent is not None:
            parents[id(part)] = parent
    found = [node]
    while id(found[-1]) in parents:
        found.append(parents[id(found[-1])])
    return found


def _places(word: str, spans: list[tuple[int, int]], context: Context) -> Iterator[tuple[int, int]]:
    """Yield the places of `word`, nearest first."""
    for start, end in spans:
        for found in re.finditer(rf"\b{re.escape(word)}\b", context.words[start:end], re.IGNORECASE):
            yield start + found.start(), start + found.end()


def _with_parents(tree: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr | None]]:
    pending: list[tuple[exp.Expr, exp.Expr | None]] = [(tree, None)]
    while pending:
        node, parent = pending.pop()
        yield node, parent
        pending += [(child, node) for child in node.iter_expressions(reverse=True)]


def _refuse_swallowed_words(tree: exp.Expr, context: Context) -> None:
    explaining: list[tuple[exp.Expr, list[str]]] = []
    leaves: dict[int, exp.Expr] = {}
    aliases: set[int] = set()
    for node, parent in _with_parents(tree):
        if not isinstance(node, _LEAVES):
            explaining.append((node, written_words(node, parent)))
        elif "end" in node.meta:
            leaves[node.meta["end"]] = node
            if isinstance(parent, exp.Alias | StreamItem):
                aliases.add(node.meta["end"])
    explained = Counter(word for _, words in explaining for word in words)
    found = list(words_of(context.text, leaves, aliases))
    counted = Counter(each.word for each in found)
    if surplus := counted - explained:
        suspects = [each for each in found if each.word in surplus]
        swallowed = next((each for each in suspects if each.dangles), suspects[-1])
        start, end = swallowed.span
        what = "this parenthesis is never closed"
        reason = what if swallowed.word == "(" else f"{context.text[start:end]!r} was not expected here"
        hint = FOREIGN_OPERATORS.get(swallowed.word)
        if context.text[start] == "'" and context.words[:start].rstrip().upper().endswith(" AS"):
            reason, hint = ALIAS_EXPECTED, UNQUOTED
        raise FjordSqlError(reason, text=context.text, start=start, end=end, hint=hint)
    if missing := explained - counted:
        # Syntax that is written without its own words, such as REAL '5' for a CAST.
        alike = ((node, words) for node, words in explaining if words and all(word in missing for word in words))
        node, words = next((each for each in alike if not _near(each, context)), (tree, [*missing]))
        raise context.error(node, f"{words[0]} was expected here")


def _near(explained: tuple[exp.Expr, list[str]], context: Context) -> bool:
    """Return whether the first word of a node stands in its text, or just before it."""
    node, words = explained
    start, end = place_of(node)
    return words[0] in context.words[max(start - len(words[0]) - 2, 0) : end + 2].upper()

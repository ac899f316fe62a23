"""Refusing syntax that would be accepted and ignored: arguments that no rule reads, and words that leave no trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.accepted_syntax import STATEMENTS, Accepted, Occurrence, ignored
from cluster.language.errors import FjordSqlError
from cluster.language.spelling import written_words
from cluster.language.stream_item import StreamItem
from cluster.language.syntax import place_of, span_of
from cluster.language.text_words import words_of
from cluster.language.words import ALIAS_EXPECTED, FOREIGN_OPERATORS, UNQUOTED

if TYPE_CHECKING:
    from cluster.language.context import Context

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

"""Functions of regular expressions: series in, series out; and what REGEXP_REPLACE writes in the places of matches.

A result that would have more than :data:`LONGEST_TEXT` code points is NULL, and is never made.
"""

from __future__ import annotations

import string
from collections.abc import Callable

import polars as pl

from cluster.scalars.operators import choice
from cluster.scalars.patterns import PatternError, pattern_of
from cluster.scalars.scalar_function import Family, ScalarFunction
from cluster.scalars.texts import LONGEST_TEXT, longest_bytes
from protocols.wire.streams import FieldType

LONGEST_REPLACEMENT = 1_000
"""Characters."""


def replacement_of(text: str, groups: int) -> tuple[str | int, ...]:
    r"""Return the parts of a replacement: texts, and numbers of groups.

    >>> replacement_of(r"\2 of \1\\", 2)
    (2, ' of ', 1, '\\')

    Raises
    ------
    PatternError
        If it cannot be read, or refers to a group that there is not.
    """
    if len(text) > LONGEST_REPLACEMENT:
        raise PatternError(f"a replacement has at most {LONGEST_REPLACEMENT:,} characters")
    parts: list[str | int] = []
    written = ""
    letters = iter(enumerate(text))
    for place, letter in letters:
        after = text[place + 1 : place + 2]
        if letter == "$" and after and after in string.digits + "{":
            raise PatternError(
                f"a group is written \\{after} in a replacement", hint=r"\$ stands for the character itself"
            )
        if letter != "\\":
            written += letter
        elif after and after in "\\$":
            written += next(letters)[1]
        elif after and after in string.digits:
            if int(after) > groups:
                raise PatternError(f"the pattern has {_counted(groups)}", hint=r"\1 is the first, \0 the whole match")
            parts += [*([written] if written else ()), int(next(letters)[1])]
            written = ""
        else:
            raise PatternError(
                "a number was expected behind \\", hint=r"\1 is the first group, \\ the character itself"
            )
    return (*parts, *([written] if written else ()))


def _counted(groups: int) -> str:
    return {0: "no groups", 1: "one group"}.get(groups, f"{groups} groups")


OfText = Callable[[pl.Series], pl.Series]

_NO_TEXT = pl.Series([None], dtype=pl.String)


def matching(pattern: str) -> OfText:
    """Return the function that tests whether a part of a text is matched by a pattern."""
    regex = pattern_of(pattern).regex
    return lambda value: value.cast(pl.String).str.contains(regex)


def extracting(pattern: str, group: int = 0) -> OfText:
    """Return the function that gives the first match, or one of its groups; NULL where there is none."""
    regex = pattern_of(pattern).regex

    def found(value: pl.Series) -> pl.Series:
        part = value.cast(pl.String).str.extract(regex, group)
        return part if longest_bytes(part) <= LONGEST_TEXT else choice(_fits(_letters(part)), part, _NO_TEXT)

    return found


def replacing(pattern: str, replacement: str) -> OfText:
    """Return the function that replaces all matches."""
    read = pattern_of(pattern)
    parts = replacement_of(replacement, read.groups)
    written = "".join(part.replace("$", "$$") if isinstance(part, str) else f"${{{part}}}" for part in parts)

    def found(value: pl.Series) -> pl.Series:
        value = value.cast(pl.String)
        longest = longest_bytes(value)
        groups = sum(isinstance(part, int) for part in parts)
        # Matches do not overlap: together they are no longer than the text, and at most one more than it has bytes.
        if longest * (1 + groups) + (longest + 1) * len(written) <= LONGEST_TEXT:
            return value.str.replace_all(read.regex, written)
        fits = _fits(_letters_replaced(value, read.regex, parts))
        # Texts that would be too long are left out before they are computed; Polars computes also what is NULL.
        return choice(fits, choice(fits, value, pl.Series([""])).str.replace_all(read.regex, written), _NO_TEXT)

    return found


def _letters_replaced(value: pl.Series, regex: str, parts: tuple[str | int, ...]) -> pl.Series:
    """Return how long texts would be: what is between the matches, and for each match the parts of the replacement."""
    between = _letters(value.str.replace_all(regex, ""))
    matches = value.str.count_matches(regex).cast(pl.Int64)
    letters = between + matches * sum(len(part) for part in parts if isinstance(part, str))
    groups = [part for part in parts if isinstance(part, int)]
    for group in set(groups):
        kept = _letters(value.str.replace_all(regex, f"${{{group}}}"))
        letters = letters + groups.count(group) * (kept - between)
    return letters


def _letters(value: pl.Series) -> pl.Series:
    return value.str.len_chars().cast(pl.Int64)


def _fits(letters: pl.Series) -> pl.Series:
    return (letters <= LONGEST_TEXT).fill_null(False)  # noqa: FBT003 - Polars' own


TEXT_PATTERNS: tuple[ScalarFunction, ...] = (
    ScalarFunction(
        "REGEXP_LIKE", matching, (Family.TEXT,), FieldType.BOOLEAN, ("this", "pattern"), aliases=("REGEXP_MATCHES",),
        own=True, of_constants=True,
    ),
    ScalarFunction(
        "REGEXP_EXTRACT", extracting, (Family.TEXT, Family.TEXT, Family.INTEGER), FieldType.TEXT,
        ("this", "pattern", "group"), 2, aliases=("REGEXP_SUBSTR",), own=True, of_constants=True, null_if_null=False,
    ),
    ScalarFunction(
        "REGEXP_REPLACE", replacing, (Family.TEXT,), FieldType.TEXT, ("this", "pattern", "replacement"), own=True,
        of_constants=True, null_if_null=False,
    ),
)  # fmt: skip

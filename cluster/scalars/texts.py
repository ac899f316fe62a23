"""LIKE, concatenation and the functions of whole texts: series in, series out.

A text is a sequence of Unicode code points. Upper and lower case are those of Unicode, whatever the language.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce

import polars as pl

from cluster.scalars.operators import aligned, choice
from cluster.scalars.scalar_function import Family, ScalarFunction
from protocols.wire.streams import FieldType

LONGEST_TEXT = 10_000
"""Most code points of a text that operators and functions compute: texts that double their length again and again would
fill the memory. A longer one is NULL, as is a number beyond the reals."""


def matching(pattern: str, escape: str | None = None, folds: bool = False) -> Callable[[pl.Series], pl.Series]:  # noqa: FBT001, FBT002 - as the node has it
    """Return the function that tests whether a text matches a pattern, upper and lower case alike if it `folds`."""
    regex = f"{'(?i)' if folds else ''}{like_to_regex(pattern, escape)}"
    return lambda value: value.cast(pl.String).str.contains(regex)


def like_to_regex(pattern: str, escape: str | None = None) -> str:
    r"""Return the regular expression of a LIKE pattern.

    Examples
    --------
    >>> like_to_regex("a%_.")
    '(?s)^a.*.\\.$'
    """
    pieces = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            pieces.append(_quoted(next(letters, "")))
        else:
            pieces.append({"%": ".*", "_": "."}.get(letter) or _quoted(letter))
    return f"(?s)^{''.join(pieces)}$"


def _quoted(letter: str) -> str:
    return "\\" + letter if letter and letter in r"\.+*?()|[]{}^$#&-~" else letter


def upper(value: pl.Series) -> pl.Series:
    """Return a text in upper case."""
    return value.cast(pl.String).str.to_uppercase()


def lower(value: pl.Series) -> pl.Series:
    """Return a text in lower case."""
    return value.cast(pl.String).str.to_lowercase()


def length(value: pl.Series) -> pl.Series:
    """Return how many code points a text has."""
    return value.cast(pl.String).str.len_chars().cast(pl.Int64)


def substring(value: pl.Series, start: pl.Series, count: pl.Series | None = None) -> pl.Series:
    """Return so many code points of a text from a position on; the first is 1.

    As in standard SQL, positions before the first count towards the length and are empty.
    """
    # One more than the least integer: no text reaches that far, and subtracting one from it does not wrap around.
    first = start.cast(pl.Int64).clip(lower_bound=1 - 2**63) - 1
    if count is None:
        value, first = aligned(value.cast(pl.String), first)
        return value.str.slice(first.clip(lower_bound=0))
    # One is not negative and the other not positive: their sum cannot wrap around.
    letters = count.cast(pl.Int64).clip(lower_bound=0) + first.clip(upper_bound=0)
    value, first, letters = aligned(value.cast(pl.String), first, letters)
    found = value.str.slice(first.clip(lower_bound=0), letters.clip(lower_bound=0))
    # Polars treats a length of NULL as no limit.
    return choice(letters.is_not_null(), found, pl.Series([None], dtype=pl.String))


def joined(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return two texts concatenated; NULL if the result is too long."""
    return _behind_each_other(left.cast(pl.String), right.cast(pl.String))


def concatenated(*values: pl.Series) -> pl.Series:
    """Return texts concatenated, without NULLs; NULL if the result is too long."""
    return _behind_each_other(*(value.cast(pl.String).fill_null("") for value in values))


def _behind_each_other(*texts: pl.Series) -> pl.Series:
    # A code point has at least one byte, and the number of bytes is known without counting.
    if sum(longest_bytes(each) for each in texts) > LONGEST_TEXT:
        texts = aligned(*texts)
        letters = reduce(operator.add, (each.str.len_chars().cast(pl.Int64) for each in texts))
        # Texts that would be too long are left out before they are computed.
        first = choice(letters <= LONGEST_TEXT, texts[0], pl.Series([None], dtype=pl.String))
        texts = (first, *texts[1:])
    return reduce(operator.add, texts)


def bounded(values: pl.Series) -> pl.Series:
    """Return values with NULL for every text that is too long."""
    # A code point has at least one byte, and the number of bytes is known without counting.
    if values.dtype != pl.String or longest_bytes(values) <= LONGEST_TEXT:
        return values
    return values.set(values.str.len_chars() > LONGEST_TEXT, None)


def longest_bytes(texts: pl.Series) -> int:
    """Return how many bytes the longest of texts has."""
    longest = texts.str.len_bytes().max()
    return longest if isinstance(longest, int) else 0


TEXT_FUNCTIONS: tuple[ScalarFunction, ...] = (
    ScalarFunction("UPPER", upper, (Family.TEXT,), FieldType.TEXT, aliases=("UCASE",)),
    ScalarFunction("LOWER", lower, (Family.TEXT,), FieldType.TEXT, aliases=("LCASE",)),
    ScalarFunction(
        "LENGTH", length, (Family.TEXT,), FieldType.INTEGER, aliases=("LEN", "CHAR_LENGTH", "CHARACTER_LENGTH")
    ),
    ScalarFunction(
        "SUBSTRING", substring, (Family.TEXT, Family.INTEGER, Family.INTEGER), FieldType.TEXT,
        ("this", "start", "length"), 2, aliases=("SUBSTR",),
    ),
    ScalarFunction("CONCAT", concatenated, (Family.ANY,), FieldType.TEXT, ("expressions",), 1),
)  # fmt: skip

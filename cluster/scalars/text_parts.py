"""Functions that cut, replace and fill texts: series in, series out (:mod:`cluster.scalars.operators`).

Positions and lengths are in code points. A result that would have more than :data:`LONGEST_TEXT` of them is NULL, and
is never made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Literal

import polars as pl

from cluster.scalars.operators import aligned, choice
from cluster.scalars.scalar_function import Family, ScalarFunction
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType

SPLIT_AT_ONCE = 2**20
"""Bytes of texts that are split into all their parts at a time: of a byte, that may be a part of 16 bytes and more."""
_FAR = 2**31 - 1
"""No text reaches so far: a position beyond it is as good as this one."""
Side = Literal["both", "left", "right"]
_TRIMS: Mapping[Side, Callable[[str, str], str]] = {"both": str.strip, "left": str.lstrip, "right": str.rstrip}
_NO_TEXT = pl.Series([None], dtype=pl.String)


def left(value: pl.Series, count: pl.Series) -> pl.Series:
    """Return so many code points from the start of a text; less than none: all but so many at its end."""
    value, count = aligned(value.cast(pl.String), _near(count))
    return value.str.head(count)


def right(value: pl.Series, count: pl.Series) -> pl.Series:
    """Return so many code points from the end of a text; less than none: all but so many at its start."""
    value, count = aligned(value.cast(pl.String), _near(count))
    return value.str.tail(count)


def split_part(value: pl.Series, separator: pl.Series, number: pl.Series) -> pl.Series:
    """Return a part of a text between separators, counted from 1, or from the end from -1; empty if there is none.

    Nothing separates by an empty separator.
    """
    aligned_ones = aligned(value.cast(pl.String), separator.cast(pl.String), _near(number))
    before = aligned_ones[0].str.len_bytes().fill_null(0).cast(pl.Int64).cum_sum() // SPLIT_AT_ONCE
    begins = [0, *(before.diff().fill_null(0) > 0).arg_true().to_list(), before.len()]
    pieces = [[each.slice(start, end - start) for each in aligned_ones] for start, end in pairwise(begins)]
    return pl.concat([_split_part(*each) for each in pieces])


def _split_part(value: pl.Series, separator: pl.Series, number: pl.Series) -> pl.Series:
    place = number - (number > 0).cast(pl.Int64)
    parts = value.str.split(separator)
    found = parts.list.get(choice(number == 0, pl.Series([_FAR]), place), null_on_oob=True).fill_null("")
    whole = choice(number.abs() == 1, value, pl.Series([""]))
    known = value.is_not_null() & separator.is_not_null() & number.is_not_null()
    return choice(known, choice(separator == "", whole, found), _NO_TEXT)


def replaced(value: pl.Series, old: pl.Series, new: pl.Series) -> pl.Series:
    """Return a text with another one in all its places replaced, from the first on; an empty one stands nowhere."""
    one, other = (each.item() if each.len() == 1 else None for each in (old, new))
    value, old, new = aligned(value.cast(pl.String), old.cast(pl.String), new.cast(pl.String))
    letters, shorter, longer = (each.str.len_chars().cast(pl.Int64) for each in (value, old, new))
    places = value.str.count_matches(old, literal=True).cast(pl.Int64)
    fits = (old == "") | (letters + places * (longer - shorter) <= LONGEST_TEXT)
    fits = (fits & new.is_not_null()).fill_null(False)  # noqa: FBT003 - Polars' own
    # Texts that would be too long are left out before they are computed; Polars computes also what is NULL.
    value = choice(fits, value, pl.Series([""]))
    if one and other is not None:
        found = value.str.replace_all(one, other, literal=True)
    else:
        rows = zip(value.to_list(), old.to_list(), new.to_list(), strict=True)
        made = [text.replace(one, other) if text and one else text for text, one, other in rows]
        found = pl.Series(made, dtype=pl.String)
    return choice(fits, found, _NO_TEXT)


def padded(*, in_front: bool) -> Callable[..., pl.Series]:
    """Return the function that gives texts a length: cut at the end, or filled in front or behind.

    An empty filling fills nothing.
    """

    def found(value: pl.Series, length: pl.Series, filling: pl.Series | None = None) -> pl.Series:
        filling = pl.Series([" "]) if filling is None else filling.cast(pl.String)
        rows = zip(*(each.to_list() for each in aligned(value.cast(pl.String), _near(length), filling)), strict=True)
        return pl.Series([_padded(*row, in_front=in_front) for row in rows], dtype=pl.String)

    return found


def _padded(text: str | None, length: int | None, filling: str | None, *, in_front: bool) -> str | None:
    if text is None or length is None or filling is None:
        return None
    kept = text[: max(length, 0)]
    missing = length - len(kept) if filling else 0
    if len(kept) + max(missing, 0) > LONGEST_TEXT:
        return None
    if missing <= 0:
        return kept
    added = (filling * (missing // len(filling) + 1))[:missing]
    return added + kept if in_front else kept + added


def trimmed(side: Side) -> Callable[..., pl.Series]:
    """Return the function that leaves characters out at ends of texts: spaces, or all of a text."""

    def found(value: pl.Series, characters: pl.Series | None = None) -> pl.Series:
        left_out = pl.Series([" "]) if characters is None else characters.cast(pl.String)
        constant = left_out.item() if left_out.len() == 1 else None
        if constant:
            return _of_constant(value, side, constant)
        return _of_rows(_TRIMS[side], pl.String, value, left_out)

    return found


def _of_constant(value: pl.Series, side: Side, characters: str) -> pl.Series:
    texts = value.cast(pl.String).str
    if side == "both":
        return texts.strip_chars(characters)
    return texts.strip_chars_start(characters) if side == "left" else texts.strip_chars_end(characters)


def first_place(value: pl.Series, part: pl.Series) -> pl.Series:
    """Return where a part of a text first begins, counted from 1; 0 where it is none, and 1 if it is empty."""
    return _of_rows(lambda text, letters: text.find(letters) + 1, pl.Int64, value, part)


def begins_with(value: pl.Series, part: pl.Series) -> pl.Series:
    """Return whether a text begins with another one."""
    constant = part.item() if part.len() == 1 else None
    if constant is not None:
        return value.cast(pl.String).str.starts_with(constant)
    return _of_rows(str.startswith, pl.Boolean, value, part)


def ends_with(value: pl.Series, part: pl.Series) -> pl.Series:
    """Return whether a text ends with another one."""
    constant = part.item() if part.len() == 1 else None
    if constant is not None:
        return value.cast(pl.String).str.ends_with(constant)
    return _of_rows(str.endswith, pl.Boolean, value, part)


def reversed_text(value: pl.Series) -> pl.Series:
    """Return the code points of a text, the last one first."""
    return _of_rows(lambda text: text[::-1], pl.String, value)


def _of_rows(function: Callable[..., Any], dtype: type[pl.DataType], *values: pl.Series) -> pl.Series:
    """Return what a function of texts gives in each row, NULL where a text is."""
    rows = zip(*(each.to_list() for each in aligned(*(each.cast(pl.String) for each in values))), strict=True)
    return pl.Series([None if None in row else function(*row) for row in rows], dtype=dtype)


def _near(number: pl.Series) -> pl.Series:
    return number.cast(pl.Int64).clip(-_FAR, _FAR)


_TEXT, _INTEGER = Family.TEXT, Family.INTEGER
_ENDS = ("this", "characters")
_PART = ("this", "part")
_FILLED = ("this", "length", "fill")
TEXT_PARTS: tuple[ScalarFunction, ...] = (
    ScalarFunction("TRIM", trimmed("both"), (_TEXT,), FieldType.TEXT, _ENDS, 1, aliases=("BTRIM",), own=True),
    ScalarFunction("LTRIM", trimmed("left"), (_TEXT,), FieldType.TEXT, _ENDS, 1, own=True),
    ScalarFunction("RTRIM", trimmed("right"), (_TEXT,), FieldType.TEXT, _ENDS, 1, own=True),
    ScalarFunction("STRPOS", first_place, (_TEXT,), FieldType.INTEGER, _PART, aliases=("INSTR", "LOCATE"), own=True),
    ScalarFunction(
        "STARTS_WITH", begins_with, (_TEXT,), FieldType.BOOLEAN, _PART, aliases=("STARTSWITH",), own=True
    ),
    ScalarFunction("ENDS_WITH", ends_with, (_TEXT,), FieldType.BOOLEAN, _PART, aliases=("ENDSWITH",), own=True),
    ScalarFunction("REVERSE", reversed_text, (_TEXT,), FieldType.TEXT),
    ScalarFunction("LEFT", left, (_TEXT, _INTEGER), FieldType.TEXT, ("this", "expression")),
    ScalarFunction("RIGHT", right, (_TEXT, _INTEGER), FieldType.TEXT, ("this", "expression")),
    ScalarFunction(
        "SPLIT_PART", split_part, (_TEXT, _TEXT, _INTEGER), FieldType.TEXT, ("this", "delimiter", "part_index")
    ),
    ScalarFunction(
        "REPLACE", replaced, (_TEXT,), FieldType.TEXT, ("this", "expression", "replacement"), null_if_null=False
    ),
    ScalarFunction(
        "LPAD", padded(in_front=True), (_TEXT, _INTEGER, _TEXT), FieldType.TEXT, _FILLED, 2, own=True,
        null_if_null=False,
    ),
    ScalarFunction(
        "RPAD", padded(in_front=False), (_TEXT, _INTEGER, _TEXT), FieldType.TEXT, _FILLED, 2, own=True,
        null_if_null=False,
    ),
)  # fmt: skip

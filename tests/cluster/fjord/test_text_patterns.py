"""Regular expressions: known values, random ones against DuckDB, and results that are too long and never made."""

from __future__ import annotations

import random

import duckdb
import polars as pl
import pytest

from cluster.errors import PlanError
from cluster.expressions.nodes import Call, Column, Literal
from cluster.fjord.scalars import function_of
from cluster.scalars.patterns import PatternError, pattern_of
from cluster.scalars.text_patterns import extracting, matching, replacing
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType
from tests.peak_memory import growth_kib

TEXTS = [
    None, "", "a", "abc", "a-1", "I-80", "aab b1", "\u017f\u212a", "kKsS", "é ß", "xx1x", "a\nb", "b\n", "aaa",
    "1a2b3c", "--", "_a", "ab ab", "日本a", "\tb",
]  # fmt: skip
ATOMS = [
    *"abcx1-.ékß_ ]}", r"\d", r"\w", r"\s", r"\W", r"\D", r"\S", "[ab]", "[^a]", "[a-c1]", r"[\w-]", r"[^\d]", r"\.",
    "[à-ÿ]", r"[\s\S]", r"\n", "[-a]", "[.]", r"[\]]", "[^-a]", r"[\D1]", r"[^\W]",
]  # fmt: skip
COUNTS = ["", "", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}", "{1,}", "{2,}?"]


def _alternatives(dice: random.Random, depth: int) -> str:
    pieces = [[_repeated(dice, depth) for _ in range(dice.randint(0, 3))] for _ in range(dice.choice((1, 1, 2, 3)))]
    return "|".join("".join(each) for each in pieces)


def _repeated(dice: random.Random, depth: int) -> str:
    if dice.random() < 0.12:
        return dice.choice(["^", "$", r"\b"])
    if depth and dice.random() < 0.3:
        one = dice.choice(["({})", "(?:{})"]).replace("{}", _alternatives(dice, depth - 1))
    else:
        one = dice.choice(ATOMS)
    return one + dice.choice(COUNTS)


def _drawn(dice: random.Random) -> tuple[str, int]:
    """Return a random pattern, and how many groups it has."""
    while True:
        text = "(?i)" * (dice.random() < 0.2) + _alternatives(dice, 2)
        try:
            return text, pattern_of(text).groups
        except PatternError:
            continue


@pytest.mark.parametrize("seed", range(60))
def test_random_patterns_mean_what_they_mean_in_duckdb(seed: int) -> None:
    dice = random.Random(seed)
    pattern, groups = _drawn(dice)
    group = dice.randint(0, groups)
    replacement = dice.choice(["", "<>", r"\0\0", rf"[\{group}]"])
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest(?) AS s, unnest(range(?)) AS n", [TEXTS, len(TEXTS)])
        matched, parts, replaced = (
            [each for (each,) in connection.execute(f"SELECT {sql} FROM t ORDER BY n", arguments).fetchall()]
            for sql, arguments in (
                ("regexp_matches(s, $1)", [pattern]),
                (f"CASE WHEN regexp_matches(s, $1) THEN regexp_extract(s, $1, {group}) END", [pattern]),
                ("regexp_replace(s, $1, $2, 'g')", [pattern, replacement]),
            )
        )
    texts = pl.Series(TEXTS, dtype=pl.String)
    assert matching(pattern)(texts).to_list() == matched, pattern
    found = extracting(pattern, group)(texts).to_list()
    # DuckDB has no NULL for a group that took no part.
    assert ["" if one is None and other == "" else one for one, other in zip(found, parts, strict=True)] == parts, (
        pattern
    )
    assert replacing(pattern, replacement)(texts).to_list() == replaced, (pattern, replacement)
    # The same with texts so long that lengths are computed before: none is too long, none is made longer.
    beside = pl.concat([texts, pl.Series(["a" * LONGEST_TEXT])])
    assert replacing(pattern, replacement)(beside).to_list()[:-1] == replaced, (pattern, replacement)


@pytest.mark.parametrize(
    ("pattern", "group", "expected"),
    [(r"\d+", 0, "80"), (r"(\w)-(\d)", 2, "8"), ("x", 0, None), ("(x)|I", 1, None), ("(x?)I", 1, ""), ("", 0, "")],
)
def test_what_is_extracted(pattern: str, group: int, expected: str | None) -> None:
    assert extracting(pattern, group)(pl.Series(["I-80", None])).to_list() == [expected, None]


def test_letters_digits_and_spaces_are_those_of_ascii_and_case_that_of_unicode() -> None:
    texts = pl.Series(["é", "٣", "\u00a0", "É"])
    assert not any(matching(r"\w|\d|\s|\b")(texts))
    assert matching("(?i)é")(texts).to_list() == [True, False, False, True]


@pytest.mark.parametrize(
    ("text", "pattern", "replacement", "kept"),
    [
        ("a" * 100, "a", "b" * 100, True),
        ("a" * 100, "a", "b" * 101, False),
        ("ß" * 5_000, "(ß)", r"\1\1", True),
        ("ß" * 5_000, "(ß)ß$|(ß)", r"\2\2\1x", False),
        ("ß" * 5_000, "(ß)ß$|(ß)", r"\2\2\1", True),
        ("a" * 3_332, "", "bb", True),
        ("a" * 3_333, "", "bb", False),
        ("a" * 20_000, "aa", "b", True),
        ("a" * 20_000, "x", "b", False),
        ("a" * 5_000, ".", r"\0\0", True),
        ("a" * 5_001, ".", r"\0\0", False),
        ("a" * 10, "a", "$" * 1_000, True),
        ("a" * 10, "(a)", r"\$\1" * 250, True),
    ],
)
def test_what_would_be_too_long_is_null(text: str, pattern: str, replacement: str, *, kept: bool) -> None:
    found = replacing(pattern, replacement)(pl.Series([text, None, "x"])).is_not_null().to_list()
    assert found == [kept, False, True]


def test_a_long_match_is_null() -> None:
    texts = pl.Series(["a" * LONGEST_TEXT, "ß" * LONGEST_TEXT, "a" * (LONGEST_TEXT + 1)])
    assert extracting(".+")(texts).is_not_null().to_list() == [True, True, False]


@pytest.mark.parametrize("replacement", ["b" * 1_000, r"\0" * 500, r"\1\0" * 250])
def test_what_would_be_too_long_is_never_made(replacement: str) -> None:
    texts = pl.Series(["a" * 10_000] * 100)

    def replace() -> None:
        assert replacing("(a)", replacement)(texts).null_count() == len(texts)

    assert growth_kib(replace) < 100_000  # it would be 500 MiB


@pytest.mark.parametrize("kind", [pl.String, pl.Null])
def test_no_rows_and_nulls(kind: type[pl.DataType]) -> None:
    for compute, dtype in ((matching("a"), pl.Boolean), (extracting("a"), pl.String), (replacing("a", "b"), pl.String)):
        assert compute(pl.Series([], dtype=kind)).dtype == dtype
        assert compute(pl.Series([None, None], dtype=kind)).to_list() == [None, None]


def test_a_pattern_in_a_column_is_no_program() -> None:
    with pytest.raises(PlanError, match="not a constant"):
        function_of(Call("REGEXP_LIKE", (Column("a"), Column("b"))))
    assert function_of(Call("REGEXP_LIKE", (Column("a"), Literal(FieldType.TEXT, "b"))))[1] == ("REGEXP_LIKE", "b")


def test_folded_classes_have_all_forms_of_their_letters() -> None:
    r"""The long s and the Kelvin sign are forms of s and k; without (?i), \\w and [a-z] are of ASCII."""
    texts = pl.Series(["s", "S", "\u017f", "\u212a", "\u00df", "_", "-"])
    letters, forms = [True, True, False, False, False], [True, True, True, True, False]
    assert matching(r"^\w$")(texts).to_list() == [*letters, True, False]
    assert matching(r"(?i)^\w$")(texts).to_list() == [*forms, True, False]
    assert matching(r"(?i)^[\w]$")(texts).to_list() == [*forms, True, False]
    assert matching(r"(?i)^[a-z]$")(texts).to_list() == [*forms, False, False]
    assert matching("(?i)^s$")(texts).to_list() == [True, True, True, False, False, False, False]
    for other in (r"(?i)^\W$", r"(?i)^[\W]$", r"(?i)^[^\w]$"):
        assert matching(other)(texts).to_list() == [False, False, False, False, True, False, True]

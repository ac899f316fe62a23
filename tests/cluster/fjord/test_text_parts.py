"""Parts, replacements and filled texts: known values, ends, and results that are too long and never made."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.fjord.scalars import compile_scalar
from cluster.plan.scalar_texts import read_scalar
from cluster.scalars import SCALAR_FUNCTIONS, text_parts
from cluster.scalars.text_parts import TEXT_PARTS
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType
from tests.peak_memory import growth_kib

KNOWN = (
    ("LEFT('I-80', 1)", "I"),
    ("LEFT('I-80', 0)", ""),
    ("LEFT('I-80', -3)", "I"),
    ("LEFT('I-80', -9)", ""),
    ("LEFT('ß👩x', 2)", "ß👩"),
    ("RIGHT('I-80', 2)", "80"),
    ("RIGHT('I-80', -2)", "80"),
    ("RIGHT('I-80', 0)", ""),
    ("RIGHT('e\u0301', 1)", "\u0301"),
    ("SPLIT_PART('a-b-c', '-', 2)", "b"),
    ("SPLIT_PART('a-b-c', '-', -1)", "c"),
    ("SPLIT_PART('a-b-c', '-', -3)", "a"),
    ("SPLIT_PART('a-b-c', '-', 4)", ""),
    ("SPLIT_PART('a-b-c', '-', -4)", ""),
    ("SPLIT_PART('a-b-c', '-', 1 - 1)", ""),
    ("SPLIT_PART('-a', '-', 1)", ""),
    ("SPLIT_PART('a--b', '--', 2)", "b"),
    ("SPLIT_PART('aaa', 'aa', 2)", "a"),
    ("SPLIT_PART('a.b', '.', 2)", "b"),
    ("SPLIT_PART('ab', '', 1)", "ab"),
    ("SPLIT_PART('ab', '', -1)", "ab"),
    ("SPLIT_PART('ab', '', 2)", ""),
    ("SPLIT_PART('', '-', 1)", ""),
    ("REPLACE('aaa', 'aa', 'b')", "ba"),
    ("REPLACE('a.b', '.', '$0')", "a$0b"),
    ("REPLACE('abc', '', 'x')", "abc"),
    ("REPLACE('abc', 'b', '')", "ac"),
    ("REPLACE('abc', 'B', 'x')", "abc"),
    ("LPAD('7', 3, '0')", "007"),
    ("LPAD('7', 3)", "  7"),
    ("LPAD('abc', 2, 'x')", "ab"),
    ("LPAD('a', 6, 'xyz')", "xyzxya"),
    ("RPAD('a', 6, 'xyz')", "axyzxy"),
    ("RPAD('abc', 2)", "ab"),
    ("RPAD('abc', -1, 'x')", ""),
    ("RPAD('abc', 9, '')", "abc"),
    ("LPAD('ß', 3, '👩')", "👩👩ß"),
    ("TRIM('  a b ')", "a b"),
    ("TRIM('\t a ')", "\t a"),
    ("TRIM('xyaxbyx', 'yx')", "axb"),
    ("TRIM('aa', 'a')", ""),
    ("TRIM(' a ', '')", " a "),
    ("LTRIM('0070', '0')", "70"),
    ("LTRIM('  a ')", "a "),
    ("RTRIM('0070', '0')", "007"),
    ("RTRIM('á', '́')", "a"),
    ("REVERSE('aéß')", "ß́ea"),
    ("REVERSE('')", ""),
)


@pytest.mark.parametrize(("sql", "expected"), KNOWN)
def test_known_values(sql: str, expected: str) -> None:
    assert pl.select(compile_scalar(read_scalar(sql, FieldType.TEXT))).item() == expected


@pytest.mark.parametrize(("sql", "expected"), KNOWN)
def test_columns_are_computed_as_constants_are(sql: str, expected: str) -> None:
    name, _, written = sql.removesuffix(")").partition("(")
    called = [pl.Series([eval(each)]) for each in written.split(", ")]
    longer = [pl.concat([each, pl.Series([None], dtype=each.dtype), each]) for each in called]
    assert SCALAR_FUNCTIONS[name].compute(*longer).to_list() == [expected, None, expected]
    assert SCALAR_FUNCTIONS[name].compute(longer[0], *called[1:]).to_list() == [expected, None, expected]
    for place in range(len(called)):
        mixed = [longer[at] if at == place else each for at, each in enumerate(called)]
        assert SCALAR_FUNCTIONS[name].compute(*mixed).to_list() == [expected, None, expected]


@pytest.mark.parametrize(
    ("text", "part", "place", "begins", "ends"),
    [
        ("I-80", "-", 2, False, False), ("I-80", "I-", 1, True, False), ("I-80", "80", 3, False, True),
        ("aaa", "aa", 1, True, True), ("abc", "", 1, True, True), ("", "", 1, True, True), ("", "a", 0, False, False),
        ("ß👩x", "x", 3, False, True), ("abc", "B", 0, False, False), ("ab", "abc", 0, False, False),
        (None, "a", None, None, None), ("a", None, None, None, None),
    ],
)  # fmt: skip
def test_places_beginnings_and_ends(
    text: str | None, part: str | None, place: int | None, begins: bool | None, ends: bool | None
) -> None:
    for rows in (1, 3):
        texts = pl.Series([text] * rows, dtype=pl.String)
        for parts in (pl.Series([part], dtype=pl.String), pl.Series([part] * rows, dtype=pl.String)):
            assert SCALAR_FUNCTIONS["STRPOS"].compute(texts, parts).to_list() == [place] * rows
            assert SCALAR_FUNCTIONS["STARTS_WITH"].compute(texts, parts).to_list() == [begins] * rows
            assert SCALAR_FUNCTIONS["ENDS_WITH"].compute(texts, parts).to_list() == [ends] * rows


@pytest.mark.parametrize("name", [each.name for each in TEXT_PARTS])
def test_no_rows_give_no_rows(name: str) -> None:
    count = {"LEFT": 1, "RIGHT": 1, "REVERSE": 0, "STARTS_WITH": 1, "ENDS_WITH": 1, "STRPOS": 1}.get(name, 2)
    others = {"SPLIT_PART": ["-", 1], "REPLACE": ["a", "b"], "LPAD": [3, "x"], "RPAD": [3, "x"]}.get(name, [1])
    found = SCALAR_FUNCTIONS[name].compute(
        pl.Series([], dtype=pl.String), *(pl.Series([each]) for each in others[:count])
    )
    assert found.to_list() == []
    assert found.dtype == {"STRPOS": pl.Int64, "STARTS_WITH": pl.Boolean, "ENDS_WITH": pl.Boolean}.get(name, pl.String)


@pytest.mark.parametrize(
    ("name", "values", "kept"),
    [
        ("LPAD", (["a", "a"], [LONGEST_TEXT, LONGEST_TEXT + 1]), [True, False]),
        ("RPAD", (["ß", "ß"], [LONGEST_TEXT, LONGEST_TEXT + 1], ["👩", "👩"]), [True, False]),
        ("RPAD", (["a" * LONGEST_TEXT, "a" * (LONGEST_TEXT + 1)], [2**62, 2**62], ["", ""]), [True, False]),
        ("LPAD", (["a" * (LONGEST_TEXT + 1), "a" * 99_999], [LONGEST_TEXT, 5]), [True, True]),
        ("REPLACE", (["a" * 100, "a" * 100], ["a", "a"], ["b" * 100, "b" * 101]), [True, False]),
        ("REPLACE", (["a" * 100, "ß" * 101], ["a", "ß"], ["b" * 100, "👩" * 100]), [True, False]),
        ("REPLACE", (["a" * 20_000, "a" * 20_002], ["aa", "aa"], ["b", "b"]), [True, False]),
        ("REPLACE", (["a" * 20_000, "a" * 20_000], ["", "b"], ["b", "b"]), [True, False]),
    ],
)
def test_what_would_be_too_long_is_null(name: str, values: tuple[list[str | int], ...], kept: list[bool]) -> None:
    found = SCALAR_FUNCTIONS[name].compute(*map(pl.Series, values))
    assert found.is_not_null().to_list() == kept
    for place, keeps in enumerate(kept):
        constants = [pl.Series([each[place]]) for each in values]
        assert SCALAR_FUNCTIONS[name].compute(*constants).is_not_null().to_list() == [keeps]


@pytest.mark.parametrize(
    ("name", "others"),
    [("LPAD", (10**9, "x")), ("RPAD", (2**63 - 1, "xyz")), ("REPLACE", ("a", "b" * 1000)), ("REPLACE", ("a", "aa"))],
)
@pytest.mark.parametrize("constant", [True, False])
def test_what_would_be_too_long_is_never_made(name: str, others: tuple[int | str, ...], *, constant: bool) -> None:
    texts = pl.Series(["a" * 10_000] * 100)
    arguments = [pl.Series([each] * (1 if constant else len(texts))) for each in others]

    def compute() -> None:
        assert SCALAR_FUNCTIONS[name].compute(texts, *arguments).null_count() == len(texts)

    assert growth_kib(compute) < 100_000  # it would be a GiB


def test_texts_of_many_parts_are_split_a_few_at_a_time() -> None:
    """A part of a byte took 27 bytes in memory, of all texts of a batch at once: five gigabytes for 20,000 texts."""
    rows = 1_000
    value, separator = pl.Series(["a" * LONGEST_TEXT] * rows), pl.Series(["a"])
    split = SCALAR_FUNCTIONS["SPLIT_PART"].compute
    assert growth_kib(lambda: split(value, separator, pl.Series([2]))) < rows * LONGEST_TEXT * 8 // 1024


def test_where_texts_are_divided_for_splitting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    split = SCALAR_FUNCTIONS["SPLIT_PART"].compute
    value = pl.Series(["a-b", None, "", "-", "a-b-c" * 9, "-" * 99, "x"] * 5)
    for operands in (
        (value, pl.Series(["-"]), pl.Series([2])),
        (value, value.str.head(1), pl.Series(range(-17, 18))),
        (pl.Series(["a-b-c"]), pl.Series(["-"]), pl.Series([1, 2, 3])),
        (value.head(0), pl.Series(["-"]), pl.Series([2])),
    ):
        whole = split(*operands)
        for limit in (1, 7, 60):
            with monkeypatch.context() as patch:
                patch.setattr(text_parts, "SPLIT_AT_ONCE", limit)
                assert split(*operands).equals(whole)

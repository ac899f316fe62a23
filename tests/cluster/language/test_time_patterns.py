"""Patterns of timestamps: what stands in quotes, by the rules of Java and PostgreSQL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.language.time_functions import PatternError, of_date_format, of_to_char


@pytest.mark.parametrize(("pattern", "expected"), [
    ("hh 'o''clock' a", "%I o'clock %p"), ("''yy''MM''".replace("yy", "yyyy"), "'%Y'%m'"), ("''''", "'"),
    ("'''T'''HH", "'T'%H"), ("'a''''b'", "a''b"), ("HH''mm", "%H'%M"), ("'100%'", "100%%"), ("'''%'''", "'%%'"),
    ("''", "'"), ("'T''Z'", "T'Z"),
])  # fmt: skip
def test_quotes_of_date_format_are_those_of_java(pattern: str, expected: str) -> None:
    assert of_date_format(pattern) == expected


@pytest.mark.parametrize("pattern", ["'", "'a''", "'''", "HH 'o''clock", "''''a'", "'a'b'"])
def test_a_quote_that_stays_open_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        of_date_format(pattern)


@pytest.mark.parametrize(("pattern", "expected"), [
    ('HH24"h"', "%Hh"), ('"a""b"', "ab"), ('""HH24', "%H"), (r'"say \"hi\""', 'say "hi"'), (r'\"HH24\"', '"%H"'),
    (r'"a\\b"', r"a\b"), (r"HH24\MI", r"%H\%M"), ('"it\'s" DD', "it's %d"), ('"50%"', "50%%"),
])  # fmt: skip
def test_quotes_of_to_char_are_those_of_postgresql(pattern: str, expected: str) -> None:
    assert of_to_char(pattern) == expected


@pytest.mark.parametrize("pattern", ['"', '"a', r'"a\"', r'HH24 "\\\"'])
def test_a_double_quote_that_stays_open_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        of_to_char(pattern)


TEXT = st.text("abT'\"\\% -", max_size=8)


@given(st.lists(st.one_of(TEXT.map(lambda text: ("text", text)), st.just(("piece", ""))), max_size=5))
def test_any_text_can_be_written_in_quotes(parts: list[tuple[str, str]]) -> None:
    """Texts that follow each other are put together, as quotes behind quotes are one in DATE_FORMAT."""
    java, postgres, expected, before = "", "", "", ""
    for kind, text in parts:
        if kind == "piece":
            java, postgres, expected = f"{java} HH", f"{postgres} HH24", f"{expected} %H"
        elif text and before != "text":
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            java += "'{}'".format(text.replace("'", "''"))
            postgres, expected = f'{postgres}"{escaped}"', expected + text.replace("%", "%%")
        else:
            continue
        before = kind
    assert of_date_format(java) == expected
    assert of_to_char(postgres) == expected

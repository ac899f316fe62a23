"""Regular expressions: what is accepted, and how it is written for Rust's regex crate."""

from __future__ import annotations

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.scalars.patterns import LONGEST_PATTERN, MOST_GROUPS, Pattern, PatternError, pattern_of
from cluster.scalars.text_patterns import LONGEST_REPLACEMENT, replacement_of
from tests.cluster.language.example_catalog import CATALOG

READ = [
    ("", "", 0),
    ("a.b", "a.b", 0),
    (r"\d+\.\w*?", r"[0-9]+\.[0-9A-Za-z_]*?", 0),
    (r"[\d-]", r"[0-9\-]", 0),
    (r"[^\s\S]", r"[^\t\n\x0C\r [^\t\n\x0C\r ]]", 0),
    ("[-a]", r"[\-a]", 0),
    (r"[a\-z]", r"[a\-z]", 0),
    (r"[\]-a]", r"[\]-a]", 0),
    ("[a~~b#]", r"[a\~\~b\#]", 0),
    ("(a|)(?:b)?", "(a|)(?:b)?", 1),
    ("(?i)(a)", "(?i)(a)", 1),
    (r"\bx$", r"(?-u:\b)x$", 0),
    ("}]", r"\}\]", 0),
    ("(a?)?", "(a?)?", 1),
    ("a{2,}b{0,1}?", "a{2,}b{0,1}?", 0),
    (r"\t\/", r"\t/", 0),
]
REFUSED = [
    ("(a", "never closed, at character 1"), ("a)", "never opened, at character 2"), ("[a", "never closed"),
    ("[]", "or empty"), ("[^]a", "or empty"), ("[b-a]", "a range goes"), (r"[a-\d]", "a range goes"),
    (r"[\d-z]", "a range begins"), ("[a-b-c]", "a range begins"), ("[a&&b]", "class within"),
    ("[a[b]]", "class within"), ("*", "nothing to repeat"), ("a|+", "nothing to repeat"),
    ("({2})", "nothing to repeat"), ("a**", "twice"), ("a*+", "twice"), ("a{2}{2}", "twice"), ("a{", "brace"),
    ("a{,2}", "brace"), ("a{2", "brace"), ("a{2,1}", "repeats nothing"), ("a{0}", "repeats nothing"),
    ("()", "nothing in this group"), ("a(?:)", "nothing in this group"), ("[--a]", "a range begins"),
    ("^*", "a place"), (r"\b+", "a place"), ("(a*)*", "may be empty"), ("(|a)+", "may be empty"),
    ("(^){2}", "may be empty"), ("\\", "expected behind"), (r"\1", "not part"), (r"\p{L}", "not part"),
    (r"\Bx", "not part"), (r"[\b]", "not part"), ("(?=a)", "a group of this kind"),
    ("(?<n>a)", "a group of this kind"), ("a(?i)", "a group of this kind"), ("(?s)a", "a group of this kind"),
    ("a{2001}", "too large"), ("(a{1000}){1000}", "too large"), ("[^a]{300}", "too large"),
    ("a{99999999999999999999}", "too large"), ("((((a{9}){9}){9}){9})", "too large"),
    ("(?i)" + "(a{40}){40}", "too large"),
    ("(" * (MOST_GROUPS + 1) + "a" + ")" * (MOST_GROUPS + 1), "at most 50 groups"),
    ("(a)" * 51, "at most 50 groups"), ("(?:" * 300 + "a" + ")" * 300, "at most"),
    ("a" * (LONGEST_PATTERN + 1), "at most 1,000"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "regex", "groups"), READ)
def test_a_pattern_is_written_for_rust(text: str, regex: str, groups: int) -> None:
    assert pattern_of(text) == Pattern(regex, groups)


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_a_pattern_that_has_no_common_meaning_or_is_too_large_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        pattern_of(text)


def test_a_large_pattern_is_refused_at_its_place_when_the_query_is_added() -> None:
    text = "SELECT lane FROM traffic WHERE sensor ~ '(((((a{1000}){1000}){1000}){1000}){1000})'"
    with pytest.raises(FjordSqlError, match="too large") as caught:
        translate(text, CATALOG)
    assert text[caught.value.start : caught.value.end].startswith("'((((")


def test_a_replacement_has_texts_and_groups() -> None:
    assert replacement_of(r"a\0\\1\$2$", 0) == ("a", 0, r"\1$2$")
    assert replacement_of(r"\9", 9) == (9,)
    assert replacement_of("", 3) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("\\", "number was expected"), (r"\n", "number was expected"), (r"\1", "no groups"), ("$1", r"written \\1"),
     ("${", r"written \\{"), ("a" * (LONGEST_REPLACEMENT + 1), "at most 1,000")],
)  # fmt: skip
def test_a_faulty_replacement_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        replacement_of(text, 0)


def test_a_pattern_whose_case_is_folded_is_refused_at_its_place_if_that_makes_it_too_large() -> None:
    text = "SELECT speed FROM traffic WHERE sensor ~* 'a{1500}'"
    with pytest.raises(FjordSqlError, match="this pattern is too large") as caught:
        translate(text, CATALOG)
    assert caught.value.offending == "'a{1500}'"
    with pytest.raises(FjordSqlError, match="not part of FjordSQL's patterns, at character 2 of the pattern"):
        translate(r"SELECT speed FROM traffic WHERE sensor ~* '\p{L}'", CATALOG)


def test_folding_case_takes_none_of_the_characters_of_a_pattern() -> None:
    longest = "(?i)" + "a" * (LONGEST_PATTERN - 1)
    assert pattern_of(longest).regex == longest
    with pytest.raises(PatternError, match="at most 1,000"):
        pattern_of("(?i)" + "a" * (LONGEST_PATTERN + 1))

"""Which words may name a stream in FROM without AS: those that cannot mean anything else."""

from __future__ import annotations

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.item_parsing import NO_ALIASES
from cluster.language.translation import translate
from tests.cluster.language.example_catalog import CATALOG

ITEMS = ("traffic", "(SELECT lane FROM traffic)", "ISTREAM(traffic WINDOW(ROWS 1))", "weather w, traffic")


@pytest.mark.parametrize("word", sorted(NO_ALIASES))
def test_a_word_that_means_something_after_a_table_names_no_stream(word):
    for item in ITEMS:
        for end in ("", " WINDOW(ROWS 1)", " CROSS JOIN weather x"):
            for written in (word, word.lower()):
                with pytest.raises(FjordSqlError) as caught:
                    translate(f"SELECT lane FROM {item} {written}{end}", CATALOG)
                assert caught.value.start >= len(f"SELECT lane FROM {item} ")


@pytest.mark.parametrize("word", sorted(NO_ALIASES))
def test_in_quotes_such_a_word_names_a_stream(word):
    for item in ITEMS:
        assert translate(f'SELECT lane FROM {item} "{word}"', CATALOG) is not None
        assert translate(f'SELECT lane FROM {item} AS "{word}"', CATALOG) is not None


@pytest.mark.parametrize("word", ["final", "only", "pivot", "apply", "table"])
def test_after_as_such_a_word_names_a_stream(word):
    assert translate(f"SELECT lane FROM traffic AS {word}", CATALOG) is not None


@pytest.mark.parametrize(
    "word", ["event", "state", "lifetime", "source", "date", "session", "filter", "first", "range", "row", "t", "zz"]
)
def test_ordinary_words_need_no_as(word):
    for item in ITEMS:
        assert translate(f"SELECT {word}.lane FROM {item} {word}", CATALOG) is not None


def test_the_error_says_what_to_write():
    with pytest.raises(FjordSqlError) as caught:
        translate("SELECT lane FROM traffic final", CATALOG)
    assert (caught.value.reason, caught.value.offending) == ("'final' was not expected here", "final")
    assert caught.value.hint == "as the name of a stream it is written AS final"

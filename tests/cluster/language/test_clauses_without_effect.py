"""A clause for which nothing is left is refused; what was registered with one goes on, with a warning."""

from __future__ import annotations

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate, translate_derived
from cluster.operators import Source
from cluster.operators.walks import nodes_of
from tests.cluster.language.example_catalog import CATALOG


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("SELECT speed FROM traffic SAMPLE EVERY 1 S WHERE lane = 1 SAMPLE EVERY 2 S", "SAMPLE EVERY 2 S"),
        ("WITH a AS (SELECT lane FROM traffic SINCE BEGINNING) SELECT lane FROM a SINCE 1 DAY AGO", "SINCE 1 DAY AGO"),
        ("WITH a AS (SELECT lane FROM traffic LIFETIME 2 DAYS) SELECT lane FROM a LIFETIME 1 DAY", "LIFETIME 1 DAY"),
    ],
)
def test_what_was_registered_goes_on_with_a_warning(text, ignored):
    with pytest.raises(FjordSqlError) as caught:
        translate(text, CATALOG)
    assert caught.value.offending == ignored
    kept = translate(text, CATALOG, registered=True)
    assert kept.node == translate(text.replace(f" {ignored}", ""), CATALOG).node
    (warning,) = kept.warnings
    assert warning.startswith(f"{ignored} is ignored: every stream ")
    derived = translate_derived(f"CREATE STREAM old AS {text}", CATALOG, registered=True)
    assert derived.node == kept.node


def periods(text):
    found = (each for each in nodes_of(translate(text, CATALOG).node) if isinstance(each, Source))
    return {each.stream: (each.sample_period_us, each.lifetime_us) for each in found}


def test_the_end_of_a_query_is_about_the_streams_that_say_nothing():
    text = "SELECT t.speed FROM traffic t {}, weather w {} WHERE t.sensor = w.sensor SAMPLE EVERY 2 S"
    assert periods(text.format("SAMPLE EVERY 1 S", "")) == {"traffic": (1_000_000, 0), "weather": (2_000_000, 0)}
    assert periods(text.format("", "")) == {"traffic": (2_000_000, 0), "weather": (2_000_000, 0)}
    text = "SELECT lane FROM traffic WHERE sensor IN (SELECT sensor FROM weather LIFETIME 5 US) LIFETIME 9 US"
    assert periods(text) == {"traffic": (None, 9), "weather": (None, 5)}


def test_a_lifetime_at_the_end_of_a_subquery_is_about_what_the_subquery_reads():
    inner = "EXISTS (SELECT * FROM weather AS w WHERE w.sensor = t.sensor LIFETIME 5 US)"
    assert periods(f"SELECT lane FROM traffic AS t WHERE {inner}")["weather"] == (None, 5)
    counted = "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 S) HAVING COUNT(*) > ALL ({})"
    assert periods(counted.format("SELECT id FROM Person LIFETIME 5 US")) == {"traffic": (None, 0), "Person": (None, 5)}

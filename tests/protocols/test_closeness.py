"""Which words are close to a mistyped one, and that none is better than an absurd one."""

from __future__ import annotations

import pytest

from cluster.language.errors import suggest
from protocols.text.closeness import closest, did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("FORM", ["FROM", "FOR", "WHERE"], ("FROM",)),
        ("Speeed", ["speed", "lane"], ("speed",)),
        ("recieve_rate", ["receive_rate", "receive_time"], ("receive_rate",)),
        ("GROPU", ["GROUP BY"], ("GROUP BY",)),
        ("speed3", ["speed1", "speed2", "lane"], ("speed1", "speed2")),
        ("temp", ["sensor", "temperature"], ("temperature",)),
        ("te", ["sensor", "temperature"], ()),
        ("temp", ["temperature", "temporary"], ()),
        ("SA", ["AS", "AND"], ("AS",)),
        ("AL", ["ALL"], ("ALL",)),
        ("IT", ["IN", "IS"], ()),
        ("a", ["as", "b"], ()),
        ("LEST", ["LEFT", "LEAST"], ("LEAST",)),
        ("WITH", ["WITHIN", "WITH"], ()),
        ("speed", ["speed"], ()),
        ("altitude", ["latitude"], ("latitude",)),
        ("altitude", ["speed", "lane"], ()),
        ("CHANGES", ["HAVING"], ()),
        ("lane", ["RANGE", "plan"], ()),
        ("weather", ["WHERE"], ()),
        ("", ["a"], ()),
        ("x" * 100_000, ["x" * 99_999], ()),
    ],
)
def test_the_closest_words_are_found_or_none(word, known, found):
    assert closest(word, known) == found


def test_two_words_that_are_equally_close_are_both_named_and_more_are_not():
    assert did_you_mean("speed0", ["speed1", "speed2"]) == "did you mean speed1 or speed2?"
    assert did_you_mean("speed0", ["speed1", "speed2", "speed3"]) is None
    assert suggest("speed0", ["speed1", "speed2", "speed3"], what="columns are") == (
        "columns are: speed1, speed2, speed3"
    )

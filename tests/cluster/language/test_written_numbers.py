"""A number that begins with its point is one wherever numbers are."""

from __future__ import annotations

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from tests.cluster.language.example_catalog import CATALOG


@pytest.mark.parametrize(
    "text",
    [
        "SELECT {} AS x FROM traffic",
        "SELECT DISTINCT {} AS x FROM traffic",
        "SELECT ALL {} AS x FROM traffic",
        "SELECT CASE {} WHEN {} THEN {} ELSE {} END AS x FROM traffic",
        "SELECT speed FROM traffic WHERE speed IN ({}, -{})",
        "SELECT speed FROM traffic WHERE speed>={} AND speed<>{} AND speed NOT BETWEEN {} AND {}",
        "SELECT ABS({}) + speed-{} AS x FROM traffic",
        "SELECT APPROX_QUANTILE(speed, {}) AS x FROM traffic WINDOW(RANGE {} HOURS)",
        "SELECT speed WITHIN {} AS x FROM traffic SAMPLE EVERY {} SECONDS",
        "SELECT sensor FROM traffic EVENTS(speed ABOVE {} BELOW -{})",
    ],
)
def test_a_point_begins_a_number(text):
    right = translate(text.replace("{}", "0.25"), CATALOG).node
    assert translate(text.replace("{}", ".25"), CATALOG).node == right
    assert translate(text.replace("{}", ".25e0"), CATALOG) is not None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT »t«.25 AS x FROM traffic", "no stream 't'"),
        ("SELECT lane »..« 25 AS x FROM traffic", None),
        ("SELECT lane FROM traffic WHERE speed = ». «25", None),
        ("SELECT lane FROM traffic WHERE speed = ».5.5«", "'.5.5' is no number"),
        ("SELECT lane ».25« FROM traffic", "'.25' was not expected"),
    ],
)
def test_points_that_begin_no_number_are_refused_with_their_place(text, reason):
    before, offending, after = text.replace("«", "»").split("»")
    with pytest.raises(FjordSqlError) as caught:
        translate(f"{before}{offending}{after}", CATALOG)
    if reason is not None:
        assert reason in caught.value.reason
        assert (caught.value.start, caught.value.offending) == (len(before), offending)

"""KEEP n TUPLES: which queries show the quality of their rows, and what is stored of them."""

from __future__ import annotations

import pytest

from cluster.language.parameters import bind
from cluster.language.translation import translate, translate_derived
from cluster.operators import KeptExtent
from cluster.operators.walks import nodes_of
from cluster.plan import stored_plans
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from tests.cluster.language.example_catalog import CATALOG

K = "traffic WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(speed BY sensor) KEEP 100 TUPLES"
LIMIT = "SELECT MAX(w.temperature) FROM weather WINDOW(RANGE 1 HOUR) AS w"
HIDDEN = "the rows of this query do not show what KEEP has dropped"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (f"SELECT s.sensor FROM {K} AS s", ["sensor", "quality"]),
        (f"(SELECT sensor FROM {K})", ["sensor", "quality"]),
        (f"SELECT * FROM {K}", ["sensor", "speed", "quality"]),
        (f"SELECT sensor, quality > 0.5 AS good FROM {K}", ["sensor", "good"]),
        (f"SELECT sensor AS quality FROM {K}", ["quality", "quality_2"]),
        (f"SELECT sensor, COUNT(*) AS n FROM {K} GROUP BY sensor", ["sensor", "n", "quality"]),
        (f"SELECT a.sensor FROM {K} AS a, {K} AS b WHERE a.sensor = b.sensor", ["sensor", "quality"]),
        (f"SELECT sensor FROM {K} ORDER BY speed LIMIT 3", ["sensor", "quality"]),
        (f"SELECT 1 AS one FROM {K} ORDER BY COUNT(*) LIMIT 1", ["one", "quality"]),
        (f"SELECT x FROM (SELECT sensor AS x, quality FROM {K}) AS u", ["x"]),
        (f"SELECT ({LIMIT} WHERE w.temperature = s.quality) AS t FROM {K} AS s", ["t", "quality"]),
        (f"SELECT ({LIMIT}) * s.quality AS t FROM {K} AS s", ["t"]),
        ("SELECT sensor FROM traffic WINDOW(RANGE 1 HOUR) COALESCE(speed BY sensor)", ["sensor"]),
    ],
)
def test_rows_of_a_query_have_their_quality_unless_its_author_uses_it(text: str, columns: list[str]) -> None:
    found = translate(text, CATALOG)
    assert [column.name for column in found.node.schema] == columns
    assert not any(each.startswith(HIDDEN) for each in found.warnings)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT DISTINCT sensor FROM {K}",
        f"SELECT x FROM (SELECT sensor AS x FROM {K}) AS u",
        f"SELECT sensor FROM {K} UNION SELECT sensor FROM weather",
        f"SELECT lane FROM traffic AS t WHERE EXISTS (SELECT 1 FROM {K} AS w WHERE w.sensor = t.sensor)",
    ],
)
def test_a_warning_of_rows_that_hide_what_was_dropped(text: str) -> None:
    assert any(each.startswith(HIDDEN) for each in translate(text, CATALOG).warnings)


def test_a_derived_stream_has_the_columns_that_are_written() -> None:
    stream = translate_derived(f"CREATE STREAM held AS SELECT sensor FROM {K}", CATALOG)
    assert [column.name for column in stream.node.schema] == ["sensor"]
    assert stream.warnings[0].startswith(HIDDEN)


def test_what_is_kept_may_be_a_parameter_and_is_stored() -> None:
    text = "SELECT speed FROM traffic WINDOW(ROWS 50 SLIDE 5) COALESCE(speed BY sensor) KEEP :most TUPLES"
    node = translate(bind(text, {"most": 30}).text, CATALOG).node
    (extent,) = (each for each in nodes_of(node) if isinstance(each, KeptExtent))
    assert (extent.kept.most, extent.kept.rows, extent.kept.slide_rows, extent.kept.keys) == (30, 50, 5, ("sensor",))
    assert stored_plans.read(stored_plans.written(node)) == node
    assert [*extent.needed_below(frozenset({"quality"}), ())] == [(extent.input, extent.input.names, ())]


def test_a_clause_at_the_end_is_for_each_extent_without_one() -> None:
    item = "traffic WINDOW(RANGE 1 HOUR) COALESCE(speed BY sensor)"
    text = f"SELECT a.sensor FROM {item} AS a, {item} KEEP 7 TUPLES AS b WHERE a.sensor = b.sensor KEEP 9 TUPLES"
    kept = [each.kept.most for each in nodes_of(translate(text, CATALOG).node) if isinstance(each, KeptExtent)]
    assert sorted(kept) == [7, 9]


def test_sensors_send_all_that_may_be_kept() -> None:
    """A condition on rows makes no room, so it removes no sample before; one in a subquery does."""
    text = "SELECT quality FROM traffic WINDOW(RANGE 1 HOUR) COALESCE(speed BY lane) KEEP 9 TUPLES"
    (demand,) = demands_of("q", rewrite(translate(text, CATALOG).node).node)["traffic"]
    assert demand.fields == ("lane", "speed")
    above = f"SELECT speed FROM {K} WHERE sensor = 'a'"
    below = above.replace("traffic", "(SELECT sensor, speed FROM traffic WHERE lane > 1) AS t").replace(" AS t", "", 1)
    for text, bands in ((above, 0), (below, 1)):
        (demand,) = demands_of("q", rewrite(translate(text, CATALOG).node).node)["traffic"]
        assert len(demand.bands) == bands


def test_room_for_all_of_a_window_by_count_is_a_warning() -> None:
    text = "SELECT speed FROM traffic WINDOW(ROWS 50) COALESCE(speed) KEEP {} TUPLES"
    assert any("never drops" in each for each in translate(text.format(50), CATALOG).warnings)
    assert translate(text.format(49), CATALOG).warnings == ()  # nothing of equal stamps is arbitrary here

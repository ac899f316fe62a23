"""Words of windows are names elsewhere, plans of earlier versions are read, and what a window reads of parameters."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from cluster.language.catalog import Catalog
from cluster.language.errors import FjordSqlError
from cluster.language.parameters import bind
from cluster.language.translation import translate
from cluster.operators import SessionWindow, TimeWindow
from cluster.operators.walks import nodes_of
from cluster.operators.window_shapes import DAY_US, Grid, Session, Span
from cluster.plan import stored_plans
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.language.example_catalog import CATALOG

WORDS = (
    "session",
    "gap",
    "early",
    "reset",
    "offset",
    "time",
    "zone",
    "month",
    "quarter",
    "year",
    "years",
    "max",
    "window_start",
    "window_end",
)
STREAM = StreamSchema("session", tuple(Field(name, FieldType.INTEGER) for name in WORDS))


@pytest.mark.parametrize("word", WORDS)
def test_words_of_windows_are_names_elsewhere(word: str) -> None:
    catalog = Catalog.of([STREAM])
    text = f"SELECT {word}, {word} + 1 AS x FROM session WINDOW(RANGE 5 MINUTES) WHERE {word} > 1"
    assert translate(text, catalog).node is not None
    keyed = f"SELECT {word} FROM session AS s WINDOW(SESSION GAP 5 MINUTES EARLY PARTITION BY {word})"
    (window,) = (each for each in nodes_of(translate(keyed, catalog).node) if isinstance(each, SessionWindow))
    assert window.keys == (word,)


def test_a_plan_of_an_earlier_version_has_no_grid_and_is_written_as_it_was() -> None:
    node = translate("SELECT lane FROM traffic WINDOW(RANGE 1 HOUR SLIDE 5 MINUTES)", CATALOG).node
    written = stored_plans.written(node)
    assert "grid" not in str(written)
    (window,) = (each for each in nodes_of(stored_plans.read(written)) if isinstance(each, TimeWindow))
    assert window.grid is UNSET


def test_parameters_stand_for_quantities_and_zones() -> None:
    text = "SELECT lane FROM traffic WINDOW(RANGE :d DAYS SLIDE 1 DAY AT TIME ZONE :zone OFFSET :o)"
    found = bind(text, {"d": 2, "zone": "Europe/Berlin", "o": "6 HOURS"}).text
    (window,) = (each for each in nodes_of(translate(found, CATALOG).node) if isinstance(each, TimeWindow))
    assert window.grid == Grid(Span("day", 1), DAY_US // 4, "Europe/Berlin", Span("day", 2))
    with pytest.raises(FjordSqlError, match="there is no time zone 'Bonn'"):
        translate(bind(text, {"d": 2, "zone": "Bonn", "o": "6 HOURS"}).text, CATALOG)


def test_a_session_is_a_day_long_if_nothing_is_written() -> None:
    node = translate("SELECT lane FROM traffic WINDOW(SESSION GAP 5 MINUTES)", CATALOG).node
    (window,) = (each for each in nodes_of(node) if isinstance(each, SessionWindow))
    assert window.session == Session(300_000_000, DAY_US)


def test_weeks_without_a_time_zone_get_a_warning() -> None:
    assert translate("SELECT MAX(lane) AS m FROM traffic WINDOW(RANGE 1 WEEK SLIDE 1 WEEK)", CATALOG).warnings
    monday = "SELECT MAX(lane) AS m FROM traffic WINDOW(RANGE 1 WEEK SLIDE 1 WEEK AT TIME ZONE 'UTC')"
    assert not translate(monday, CATALOG).warnings


@pytest.mark.parametrize(("window", "where", "fields", "bands"), [
    ("RANGE 1 DAY SLIDE 1 DAY AT TIME ZONE 'Europe/Berlin'", "speed > 5", ("lane", "speed"), 1),
    ("RESET EVERY 1 DAY", "speed > 5", ("lane", "speed"), 1),
    ("SESSION GAP 5 MINUTES PARTITION BY sensor", "speed > 5", ("lane", "sensor", "speed"), 0),
    ("SESSION GAP 5 MINUTES PARTITION BY lane", "lane > 5", ("lane",), 1),
])  # fmt: skip
def test_sensors_are_asked_for_samples_and_sessions_for_all_of_them(
    window: str, where: str, fields: tuple[str, ...], bands: int
) -> None:

    text = f"SELECT lane, COUNT(*) AS n FROM traffic WINDOW({window}) WHERE {where} GROUP BY lane"
    ((_, (demand,)),) = demands_of("q", rewrite(translate(text, CATALOG).node).node).items()
    assert demand.panes is None
    assert demand.fields == fields
    assert len(demand.bands) == bands

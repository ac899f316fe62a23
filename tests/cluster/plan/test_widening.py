"""A demand that has to be shorter asks for more, never for less."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.plan.demand import demands_of
from cluster.plan.push_down import widened_bands, widened_conditions, with_fewer_bands
from cluster.plan.rewrite import rewrite
from protocols.wire.demands import LONGEST_TEXT, MOST_BANDS, PropertyBand, QueryDemand, StreamDemand, decode_demand
from protocols.wire.frames import VERSION, encode
from protocols.wire.programs import Band
from protocols.wire.streams import Field, FieldName, FieldType, StreamSchema

TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("lane", FieldType.INTEGER),
        Field("speed", FieldType.REAL, "mph"),
    ),
)
LAST = "\U0010ffff"


def demand(condition: str, select: str = "SELECT sensor, speed FROM traffic WHERE {}") -> QueryDemand:
    node = rewrite(translate(select.format(condition), Catalog.of([TRAFFIC])).node).node
    (found,) = demands_of("q", node)["traffic"]
    return found


def listed(values: list[object]) -> str:
    return ", ".join(map(repr, values))


@pytest.mark.parametrize("condition", [
    f"speed IN ({listed(list(range(300)))})",
    f"lane IN ({listed(list(range(0, 3000, 7)))})",
    f"segment IN ({listed(list(range(300)))})",
    f"sensor IN ({listed([f'loop-{number}' for number in range(3000)])})",
    f"sensor = '{'x' * 2000}'",
    f"sensor > '{'x' * 2000}' AND sensor < '{'y' * 2000}'",
    f"sensor LIKE '{'x' * 990}%' AND sensor <> '{'x' * 1500}'",
    f"sensor = '{LAST * 1030}'",
    f"sensor <= '{'x' * 1023}\ud7ff{'x' * 9}'",
    f"speed IN ({listed(list(range(300)))}) AND lane IN ({listed(list(range(300)))})",
])  # fmt: skip
def test_any_number_of_values_and_any_text_make_a_demand_that_proxies_read(condition: str) -> None:
    found = demand(condition)
    message = StreamDemand(VERSION, "cluster", "traffic", 1, (found,))
    assert decode_demand(encode(message)) == message


def test_as_many_as_a_demand_carries_are_listed_one_by_one() -> None:
    found = demand(f"speed IN ({listed(list(range(0, 2 * MOST_BANDS, 2)))})")
    assert [(each.low, each.high) for each in found.bands] == [
        (float(n), float(n)) for n in range(0, 2 * MOST_BANDS, 2)
    ]


def test_the_closest_values_are_united_first() -> None:
    near, far = [n / 10 for n in range(300)], [1000.0 * n for n in range(1, 200)]
    found = demand(f"speed IN ({listed([*near, *far])})").bands
    assert len(found) == MOST_BANDS
    assert {each.low for each in found} >= set(far)


def test_sensors_whose_names_are_close_are_taken_together() -> None:
    names = [*(f"a{number:03}" for number in range(300)), "m", "z"]
    found = demand(f"sensor IN ({listed(names)})").sensors
    assert len(found) == MOST_BANDS
    assert {(each.low, each.high) for each in found} >= {("m", "m"), ("z", "z")}
    assert not any(each.holds("b") or each.holds("n") for each in found)


def test_aggregates_of_samples_in_more_bands_than_a_demand_carries_are_made_of_samples() -> None:
    averages = "SELECT AVG(speed) AS v FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) WHERE {}"
    assert demand(f"speed IN ({listed(list(range(250)))})", averages).panes is not None
    found = demand(f"speed IN ({listed(list(range(300)))})", averages)
    assert found.panes is None
    assert found.fields == ("speed",)
    # Overlapping intervals are one: nothing is lost by that.
    overlapping = " OR ".join(f"speed BETWEEN {number} AND {number + 2}" for number in range(300))
    found = demand(overlapping, averages)
    assert found.bands == (Band(FieldName("speed"), 0.0, 301.0),)
    assert found.panes is not None


def test_aggregates_keep_their_bands_whatever_room_there_is() -> None:
    averages = "SELECT AVG(speed) AS v FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) WHERE {}"
    some = f"speed IN ({listed(list(range(20)))}) AND segment IN ({listed(list(range(20)))})"
    found = with_fewer_bands(demand(some, averages), 4)
    assert (len(found.bands), len(found.sensors)) == (20, 4)
    assert len(with_fewer_bands(demand(some), 4).bands) == 4


reals = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-20, 20).map(float)
texts = st.text(st.sampled_from(f"ab{LAST}\ue000\ud7ff"), max_size=4) | st.text(max_size=3)


def conditions(values: st.SearchStrategy[float] | st.SearchStrategy[str]) -> st.SearchStrategy[list[PropertyBand]]:
    def band(one: float | str, other: float | str, opened: tuple[bool, bool], ended: tuple[bool, bool]) -> PropertyBand:
        low, high = sorted((one, other), key=lambda each: each)  # type: ignore[arg-type]  # of one type
        return PropertyBand(
            FieldName("x"), low if ended[0] else None, high if ended[1] else None,
            opened[0] and ended[0], opened[1] and ended[1],
        )  # fmt: skip

    pairs = st.tuples(st.booleans(), st.booleans())
    return st.lists(st.builds(band, values, values, pairs, pairs), min_size=1, max_size=12)


@given(st.one_of(st.tuples(conditions(reals), st.lists(reals)), st.tuples(conditions(texts), st.lists(texts))),
       st.integers(1, 12))  # fmt: skip
def test_widened_conditions_hold_for_every_sensor_of_the_given_ones(
    given_and_seen: tuple[list[PropertyBand], list[float] | list[str]], most: int
) -> None:
    bands, seen = given_and_seen
    found = widened_conditions(bands, most)
    assert len(found) <= max(most, 0)
    bounds = [bound for band in bands for bound in (band.low, band.high) if bound is not None]
    for value in (*seen, *bounds):
        if any(band.holds(value) for band in bands):
            assert any(band.holds(value) for band in found)


@given(st.lists(st.tuples(reals, reals), min_size=1, max_size=12), st.lists(reals), st.integers(1, 12))
def test_widened_bands_hold_every_sample_of_the_given_ones(
    some: list[tuple[float, float]], seen: list[float], most: int
) -> None:
    bands = [Band(FieldName("x"), min(ends), max(ends)) for ends in some]
    found = widened_bands(bands, most)
    assert len(found) <= most
    for value in (*seen, *(end for ends in some for end in ends)):
        assert not _within(bands, value) or _within(found, value)


def _within(bands: list[Band] | tuple[Band, ...], value: float) -> bool:
    return any(each.low is not None and each.high is not None and each.low <= value <= each.high for each in bands)


@given(st.text(max_size=6), st.text(max_size=6))
def test_a_text_that_is_cut_leaves_no_sensor_out(start: str, end: str) -> None:
    long = "x" * (LONGEST_TEXT - 3) + start + "y" * 9
    for band in (PropertyBand(FieldName("x"), long, long), PropertyBand(FieldName("x"), high=long),
                 PropertyBand(FieldName("x"), long, low_open=True)):  # fmt: skip
        (found,) = widened_conditions([band])
        for value in (long, long + end, long[:-1], long[: LONGEST_TEXT - 3] + end):
            assert not band.holds(value) or found.holds(value)
        assert all(bound is None or len(str(bound)) <= LONGEST_TEXT for bound in (found.low, found.high))


def _closed(*bounds: tuple[Any, Any]) -> list[PropertyBand]:
    return [PropertyBand("f", low, high) for low, high in bounds]


@pytest.mark.parametrize(("given", "most", "expected"), [
    # A long band does not make the gap behind it a small one.
    (_closed((0, 100), (103, 104), (106, 107)), 2, [(0, 100), (103, 107)]),
    (_closed((0, 1), (3, 90), (95, 96)), 2, [(0, 90), (95, 96)]),
    (_closed((0, 1), (3, 4), (5, 6)), 1, [(0, 6)]),
    (_closed((0, 1), (9, 10), (2, 3), (20, 21)), 3, [(0, 3), (9, 10), (20, 21)]),
    (_closed((None, 0), (5, 6), (7, None)), 2, [(None, 0), (5, None)]),
    (_closed(("a", "c"), ("d", "m"), ("p", "q")), 2, [("a", "m"), ("p", "q")]),
    (_closed(("xa", "xm"), ("xp", "xq"), ("xr", "xz")), 2, [("xa", "xm"), ("xp", "xz")]),
])  # fmt: skip
def test_too_many_conditions_unite_the_closest_intervals(
    given: list[PropertyBand], most: int, expected: list[tuple[Any, Any]]
) -> None:
    assert [(each.low, each.high) for each in widened_conditions(given, most)] == expected


@pytest.mark.parametrize(("given", "expected"), [
    # A text is cut, and what begins with the rest of it is within.
    (PropertyBand("f", high="x" * 2 * LONGEST_TEXT), ("x" * (LONGEST_TEXT - 1) + "y", True)),
    (PropertyBand("f", high="x" + LAST * LONGEST_TEXT), ("y", True)),
    (PropertyBand("f", high="\ud7ff" + LAST * LONGEST_TEXT), ("\ue000", True)),
    # No text comes after all that begin so: then there is no end, which is neither open nor closed.
    (PropertyBand("f", high=LAST * 2 * LONGEST_TEXT), (None, False)),
    (PropertyBand("f", high=LAST * 2 * LONGEST_TEXT, high_open=True), (None, False)),
])  # fmt: skip
def test_where_a_band_ends_whose_text_is_cut(given: PropertyBand, expected: tuple[str | None, bool]) -> None:
    (found,) = widened_conditions([given])
    assert (found.high, found.high_open) == expected

"""What extents go through, and what it costs, by how many keys their samples have."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from cluster.costs.estimates import (
    FEWEST_KEYS,
    LINKED_ASSUMED,
    SeenKeys,
    compared_lazily,
    estimates_of,
    gone_through,
    keys_of,
    moves,
    place_of_keys,
)
from cluster.costs.prices import Price, Prices
from cluster.language.catalog import BaseStream, Catalog
from cluster.language.translation import translate
from cluster.operators import Extent, Node
from cluster.plan.alternatives import alternatives
from cluster.plan.epoch import PlannedQuery
from cluster.plan.extents import extent_of, with_keeping
from cluster.plan.rewrite import rewrite
from cluster.service.queries.plan_options import Figures, options_of
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([BaseStream(StreamSchema("s", tuple(Field(name, FieldType.INTEGER) for name in "kxy")))])
SECOND_US = 1_000_000


def plan_of(text: str) -> Node:
    return rewrite(translate(text, CATALOG).node).node


def coalesced(window: str, how: str = "x BY k", stream: str = "s") -> Node:
    return plan_of(f"SELECT VALID(r) AS held FROM {stream} WINDOW({window}) COALESCE({how}) AS r")


def extent(window: str, how: str = "x BY k", stream: str = "s") -> Extent:
    found = extent_of(coalesced(window, how, stream))
    assert found is not None
    return found


def samples_of(node: Extent, rate: float) -> tuple:
    estimates = estimates_of(node, {"s": rate})
    flow, kept = estimates[node.input].flow, estimates[node].kept
    assert flow is not None
    assert kept is not None
    return flow, kept


@pytest.mark.parametrize(("slide", "keys", "skew"), [(1, 7, 0.0), (1, 40, 0.0), (1, 40, 1.0), (4, 7, 0.0), (4, 3, 1.0)])
def test_what_is_compared_and_gone_through_is_that_of_random_streams(slide: int, keys: int, skew: float) -> None:
    """Counted instant by instant; keys are as many as two samples have by chance."""
    dice, rate, size, seconds = random.Random(keys), 20, 10, 400
    weights = [(place + 1) ** -skew for place in range(keys)]
    same = sum((each / sum(weights)) ** 2 for each in weights)
    stamps = sorted(dice.sample(range(1_000 * seconds), rate * seconds))
    drawn = [(stamp, dice.choices(range(keys), weights)[0]) for stamp in stamps]
    step = 1_000 * slide if slide > 1 else 1
    moved: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for stamp, key in drawn:
        enters, leaves = (-(-instant // step) * step for instant in (stamp, stamp + 1_000 * size))
        moved[enters].append((key, 1))
        moved[leaves].append((key, -1))
    there, pairs, gone, total, changed = [0] * keys, 0, 0, 0, set[int]()
    last = 1_000 * size
    for instant in sorted(moved):
        if instant >= 1_000 * seconds:
            break
        if instant // 1_000 > last // 1_000:
            gone += sum(there[key] for key in changed)
            total, changed, last = total + 1, set(), instant
        for key, by in moved[instant]:
            there[key] += by
        if instant >= 1_000 * size:
            changed |= {key for key, _ in moved[instant]}
            pairs += sum(there[key] for key in {key for key, _ in moved[instant]})
    text = f"RANGE {size} SECONDS" + (f" SLIDE {slide} SECONDS" if slide > 1 else "")
    flow, kept = samples_of(extent(text), rate)
    assert compared_lazily(flow, 1 / same, kept) == pytest.approx(pairs / (seconds - size), rel=0.15)
    if not skew:  # rare keys change less often than all on average
        expected = gone / total * min(1, 1 / slide)
        assert gone_through(flow, 1 / same, kept) == pytest.approx(expected, rel=0.15)


def test_a_window_moves_once_in_a_batch_or_more_rarely() -> None:
    for text, expected in (("RANGE 10 SECONDS", 1.0), ("RANGE 10 SECONDS SLIDE 5 SECONDS", 0.2)):
        flow, _ = samples_of(extent(text), 100)
        assert moves(flow) == pytest.approx(expected)


def test_keys_are_columns_of_the_stream_whatever_they_are_called_behind_a_projection() -> None:
    window = "RANGE 10 SECONDS"
    assert place_of_keys(extent(window)) == ("s", ("k",))
    assert place_of_keys(extent(window, "x BY y, k")) == ("s", ("k", "y"))
    assert place_of_keys(extent(window, "x BY z", "(SELECT k AS z, x FROM s WHERE y > 0)")) == ("s", ("k",))
    assert place_of_keys(extent(window, "x BY z", "(SELECT k + 1 AS z, x FROM s)")) is None


def test_keys_are_as_measured_else_few() -> None:
    measured = {("s", ("k",)): SeenKeys(7.0, 0.9), ("s", ()): SeenKeys(1.0, 0.2)}
    assert keys_of(extent("RANGE 10 SECONDS"), measured) == SeenKeys(7, 0.9)
    assert keys_of(extent("RANGE 10 SECONDS", "x BY y"), measured) == SeenKeys(FEWEST_KEYS, LINKED_ASSUMED)
    assert keys_of(extent("RANGE 10 SECONDS", "x"), measured) == SeenKeys(1, 0.2)
    assert keys_of(extent("RANGE 10 SECONDS", "x"), {}) == SeenKeys(1, LINKED_ASSUMED)


def test_more_keys_make_lazy_extents_cheaper() -> None:
    node = with_keeping(coalesced("RANGE 10 SECONDS"), "lazy")
    found = extent_of(node)
    assert found is not None
    work = [
        estimates_of(node, {"s": 1_000.0}, keys={("s", ("k",)): SeenKeys(keys)})[found].work_us
        for keys in (10, 100, 1_000)
    ]
    assert work == sorted(work, key=lambda each: -(each or 0))


def test_samples_that_are_linked_make_lazy_extents_cheaper() -> None:
    """What is compared costs a part for each sample, and one more for each that begins a row."""
    node = with_keeping(coalesced("RANGE 10 SECONDS"), "lazy")
    found = extent_of(node)
    assert found is not None
    prices = Prices({**PRICES.kinds, "Coalescing": Price(compared=0.5, apart=0.25)})
    none, half, all_ = (
        estimates_of(node, {"s": 1_000.0}, prices=prices, keys={("s", ("k",)): SeenKeys(100, linked)})[found].work_us
        for linked in (0.0, 0.5, 1.0)
    )
    assert none is not None
    assert half is not None
    assert all_ is not None
    flow, kept = samples_of(found, 1_000.0)
    assert none - all_ == pytest.approx(0.25 * compared_lazily(flow, 100, kept))
    assert none - half == pytest.approx((none - all_) / 2)


def test_samples_among_many_take_longer_to_read() -> None:
    """Four times as many are kept: four times as many are compared, and each takes twice as long."""
    prices = Prices({**dict.fromkeys(("Source", "TimeWindow", "LazyExtent"), Price()), "Coalescing": Price(compared=1)})
    short, long = (
        estimates_of(node, {"s": 1_000.0}, prices=prices)[found].work_us
        for node in (with_keeping(coalesced(f"RANGE {seconds} SECONDS"), "lazy") for seconds in (10, 40))
        if (found := extent_of(node)) is not None
    )
    assert short is not None
    assert long == pytest.approx(8 * short)


PRICES = Prices(
    {
        **dict.fromkeys(("Source", "Project", "TimeWindow"), Price()),
        "Extent": Price(batch=1_000, moved=500, row_in=1, kept=1),
        "LazyExtent": Price(batch=100, row_in=2),
        "Coalescing": Price(moved=300, compared=0.5),
    }
)


def test_the_price_of_an_extent_has_a_part_for_each_move_of_its_window() -> None:
    figures = Figures({"s": 10.0}, {}, PRICES, keys={("s", ("k",)): SeenKeys(1e9)})
    node = coalesced("RANGE 10 SECONDS SLIDE 5 SECONDS")
    plans = {each.number: each for each in options_of(PlannedQuery("q", 1, node), alternatives(node), figures)}
    eager, lazy = plans[1], plans[2]
    assert (eager.fixed_us, eager.own_us) == pytest.approx((1_000 + 500 / 5, 0))
    assert (lazy.fixed_us, lazy.rows_us) == pytest.approx((100, 20))
    assert lazy.own_us == pytest.approx(300 / 5, abs=0.1)


def test_queries_that_coalesce_in_one_way_share_that_whatever_they_show() -> None:
    figures = Figures({"s": 1_000.0}, {}, PRICES)
    window = "s WINDOW(RANGE 10 SECONDS) COALESCE"
    texts = (
        f"SELECT k, VALID(r) AS held FROM {window}(x BY k) AS r",
        f"SELECT x FROM {window}(x BY k) AS r WHERE x > 3",
        f"SELECT k, VALID(r) AS held FROM {window}(y BY k) AS r",
    )
    found = []
    for number, text in enumerate(texts):
        query = PlannedQuery(f"q{number}", 1, plan_of(text))
        options = options_of(query, alternatives(query.node), figures)
        found.append(next(each for each in options if each.own_us))
    assert len({each.fragment for each in found}) == 1
    assert found[0].own == found[1].own != found[2].own

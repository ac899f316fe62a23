"""Extents that may keep fewer samples: quality of rows, accuracy while running, and what undoing does."""

from __future__ import annotations

from random import Random

import pytest

from cluster.temporal.rated_extent import RatedExtent
from cluster.temporal.shedding import PROFILES, HeapShedder
from cluster.temporal.windows import CountWindow, ExtentError, TimeWindow, Window
from tests.cluster.temporal.accuracy import quality
from tests.cluster.temporal.test_shedding import ALL, drawn_arrivals, exact_pieces


@pytest.mark.parametrize("seed", range(30))
def test_before_the_window_slides_quality_and_accuracy_are_exact(seed: int) -> None:
    random = Random(seed)
    arrivals = drawn_arrivals(random, 80, random.choice(["g", "gh"]))
    extent = RatedExtent(ALL, ["slow"], random.choice(list(PROFILES.values())))
    extent.apply(random.randint(5, 40))
    for number, (stamp, group, value) in enumerate(arrivals, 1):
        extent.arrive(stamp, (value,), (group,))
        exact = exact_pieces(arrivals[:number], ALL, stamp + 1)
        assert extent.accuracy(stamp + 1) == pytest.approx(quality(exact, extent.pieces(stamp + 1)).accuracy)
        rated = extent.rated(stamp + 1)
        assert [each.piece for each in rated] == extent.pieces(stamp + 1)
        for piece, share in rated:
            parent = next(
                row for row in exact if row.group == piece.group and row.start <= piece.start and piece.end <= row.end
            )
            assert share == pytest.approx((piece.end - piece.start) / (parent.end - parent.start))


@pytest.mark.parametrize("window", [CountWindow(300), TimeWindow(750)])
@pytest.mark.parametrize("seed", range(4))
def test_while_it_slides_accuracy_is_estimated(window: Window, seed: int) -> None:
    random = Random(seed)
    arrivals = drawn_arrivals(random, 1_200)
    extent = RatedExtent(window)
    extent.apply(100)
    errors = []
    for number, (stamp, group, value) in enumerate(arrivals, 1):
        extent.arrive(stamp, (value,), (group,))
        if number % 40 == 0:
            exact = exact_pieces(arrivals[:number], window, stamp + 1)
            errors.append(extent.accuracy(stamp + 1) - quality(exact, extent.pieces(stamp + 1)).accuracy)
            assert all(0 < share <= 1 for _, share in extent.rated(stamp + 1))
    assert max(map(abs, errors)) < 0.08
    assert len(extent._parts) <= 67


@pytest.mark.parametrize("seed", range(20))
def test_a_saved_extent_goes_on_as_one_that_was_not(seed: int) -> None:
    random = Random(seed)
    arrivals = drawn_arrivals(random, 200, random.choice(["g", "ghijk"]))
    window: Window = random.choice([CountWindow(60), TimeWindow(150)])
    extent = RatedExtent(window, ["slow"])
    extent.apply(random.randint(3, 30))
    for stamp, group, value in arrivals:
        if random.random() < 0.1:
            extent = RatedExtent.restored(window, extent.saved(), ["slow"])
        elif random.random() < 0.05:
            before = extent.saved()
            extent.offer(2, stamp)
            assert extent.saved() == before
        same = RatedExtent.restored(window, extent.saved(), ["slow"])
        assert extent.arrive(stamp, (value,), (group,)) == same.arrive(stamp, (value,), (group,))
        assert extent.saved() == same.saved()
        assert extent.rated(stamp + 1) == same.rated(stamp + 1)


def test_an_offer_is_what_applying_comes_to() -> None:
    arrivals = drawn_arrivals(Random(5), 100)
    extent = RatedExtent(ALL, ["slow", "fast"])
    for stamp, group, value in arrivals:
        assert extent.arrive(stamp, (value,), (group,)) is None
    now = arrivals[-1][0] + 1
    assert extent.accuracy(now) == 1
    offers = [extent.offer(most, now) for most in (80, 40, 10)]
    assert [each.saved_samples for each in offers] == [20, 60, 90]
    assert offers[0].accuracy > offers[1].accuracy > offers[2].accuracy
    assert offers[0].queries == ("slow", "fast")
    assert extent.apply(40) == 60
    assert extent.accuracy(now) == offers[1].accuracy
    assert extent.dropped == 60


def test_undoing_stops_evicting_and_what_is_lost_stays_lost() -> None:
    extent = RatedExtent(CountWindow(20))
    extent.apply(5)
    for stamp in range(20):
        extent.arrive(stamp, ("a",))
    extent.undo()
    assert (len(extent.kept), extent.dropped) == (5, 15)
    for stamp in range(20, 30):
        assert extent.arrive(stamp, ("ab"[stamp % 2],)) is None
    assert extent.dropped == 15
    assert extent.accuracy(30) < 1
    for stamp in range(30, 60):
        extent.arrive(stamp, ("a",))
    assert (len(extent.kept), extent.accuracy(60)) == (20, 1)


def test_applying_drops_what_the_heap_would() -> None:
    arrivals = drawn_arrivals(Random(9), 60)
    rated, heap = RatedExtent(ALL), HeapShedder(ALL, 25)
    rated.apply(25)
    for stamp, _, value in arrivals:
        assert rated.arrive(stamp, (value,)) == heap.arrive(stamp, (value,))
    with pytest.raises(ExtentError, match="room for 0"):
        rated.apply(0)


def test_nothing_is_accurate_while_there_is_nothing() -> None:
    assert RatedExtent(ALL).accuracy(5) == 1


def test_what_expires_is_no_loss() -> None:
    extent = RatedExtent(TimeWindow(10))
    for stamp in (0, 4, 8, 12):
        extent.arrive(stamp, ("a",))
    assert [(each.piece.start, each.quality) for each in extent.rated(14)] == [(4, 1.0)]
    other = RatedExtent(TimeWindow(10))
    for stamp, value in ((0, "a"), (5, "b"), (11, "a")):
        other.arrive(stamp, (value,))
    assert other.accuracy(12) == 1


def test_what_was_dropped_expires_too() -> None:
    """Samples of 0 and 2 are dropped; when 0 has expired, the exact row begins after 1, by the window."""
    extent = RatedExtent(TimeWindow(10))
    for stamp in (0, 2, 4, 6, 8):
        extent.arrive(stamp, ("a",))
    extent.apply(3)
    assert [(each.piece.start, each.quality) for each in extent.rated(10)] == [(4, 0.6)]
    extent.undo()
    extent.arrive(11, ("b",))
    assert extent.rated(12)[0].quality == 7 / 10

"""Coalescence-aware shedding: the vectors of papers/cals.md section 7 and the lines of its checklist in section 6."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from random import Random

import pytest

from cluster.temporal.kept_samples import KeptSamples, Piece
from cluster.temporal.shedding import (
    ABSOLUTE_LEX,
    DEFAULT,
    PROFILES,
    Algorithm,
    Combination,
    HeapShedder,
    Scoring,
    Tie,
    score,
)
from cluster.temporal.windows import CountWindow, ExtentError, TimeWindow, Window
from tests.cluster.temporal.accuracy import quality
from tests.cluster.temporal.best_kept import best_accuracy
from tests.cluster.temporal.definition import live_samples
from tests.cluster.temporal.shedding import DrawingShedder, ScanningShedder

ALL = CountWindow(10**9)
STREAM = list(zip((0, 3, 4, 9, 10, 14, 16, 17, 21, 22), "aaaabbcaab", strict=True))
"""V7."""
INTERVALS = [(0, 2, "a"), (2, 3, "a"), (3, 7, "a"), (7, 9, "b"), (9, 12, "b")]
"""V2."""

Arrival = tuple[int, str, str]


def run(shedder: KeptSamples, stream: list[tuple[int, str]]) -> list[int]:
    """Return what was dropped, in turn."""
    dropped = [shedder.arrive(stamp, (value,)) for stamp, value in stream]
    return [number for number in dropped if number is not None]


def merged(intervals: list[tuple[int, int, str]], group: str = "") -> list[Piece]:
    """Coalesce intervals by definition: neighbours that meet and have equal values."""
    found: list[Piece] = []
    for start, end, value in intervals:
        if found and found[-1].end == start and found[-1].values == (value,):
            found[-1] = found[-1]._replace(end=end)
        else:
            found.append(Piece((group,) if group else (), (value,), start, end))
    return found


def exact_pieces(arrivals: list[Arrival], window: Window, now: int) -> list[Piece]:
    """Coalesce all samples of the window, by definition."""
    live = {stamp for stamp, _, _ in live_samples([(stamp, (group,), ()) for stamp, group, _ in arrivals], window)}
    found = []
    for group in sorted({each[1] for each in arrivals}):
        own = [(stamp, value) for stamp, name, value in arrivals if name == group]
        ends = [*(stamp for stamp, _ in own[1:]), now]
        intervals = [(stamp, end, value) for (stamp, value), end in zip(own, ends, strict=True) if stamp in live]
        found += merged(intervals, group)
    return found


def drawn_arrivals(random: Random, count: int, groups: str = "g") -> list[Arrival]:
    stamp, last, found = 0, dict.fromkeys(groups, ""), []
    coalescing = random.choice([0.2, 0.5, 0.9])
    for _ in range(count):
        stamp += random.randint(1, 4)
        group = random.choice(groups)
        if not last[group] or random.random() >= coalescing:
            last[group] = random.choice([each for each in "abc" if each != last[group]])
        found.append((stamp, group, last[group]))
    return found


def shedders(window: Window, most: int, random: Random) -> list[KeptSamples]:
    scans = [
        ScanningShedder(window, most, each, scoring) for each in list(Algorithm)[:3] for scoring in PROFILES.values()
    ]
    return [
        *scans,
        *(HeapShedder(window, most, scoring) for scoring in PROFILES.values()),
        DrawingShedder(window, most, random.randrange),
        DrawingShedder(window, most, random.randrange, uniform=False),
    ]


def test_v3_scores() -> None:
    found = {}
    for scoring in (DEFAULT, ABSOLUTE_LEX):
        shedder = ScanningShedder(ALL, 9, scoring=scoring)
        run(shedder, [(start, value) for start, _, value in INTERVALS] + [(12, "c")])
        found[scoring] = list(shedder.scores().values())
    assert found[DEFAULT] == [(0, 2 / 7), (1, 1 / 7), (0, 4 / 7), (0, 2 / 5), (0, 3 / 5)]
    assert found[ABSOLUTE_LEX] == [(0, 2.0), (1, 1.0), (0, 4.0), (0, 2.0), (0, 3.0)]


@pytest.mark.parametrize(("algorithm", "victim"), [(Algorithm.CALS, 0), (Algorithm.CALS_V, 0), (Algorithm.CALS_I, 1)])
def test_v3_victims(algorithm: Algorithm, victim: int) -> None:
    shedder = ScanningShedder(ALL, 5, algorithm)
    assert run(shedder, [(start, value) for start, _, value in INTERVALS] + [(12, "c")]) == [victim]


@pytest.mark.parametrize(
    ("dropped", "accuracy", "values"),
    [
        ((), 1, 1), ((1,), 0.857143, 1), ((2,), 0.619048, 2 / 3), ((3,), 0.714286, 1), ((4,), 0.8, 1), ((5,), 0.7, 1),
        ((1, 4), 0.657143, 1), ((2, 4), 0.485714, 2 / 3), ((1, 2), 0.785714, 1), ((4, 5), 0.5, 1 / 2),
        ((2, 4, 5), 0.285714, 1 / 3),
    ],
)  # fmt: skip
def test_v4_accuracy(dropped: tuple[int, ...], accuracy: float, values: float) -> None:
    kept = [each for number, each in enumerate(INTERVALS, 1) if number not in dropped]
    found = quality(merged(INTERVALS), merged(kept))
    assert found.accuracy == pytest.approx(accuracy, abs=1e-6)
    assert found.values == pytest.approx(values)


@pytest.mark.parametrize(
    ("shortest", "accuracy"), [(0, 0.619048), (2, 0.619048), (3, 0.785714), (4, 0.785714), (5, 0.5), (6, 0)]
)
def test_v5_a_predicate_on_lengths(shortest: int, accuracy: float) -> None:
    kept = merged([each for number, each in enumerate(INTERVALS) if number != 1])
    found = quality(merged(INTERVALS), kept, lambda piece: piece.end - piece.start >= shortest)
    assert found.accuracy == pytest.approx(accuracy, abs=1e-6)


def test_rows_that_only_shedding_selects_count_against_it() -> None:
    kept = merged([each for number, each in enumerate(INTERVALS) if number != 1])
    found = quality(merged(INTERVALS), kept, lambda piece: piece.end - piece.start <= 4)
    assert (found.accuracy, found.extraneous) == (0, 2)


def test_v6_values_in_one_pool_may_look_right() -> None:
    exact = merged([(0, 1, "a"), (1, 2, "a"), (2, 3, "a"), (3, 4, "b"), (4, 5, "a")])
    found = quality(exact, merged([(0, 1, "a"), (2, 3, "a"), (3, 4, "b")]))
    assert (found.pooled_values, found.values, found.extraneous, found.missing) == (1, 0.5, 1, 1)
    assert found.accuracy == pytest.approx(0.416667, abs=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "dropped", "kept", "accuracy", "values"),
    [
        (Algorithm.CALS, [3, 0, 1, 5, 8], [2, 4, 6, 7, 9], 0.793333, 1),
        (Algorithm.CALS_V, [0, 1, 2, 3, 4], [5, 6, 7, 8, 9], 0.666667, 0.8),
        (Algorithm.CALS_I, [1, 3, 5, 0, 8], [2, 4, 6, 7, 9], 0.793333, 1),
    ],
)
def test_v7_a_full_trace(
    algorithm: Algorithm, dropped: list[int], kept: list[int], accuracy: float, values: float
) -> None:
    shedder = ScanningShedder(ALL, 5, algorithm)
    assert run(shedder, STREAM) == dropped
    assert list(shedder.kept) == kept
    found = quality(exact_pieces([(at, "", value) for at, value in STREAM], ALL, 27), shedder.pieces(27))
    assert found.accuracy == pytest.approx(accuracy, abs=1e-6)
    assert found.values == pytest.approx(values)


def test_v7_scores_on_the_way() -> None:
    shedder = ScanningShedder(ALL, 5)
    run(shedder, STREAM[:5])
    fifth = ScanningShedder(ALL, 99)
    run(fifth, STREAM[:6])
    assert {number: (delta, round(rho, 4)) for number, (delta, rho) in fifth.scores().items()} == {
        0: (0, 0.3), 1: (1, 0.1), 2: (1, 0.5), 3: (0, 0.1), 4: (0, 1.0),
    }  # fmt: skip


def test_v8_expiry_makes_room() -> None:
    for shedder in (ScanningShedder(CountWindow(4), 3), HeapShedder(CountWindow(4), 3)):
        assert run(shedder, STREAM) == [0, 1, 3, 5, 8]
        assert list(shedder.kept) == [6, 7, 9]
        exact = exact_pieces([(at, "", value) for at, value in STREAM], CountWindow(4), 27)
        assert quality(exact, shedder.pieces(27)).accuracy == pytest.approx(0.933333, abs=1e-6)


def test_v9_rows_of_one_sample_and_one_row() -> None:
    for make in (ScanningShedder, HeapShedder):
        apart, alone = make(ALL, 4), make(ALL, 4)
        run(apart, [(at, "ab"[at % 2]) for at in range(10)])
        run(alone, [(at, "a") for at in range(10)])
        exact = exact_pieces([(at, "", "ab"[at % 2]) for at in range(10)], ALL, 10)
        assert quality(exact, apart.pieces(10)).accuracy == pytest.approx(0.4)
        assert quality(exact_pieces([(at, "", "a") for at in range(10)], ALL, 10), alone.pieces(10)).accuracy == 0.4
    scattered = merged([(at, at + 1, "a") for at in (0, 2, 4, 6)])
    assert quality(merged([(0, 10, "a")]), scattered).accuracy == pytest.approx(0.1)


@pytest.mark.parametrize("seed", range(40))
def test_every_piece_lies_in_one_exact_row(seed: int) -> None:
    """Property 1, for all shedders, in both windows, with groups; accuracy is 1 only if nothing is lost."""
    random = Random(seed)
    arrivals = drawn_arrivals(random, random.randint(1, 60), random.choice(["g", "gh", "ghijk"]))
    window: Window = random.choice([ALL, CountWindow(20), TimeWindow(40)])
    most = random.randint(1, 25)
    for shedder in shedders(window, most, random):
        for number, (stamp, group, value) in enumerate(arrivals):
            shedder.arrive(stamp, (value,), (group,))
            assert len(shedder.kept) <= most
            exact = exact_pieces(arrivals[: number + 1], window, stamp + 1)
            found = quality(exact, shedder.pieces(stamp + 1))  # fails for a piece without a parent
            assert 0 <= found.accuracy <= 1
            kept = sum(piece.end - piece.start for piece in shedder.pieces(stamp + 1))
            whole = sum(piece.end - piece.start for piece in exact)
            assert (found.accuracy == pytest.approx(1)) == (kept == whole)


@pytest.mark.parametrize("seed", range(60))
def test_the_heap_finds_the_victims_of_the_scan(seed: int) -> None:
    random = Random(seed)
    arrivals = drawn_arrivals(random, 300, random.choice(["g", "gh", "ghijk"]))
    window: Window = random.choice([ALL, CountWindow(50), TimeWindow(100)])
    most = random.choice([1, 2, 10, 30])
    lexicographic = Combination.LEXICOGRAPHIC
    for scoring in (DEFAULT, ABSOLUTE_LEX, Scoring(1), Scoring(1, relative=False, combination=lexicographic)):
        scan, heap = ScanningShedder(window, most, scoring=scoring), HeapShedder(window, most, scoring)
        for stamp, group, value in arrivals:
            assert heap.arrive(stamp, (value,), (group,)) == scan.arrive(stamp, (value,), (group,))
        assert heap.pieces(9_999) == scan.pieces(9_999)
        assert len(heap._heap) <= 2 * (most + 1) + 65


@pytest.mark.parametrize("seed", range(20))
def test_cals_never_splits_a_row_and_cals_v_keeps_the_newest(seed: int) -> None:
    random = Random(seed)
    arrivals = drawn_arrivals(random, 80)
    for scoring in (*PROFILES.values(), Scoring(1)):
        shedder = ScanningShedder(ALL, 20, scoring=scoring)
        newest = ScanningShedder(ALL, 20, Algorithm.CALS_V, scoring)
        for stamp, _, value in arrivals:
            shedder.arrive(stamp, (value,))
            newest.arrive(stamp, (value,))
        now = arrivals[-1][0] + 1
        exact = exact_pieces([(at, "", value) for at, _, value in arrivals], ALL, now)
        assert quality(exact, shedder.pieces(now)).extraneous == 0
        if scoring.singleton_delta == 0:
            assert list(newest.kept) == list(range(60, 80))


@pytest.mark.parametrize("seed", range(12))
def test_the_best_choice_is_that_of_all_choices(seed: int) -> None:
    random = Random(seed)
    arrivals = [(at, "", value) for at, _, value in drawn_arrivals(random, random.randint(8, 11))]
    now = arrivals[-1][0] + random.randint(1, 4)
    stamps = [at for at, _, _ in arrivals]
    intervals = [(start, end, value) for (start, _, value), end in zip(arrivals, [*stamps[1:], now], strict=True)]
    exact = merged(intervals)
    rows = [[end - start for start, end, _ in intervals if row.start <= start < row.end] for row in exact]
    for most in range(1, len(intervals)):
        tried = max(quality(exact, merged(list(kept))).accuracy for kept in combinations(intervals, most))
        assert best_accuracy(rows, most) == pytest.approx(tried, abs=1e-9)


@pytest.mark.parametrize("seed", range(15))
def test_no_shedder_beats_the_best_choice(seed: int) -> None:
    random = Random(seed)
    arrivals = [(at, "", value) for at, _, value in drawn_arrivals(random, 60)]
    now = arrivals[-1][0] + 2
    exact = exact_pieces(arrivals, ALL, now)
    stamps = [at for at, _, _ in arrivals] + [now]
    rows = [[end - start for start, end in pairwise(stamps) if row.start <= start < row.end] for row in exact]
    for most in (5, 20, 40):
        best = best_accuracy(rows, most)
        for shedder in shedders(ALL, most, random):
            for stamp, _, value in arrivals:
                shedder.arrive(stamp, (value,))
            assert quality(exact, shedder.pieces(now)).accuracy <= best + 1e-9


def test_without_coalescing_accuracy_is_the_share_that_is_kept() -> None:
    random = Random(3)
    arrivals = [(3 * number, "", "ab"[number % 2]) for number in range(50)]
    exact = exact_pieces(arrivals, ALL, 150)
    for shedder in shedders(ALL, 20, random):
        for stamp, _, value in arrivals:
            shedder.arrive(stamp, (value,))
        assert quality(exact, shedder.pieces(150)).accuracy == pytest.approx(20 / 50)


def test_a_uniform_choice_is_uniform() -> None:
    random = Random(8)
    times = [0] * 20
    for _ in range(3_000):
        shedder = DrawingShedder(ALL, 5, random.randrange)
        for stamp in range(20):
            shedder.arrive(stamp, ("a",))
        for number in shedder.kept:
            times[number] += 1
    assert all(abs(each / 3_000 - 0.25) < 0.04 for each in times)
    window = DrawingShedder(TimeWindow(9), 5, random.randrange)
    for stamp in range(100):
        window.arrive(stamp, ("a",))
        assert min(window.kept) >= stamp - 9


def test_ties_by_age_and_at_random() -> None:
    stream = [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert run(ScanningShedder(ALL, 3, scoring=Scoring(tie=Tie.NEWEST)), stream) == [2]
    for place in range(3):
        drawn = ScanningShedder(ALL, 3, scoring=Scoring(tie=Tie.RANDOM), draw=lambda count, place=place: place % count)
        assert run(drawn, stream) == [place]


@pytest.mark.parametrize(
    ("combination", "expected"),
    [
        (Combination.SUM, (1.25, 0.0)),
        (Combination.LEXICOGRAPHIC, (1, 0.25)),
        (Combination.NORMALISED_SUM, (1.5, 0.0)),
        (Combination.PRODUCT, (0.25, 0.0)),
        (Combination.SHIFTED_PRODUCT, (0.5, 0.0)),
    ],
)
def test_combinations_of_scores(combination: Combination, expected: tuple[float, float]) -> None:
    scoring = Scoring(combination=combination)
    assert score(1, 0.25, Algorithm.CALS, scoring, largest_rho=0.5) == expected
    assert score(1, 0.25, Algorithm.CALS_V, scoring) == (1, 0.0)
    assert score(1, 0.25, Algorithm.CALS_I, scoring) == (0.25, 0.0)
    shedder = ScanningShedder(ALL, 5, scoring=scoring)
    assert run(shedder, [(start, value) for start, _, value in INTERVALS] + [(12, "c")]) == [0]


def test_many_open_samples_leave_the_oldest() -> None:
    for shedder in (ScanningShedder(ALL, 2), HeapShedder(ALL, 2)):
        dropped = [shedder.arrive(stamp, ("a",), (group,)) for stamp, group in enumerate("wxyz")]
        assert dropped == [None, None, 0, 1]


def test_everything_is_kept_with_room() -> None:
    for shedder, room in product((ScanningShedder, HeapShedder), (10, 11)):
        kept = shedder(ALL, room)
        assert run(kept, STREAM) == []
        exact = exact_pieces([(at, "", value) for at, value in STREAM], ALL, 27)
        assert quality(exact, kept.pieces(27)).accuracy == 1
    assert quality([], []).accuracy == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScanningShedder(ALL, 0),
        lambda: ScanningShedder(ALL, 5, Algorithm.RAND_UNIFORM),
        lambda: ScanningShedder(ALL, 5, scoring=Scoring(tie=Tie.RANDOM)),
        lambda: Scoring(2),
        lambda: Scoring(relative=False),
        lambda: HeapShedder(ALL, 5, Scoring(combination=Combination.PRODUCT)),
        lambda: run(ScanningShedder(ALL, 5), [(3, "a"), (3, "b")]),
    ],
)
def test_what_makes_no_sense_is_refused(make) -> None:
    with pytest.raises(ExtentError):
        make()


def test_a_piece_of_other_samples_has_no_parent() -> None:
    with pytest.raises(ValueError, match="no exact row"):
        quality(merged(INTERVALS), [Piece((), ("b",), 0, 2)])
    with pytest.raises(ValueError, match="no exact row"):
        quality(merged(INTERVALS), [Piece((), ("b",), 9, 13)])

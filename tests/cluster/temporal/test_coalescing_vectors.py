"""The worked examples of papers/coalescing.md section 7, by their names there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from cluster.temporal.windows import CountWindow, Increasing, Satisfying, TimeWindow, Values, Within
from tests.cluster.temporal.intervals import FOREVER, Interval, coalesced_rows, duration_in, intersection, overlaps
from tests.cluster.temporal.notation import Watched, samples_in
from tests.cluster.temporal.runs import coalesced
from tests.cluster.temporal.shared_extents import StreamSchema, coalescing_query

ALL = CountWindow(100)


def test_v1_humidity_of_three_regions() -> None:
    samples = [
        (hour, (region,), (value,))
        for region, values in (("r1", (81, 81, 81)), ("r2", (81, 79, 81)), ("r3", (81, 81, 81)))
        for hour, value in enumerate(values, 1)
    ]
    runs = coalesced(sorted(samples), lambda one, other: one == other)
    assert [(*run.group, *run.values, run.start, run.end) for run in runs] == [
        ("r1", 81, 1, 3), ("r2", 81, 1, 2), ("r3", 81, 1, 3), ("r2", 79, 2, 3), ("r2", 81, 3, 3),
    ]  # fmt: skip
    assert [run.group[0] for run in runs if run.end - run.start >= 2] == ["r1", "r3"]


def test_v2_salaries_in_a_table() -> None:
    rows = [("Andy", "Dev", 100, 2000, 2004), ("Andy", "Dev", 120, 2004, 2008), ("Andy", "R&D", 120, 2008, FOREVER)]
    by_all = coalesced_rows(((name, salary, place), Interval(start, end)) for name, place, salary, start, end in rows)
    by_salary = coalesced_rows(((name, salary), Interval(start, end)) for name, _, salary, start, end in rows)
    assert len(by_all) == 3
    assert by_salary == [(("Andy", 100), (2000, 2004)), (("Andy", 120), (2004, FOREVER))]


def test_v3_equal_coalescing_queries_are_one() -> None:
    schema = StreamSchema((), ("G11", "G12", "G2", "G3"), ("A", "B", "C"))
    queries = [("AB", ("G11", "G12")), ("BC", ("G2",)), ("CB", ("G2",)), ("BC", ("G3",))]
    assert len({coalescing_query(schema, attributes, groups) for attributes, groups in queries}) == 3


def test_v_a_expiry_inside_runs() -> None:
    assert Watched(CountWindow(4)).trace("A@1 A@2 B@3 B@4 B@5 A@6 A@7") == [
        "A[1,1)",
        "A[1,2)v{2}",
        "A[1,3)v{2} B[3,3)",
        "A[1,3)v{2} B[3,4)v{4}",
        "A[2,3) B[3,5)v{4,5}",
        "B[3,6)v{4,5} A[6,6)",
        "B[4,6)v{5} A[6,7)v{7}",
    ]


@pytest.mark.parametrize(
    ("late", "runs"),
    [
        ("C@4", "A[1,4)v{3} C[4,6) A[6,8) B[8,8)"),
        ("A@4", "A[1,8)v{3,4,6} B[8,8)"),
        ("C@7", "A[1,7)v{3,6} C[7,8) B[8,8)"),
        ("B@7", "A[1,7)v{3,6} B[7,8)v{8}"),
        ("A@7", "A[1,8)v{3,6,7} B[8,8)"),
        ("A@0", "A[0,8)v{1,3,6} B[8,8)"),
        ("C@0", "C[0,1) A[1,8)v{3,6} B[8,8)"),
    ],
)
def test_v_b_late_samples(late: str, runs: str) -> None:
    watched = Watched(CountWindow(9))
    watched.take("A@1 A@3 A@6 B@8")
    assert watched.take(late) == runs


def test_v_b_bytes() -> None:
    watched = Watched(CountWindow(9))
    watched.take("A@1 A@3 A@6 B@8")
    assert list(watched.eager.sizes().values()) == [64]
    watched.take("C@4")
    assert list(watched.eager.sizes().values()) == [104]


def test_v_c_late_in_a_full_window() -> None:
    watched = Watched(CountWindow(3))
    assert watched.trace("A@2 B@4 C@6 D@1 D@3 C@5")[2:] == [
        "A[2,4) B[4,6) C[6,6)",
        "A[2,4) B[4,6) C[6,6)",
        "D[3,4) B[4,6) C[6,6)",
        "B[4,5) C[5,6)v{6}",
    ]
    assert watched.eager.admission.late == 1


def test_v_d_window_by_time() -> None:
    assert Watched(TimeWindow(10)).trace("A@0 A@4 A@9 B@12 B@13 B@1 A@3 B@19 C@25 C@30") == [
        "A[0,0)",
        "A[0,4)v{4}",
        "A[0,9)v{4,9}",
        "A[4,12)v{9} B[12,12)",
        "A[4,12)v{9} B[12,13)v{13}",
        "A[4,12)v{9} B[12,13)v{13}",
        "A[3,12)v{4,9} B[12,13)v{13}",
        "A[9,12) B[12,19)v{13,19}",
        "B[19,25) C[25,25)",
        "C[25,30)v{30}",
    ]


def test_v_d2_and_v_d3_what_survives_at_the_edge() -> None:
    assert Watched(TimeWindow(10)).trace("A@0 A@1 B@5 C@12")[2:] == ["A[0,5)v{1} B[5,5)", "B[5,12) C[12,12)"]
    assert Watched(TimeWindow(10)).take("g:A@0 g:A@3 h:X@13") == "g:A[3,3) h:X[13,13)"


def test_v_e_expiry_goes_by_stamps_across_groups() -> None:
    assert Watched(CountWindow(4)).trace("g:A@1 h:A@2 g:A@3 h:A@4 g:A@5 h:A@6 g:B@7 k:Z@8")[3:] == [
        "g:A[1,3)v{3} h:A[2,4)v{4}",
        "g:A[3,5)v{5} h:A[2,4)v{4}",
        "g:A[3,5)v{5} h:A[4,6)v{6}",
        "g:A[5,7) g:B[7,7) h:A[4,6)v{6}",
        "g:A[5,7) g:B[7,7) h:A[6,6) k:Z[8,8)",
    ]


def test_v_f_late_within_a_group() -> None:
    assert Watched(CountWindow(9)).trace("h:X@10 g:A@20 h:X@30 g:A@15 g:B@12 g:C@25 k:Q@40")[3:] == [
        "g:A[15,20)v{20} h:X[10,30)v{30}",
        "g:B[12,15) g:A[15,20)v{20} h:X[10,30)v{30}",
        "g:B[12,15) g:A[15,25)v{20} g:C[25,25) h:X[10,30)v{30}",
        "g:B[12,15) g:A[15,25)v{20} g:C[25,25) h:X[10,30)v{30} k:Q[40,40)",
    ]


def test_v_g_general_links() -> None:
    rising = Watched(CountWindow(9), Increasing())
    assert rising.take("5@1 7@2 9@4 6@5") == "5[1,5)v{2,4} 6[5,5)"
    assert rising.take("4@3") == "5[1,3)v{2} 4[3,5)v{4} 6[5,5)"
    assert rising.take("8@6") == "5[1,3)v{2} 4[3,5)v{4} 6[5,6)v{6}"
    near = Watched(CountWindow(9), Within(2))
    assert near.take("5@1 8@3") == "5[1,3) 8[3,3)"
    assert near.take("6@2") == "5[1,3)v{2,3}"
    share = Watched(CountWindow(9), Within(0.1, relative=True))
    assert share.take("100@1 110@2 122@3") == "100[1,3)v{2} 122[3,3)"
    own = Watched(CountWindow(9), Satisfying("same parity", lambda one, other: (one[0] - other[0]) % 2 == 0))
    assert own.take("2@1 4@3 5@4") == "2[1,4)v{3} 5[4,4)"


def test_v_h_join_of_what_overlaps() -> None:
    samples = "r1:50@0 r2:50@2 r1:50@3 r2:50@5 r1:60@7 r2:50@8 r2:70@9 r1:60@10"
    runs = coalesced_by(samples, lambda one, other: one == other)
    assert runs == [("r1", 50, 0, 7), ("r2", 50, 2, 9), ("r1", 60, 7, 10), ("r2", 70, 9, 9)]
    assert long_pairs(runs) == [("r1", "r2", (2, 7)), ("r2", "r1", (2, 7))]
    pieces = coalesced_by(samples, lambda one, other: False)
    assert long_pairs(pieces) == []


def test_v_k_longest_time_above_a_hundred() -> None:
    readings = "95@0 101@1 103@2 103@3 99@4 105@5 105@6 98@7"
    longest = {}
    for name, link in {"equal": lambda one, other: one == other, "none": lambda one, other: False,
                       "above": lambda one, other: (one[0] > 100) == (other[0] > 100)}.items():  # fmt: skip
        runs = coalesced_by(readings, link)
        longest[name] = max(end - start for _, value, start, end in runs if value > 100)
    assert longest == {"equal": 2, "above": 3, "none": 1}
    filtered = coalesced_by("101@1 103@2 103@3 105@5 105@6", lambda one, other: one == other)
    assert filtered == [("", 101, 1, 2), ("", 103, 2, 5), ("", 105, 5, 6)]  # filtering first stretches 103 over hour 4


def coalesced_by(samples: str, link: Callable[[Values, Values], bool]) -> list[tuple[str, int, int, int]]:
    runs = coalesced([(at, (group,), (int(value),)) for at, group, value in samples_in(samples)], link)
    return [(run.group[0], run.values[0], run.start, run.end) for run in runs]


def long_pairs(runs: list[tuple[str, int, int, int]]) -> list[tuple[str, str, tuple[int, int] | None]]:
    found = []
    for (one, value, *first), (other, same, *second) in product(runs, runs):
        both = intersection(Interval(*first), Interval(*second))
        alike = one != other and value == same and overlaps(Interval(*first), Interval(*second))
        if alike and (duration_in(both, 1) or 0) >= 4:
            found.append((one, other, tuple(both) if both else None))
    return sorted(found)

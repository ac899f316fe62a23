"""The examples of papers/coalescing.md section 4 as queries, and the vectors of section 7 through COALESCE.

Hours and minutes of the paper are microseconds. Its windows by time have both ends: RANGE is one microsecond longer.
"""

from __future__ import annotations

from typing import Any

import pytest

from cluster.testing import EOF, QueryRun, ScriptedSource
from tests.cluster.oracle.scripted_runs import micros, valid_at
from tests.cluster.temporal.notation import samples_in

FIELDS = {"sensor": str, "humidity": float}
LATENESS = 100


def traced(notation: str, window: str, coalesce: str = "value BY sensor", *, numeric: bool = False) -> dict[int, str]:
    """Return, after each instant with a sample, the coalesced rows of a window, as ``g:A[1,3) B[3,3)``."""
    kind = float if numeric else str
    samples = samples_in(notation)
    items: list[Any] = [(t, {"sensor": g, "value": kind(v)}) for t, g, v in samples]
    source = ScriptedSource({"sensor": str, "value": kind}, [*items, EOF()], batch_size=100, lateness=f"{LATENESS}us")
    by = "sensor, " if "sensor" in coalesce else ""
    sql = f"SELECT {by}value, VALID(s) AS held FROM readings WINDOW({window}) COALESCE({coalesce}) AS s"
    answers = QueryRun(sql, {"readings": source}).run()
    found = {}
    for at, _, _ in samples:
        runs = sorted(
            (micros(row["held_start"]), row.get("sensor", ""), row["value"], micros(row["held_end"]))
            for row in valid_at(answers, at)
        )
        shown = (f"{f'{g}:' if g else ''}{f'{v:g}' if numeric else v}[{s},{e})" for s, g, v, e in runs)
        found[at] = " ".join(shown)
    return found


def test_va_samples_expire_inside_runs() -> None:
    assert list(traced("A@1 A@2 B@3 B@4 B@5 A@6 A@7", "ROWS 4", "value").values()) == [
        "A[1,1)",
        "A[1,2)",
        "A[1,3) B[3,3)",
        "A[1,3) B[3,4)",
        "A[2,3) B[3,5)",
        "B[3,6) A[6,6)",
        "B[4,6) A[6,7)",
    ]


@pytest.mark.parametrize(
    ("late", "runs"),
    [
        ("C@4", "A[1,4) C[4,6) A[6,8) B[8,8)"),
        ("A@4", "A[1,8) B[8,8)"),
        ("C@7", "A[1,7) C[7,8) B[8,8)"),
        ("B@7", "A[1,7) B[7,8)"),
        ("A@7", "A[1,8) B[8,8)"),
        ("A@0", "A[0,8) B[8,8)"),
        ("C@0", "C[0,1) A[1,8) B[8,8)"),
    ],
)
def test_vb_a_late_sample_merges_and_cuts(late: str, runs: str) -> None:
    assert traced(f"A@1 A@3 A@6 B@8 {late}", "ROWS 9", "value")[8] == runs


def test_vd_a_window_by_time() -> None:
    """Without the sample that is too late, and with the late one in its place."""
    found = traced("A@0 A@4 A@9 B@12 B@13 A@3 B@19 C@25 C@30", "RANGE 11 US", "value")
    assert found[9] == "A[0,9)"
    assert found[12] == "A[3,12) B[12,12)"  # the late sample, of 3, is in the window, too
    assert found[13] == "A[3,12) B[12,13)"
    assert found[19] == "A[9,12) B[12,19)"
    assert found[25] == "B[19,25) C[25,25)"
    assert found[30] == "C[25,30)"
    assert traced("A@0 A@1 B@5 C@12", "RANGE 11 US", "value")[12] == "B[5,12) C[12,12)"
    assert traced("g:A@0 g:A@3 h:X@13", "RANGE 11 US")[13] == "g:A[3,3) h:X[13,13)"


def test_ve_samples_expire_in_the_order_of_all_groups() -> None:
    found = traced("g:A@1 h:A@2 g:A@3 h:A@4 g:A@5 h:A@6 g:B@7 k:Z@8", "ROWS 4")
    assert found[4] == "g:A[1,3) h:A[2,4)"
    assert found[5] == "h:A[2,4) g:A[3,5)"
    assert found[6] == "g:A[3,5) h:A[4,6)"
    assert found[7] == "h:A[4,6) g:A[5,7) g:B[7,7)"
    assert found[8] == "g:A[5,7) h:A[6,6) g:B[7,7) k:Z[8,8)"


def test_vf_late_samples_of_a_group() -> None:
    found = traced("h:X@10 g:A@20 h:X@30 g:A@15 g:B@12 g:C@25 k:Q@40", "ROWS 9")
    assert found[40] == "h:X[10,30) g:B[12,15) g:A[15,25) g:C[25,25) k:Q[40,40)"


def test_vg_any_link() -> None:
    increasing = "value WHILE value > PREV(value)"
    assert traced("5@1 7@2 9@4 6@5", "ROWS 9", increasing, numeric=True)[5] == "5[1,5) 6[5,5)"
    assert traced("5@1 7@2 9@4 6@5 4@3", "ROWS 9", increasing, numeric=True)[5] == "5[1,3) 4[3,5) 6[5,5)"
    assert traced("5@1 7@2 9@4 6@5 4@3 8@6", "ROWS 9", increasing, numeric=True)[6] == "5[1,3) 4[3,5) 6[5,6)"
    assert traced("5@1 8@3", "ROWS 9", "value TOLERANCE 2", numeric=True)[3] == "5[1,3) 8[3,3)"
    assert traced("5@1 8@3 6@2", "ROWS 9", "value TOLERANCE 2", numeric=True)[3] == "5[1,3)"


def answers_at(sql: str, notation: str, at: int) -> list[dict[str, Any]]:
    items: list[Any] = [(t, {"sensor": g, "humidity": float(v)}) for t, g, v in samples_in(notation)]
    source = ScriptedSource(FIELDS, [*items, EOF()], batch_size=3, lateness="0us")
    return valid_at(QueryRun(sql, {"climate": source}).run(), at)


H = "r1:50@0 r2:50@2 r1:50@3 r2:50@5 r1:60@7 r2:50@8 r2:70@9 r1:60@10"
COALESCED = "climate WINDOW(RANGE 61 US SLIDE 1 US) COALESCE(humidity BY sensor)"


@pytest.mark.parametrize("tolerance", ["", " TOLERANCE 0", " TOLERANCE 5"])
def test_example_1_regions_with_approximately_equal_humidity(tolerance: str) -> None:
    """V-H: pairs of regions that have been alike for at least 4 minutes, in the last 60."""
    sql = (
        "SELECT s1.sensor AS one, s2.sensor AS other, INTERSECT(VALID(s1), VALID(s2)) AS both "
        f"FROM {COALESCED} AS s1, {COALESCED} AS s2 "
        f"WHERE s1.sensor <> s2.sensor AND s1.humidity ~= s2.humidity{tolerance} AND VALID(s1) OVERLAPS VALID(s2) "
        "AND DURATION(INTERSECT(VALID(s1), VALID(s2))) >= INTERVAL '4' MICROSECOND"
    )
    rows = answers_at(sql, H, 10)
    found = {(row["one"], row["other"], micros(row["both_start"]), micros(row["both_end"])) for row in rows}
    assert found == {("r1", "r2", 2, 7), ("r2", "r1", 2, 7)}


K = "r:95@0 r:101@1 r:103@2 r:103@3 r:99@4 r:105@5 r:105@6 r:98@7"


def test_example_2_the_longest_period_above_100() -> None:
    """V-K: the longest period of one value above 100, and of any such value, in the last 24 hours, every hour."""
    longest = "SELECT sensor, EXTRACT(EPOCH FROM MAX(DURATION(VALID(s)))) * 1000000 AS hours FROM"
    window = "WINDOW(RANGE 25 US SLIDE 1 US)"
    of_values = f"{longest} climate {window} COALESCE(humidity BY sensor) AS s WHERE humidity > 100 GROUP BY sensor"
    high = "(SELECT sensor, humidity > 100 AS high FROM climate)"
    of_all = f"{longest} {high} {window} COALESCE(high BY sensor) AS s WHERE high GROUP BY sensor"
    (row,), (other,) = answers_at(of_values, K, 7), answers_at(of_all, K, 7)
    assert (round(row["hours"]), round(other["hours"])) == (2, 3)


def test_example_4_regions_that_have_not_changed() -> None:
    """V-1: no change for two hours; of nine samples five rows are made."""
    notation = "r1:81@1 r2:81@1 r3:81@1 r1:81@2 r2:79@2 r3:81@2 r1:81@3 r2:81@3 r3:81@3"
    item = "climate WINDOW(RANGE 10 US) COALESCE(humidity BY sensor) AS s"
    assert len(answers_at(f"SELECT sensor, humidity FROM {item}", notation, 3)) == 5
    long = answers_at(f"SELECT sensor FROM {item} WHERE DURATION(VALID(s)) >= INTERVAL '2' MICROSECOND", notation, 3)
    assert sorted(row["sensor"] for row in long) == ["r1", "r3"]

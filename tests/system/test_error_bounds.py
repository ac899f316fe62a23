"""ERROR_BOUND() holds: samples left out within a tolerance change no aggregate by more."""

from __future__ import annotations

from pathlib import Path

from tests.system.pushed_down import kinds, run
from tests.system.test_push_down import Road

BOUNDED = """SELECT sensor, AVG(speed WITHIN 20.0) AS a, ERROR_BOUND(AVG(speed)) AS ae, SUM(speed) AS s,
                    ERROR_BOUND(SUM(speed)) AS se, MIN(speed) AS l, ERROR_BOUND(MIN(speed)) AS le,
                    MAX(speed) AS h, ERROR_BOUND(MAX(speed)) AS he,
                    MEDIAN(speed) AS m, ERROR_BOUND(MEDIAN(speed)) AS me,
                    LAST(speed) AS z, ERROR_BOUND(LAST(speed)) AS ze, COUNT(speed) AS n, ERROR_BOUND(COUNT(speed)) AS ne
             FROM traffic WINDOW(RANGE 2 MINUTES SLIDE 1 MINUTE) GROUP BY sensor SAMPLE EVERY 2 SECONDS"""


def test_aggregates_are_off_by_no_more_than_their_bound(tmp_path: Path) -> None:
    world = Road()
    rough = run(world, {"q": BOUNDED}, tmp_path / "rough")
    exact = run(world, {"q": BOUNDED.replace(" WITHIN 20.0", "")}, tmp_path / "exact", raw=True)
    assert not rough.errors
    assert {each for program in rough.programs.values() for each in kinds(program)} == {"SendOnChange"}
    true = {(start, row["sensor"]): row for start, _, row in exact.rows["q"]}
    assert {(start, row["sensor"]) for start, _, row in rough.rows["q"]} == true.keys()
    off = 0
    for start, _, row in rough.rows["q"]:
        exactly = true[start, row["sensor"]]
        for name in "aslhmzn":
            assert exactly[f"{name}e"] in (0.0, None)
            if row[name] is not None:
                assert abs(row[name] - exactly[name]) <= row[f"{name}e"]
                off += row[name] != exactly[name]
        assert (row["ae"], row["se"], row["ne"]) == (20.0, 20.0 * row["n"], 0.0)
    assert off > 50

"""Conditions on NOW() are windows: the plan is that of the window, and so is the answer."""

from __future__ import annotations

import pytest

from cluster.language.translation import translate
from cluster.operators import Node
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from cluster.testing import EOF, ScriptedSource, answers
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.language.test_stamps import without_stamps


def plan(text: str) -> Node:
    return without_stamps(rewrite(translate(text, CATALOG).node).node)


@pytest.mark.parametrize(
    ("condition", "window"),
    [
        ("STAMP() > NOW() - INTERVAL '5' MINUTE", "RANGE 5 MINUTES"),
        ("STAMP() + INTERVAL '5' MINUTE > NOW()", "RANGE 5 MINUTES"),
        ("INTERVAL '5' MINUTE + STAMP() > CURRENT_TIMESTAMP", "RANGE 5 MINUTES"),
        ("NOW() < STAMP() + INTERVAL '5' MINUTE", "RANGE 5 MINUTES"),
        ("NOW() - INTERVAL '2' MINUTE < STAMP(t) + INTERVAL '3' MINUTE", "RANGE 5 MINUTES"),
        ("(NOW() - (INTERVAL '5' MINUTE)) < (STAMP())", "RANGE 5 MINUTES"),
        ("STAMP() > NOW() + -INTERVAL '5' MINUTE", "RANGE 5 MINUTES"),
        ("STAMP() >= NOW() - INTERVAL '5' MINUTE", "RANGE 300000001 US"),
        ("NOW() <= STAMP()", "RANGE 1 US"),
    ],
)
def test_a_condition_on_now_is_a_window(condition: str, window: str) -> None:
    text = "SELECT lane, COUNT(*) AS n FROM traffic AS t{} WHERE {}lane > 1 GROUP BY lane"
    wanted = plan(text.format(f" WINDOW({window})", ""))
    assert plan(text.format("", f"{condition} AND ")) == wanted
    swapped = f"SELECT lane, COUNT(*) AS n FROM traffic AS t WHERE lane > 1 AND {condition} GROUP BY lane"
    assert plan(swapped) == wanted


def test_each_stream_has_a_window_of_its_own() -> None:
    text = "SELECT t.lane FROM traffic AS t{}, weather AS w{} WHERE {}t.sensor = w.sensor"
    conditions = "STAMP(w) > NOW() - INTERVAL '1' HOUR AND STAMP(t) > NOW() - INTERVAL '1' MINUTE AND "
    windows = text.format(" WINDOW(RANGE 1 MINUTE)", " WINDOW(RANGE 1 HOUR)", "")
    assert plan(text.format("", "", conditions)) == plan(windows)


def test_a_subquery_has_a_window_too() -> None:
    text = "SELECT lane FROM traffic AS t WHERE EXISTS (SELECT * FROM weather AS w{} WHERE {}w.sensor = t.sensor)"
    condition = "STAMP() > NOW() - INTERVAL '1' HOUR AND "
    assert plan(text.format("", condition)) == plan(text.format(" WINDOW(RANGE 1 HOUR)", ""))


def test_all_samples_are_demanded_as_for_the_window() -> None:
    texts = ("{} WHERE STAMP() > NOW() - INTERVAL '1' HOUR AND lane = 1", "{} WINDOW(RANGE 1 HOUR) WHERE lane = 1")
    one, other = (
        demands_of("q", rewrite(translate(each.format("SELECT speed FROM traffic"), CATALOG).node).node)
        for each in texts
    )
    assert one == other


def test_a_tuple_counts_while_the_condition_holds() -> None:
    stream = ScriptedSource({"x": int}, [(10, {"x": 1}), (13, {"x": 2}), (40, {"x": 3}), EOF()])
    found = answers("SELECT x FROM s WHERE STAMP() + INTERVAL '5' US > NOW()", {"s": stream})
    rows = [(each.start, each.end, each.row["x"]) for each in found]
    for now in range(60):
        valid = sorted(x for start, end, x in rows if start <= now and (end is None or now < end))
        assert valid == [x for stamp, x in ((10, 1), (13, 2), (40, 3)) if stamp <= now and stamp + 5 > now]

"""The last steps of queries are made once for all buckets of a process, and kept as long as one of these has them."""

from __future__ import annotations

import gc

from cluster.fjord import answers
from cluster.fjord.answers import Answers
from cluster.physical.lowering import lower
from cluster.physical.nodes import Fragment
from cluster.plan.epoch import Plan, PlannedQuery
from tests.cluster.spark.hosted_run import plan_node

WINDOW = "WINDOW(RANGE {} SECONDS SLIDE 10 SECONDS) GROUP BY sensor"
TEXTS = (
    f"SELECT sensor, COUNT(*) AS n FROM traffic {WINDOW.format(20)}",
    f"SELECT sensor, MAX(speed) AS n FROM traffic {WINDOW.format(20)}",
    f"SELECT sensor, MAX(speed) AS n FROM traffic {WINDOW.format(30)}",
)


def fragment(*texts: str) -> Fragment:
    queries = tuple(PlannedQuery(f"q{number}", number, plan_node(text)) for number, text in enumerate(texts, 1))
    (only,) = lower(Plan(1, queries)).fragments
    return only


def test_buckets_have_the_same_last_steps_while_they_have_the_same_subscribers() -> None:
    one, other = fragment(*TEXTS), fragment(*TEXTS[:2])
    of_buckets = [Answers(one) for _ in range(3)]
    assert len({id(each._tops) for each in of_buckets}) == 1
    assert Answers(one, keyed=True)._tops is not of_buckets[0]._tops
    assert Answers(other)._tops is not of_buckets[0]._tops


def test_what_no_bucket_has_any_more_is_not_kept() -> None:
    gc.collect()
    before = len(answers._made)
    made = Answers(fragment(*TEXTS))
    assert len(answers._made) == before + 1
    del made
    gc.collect()
    assert len(answers._made) == before


def test_rows_are_selected_only_for_those_who_see_some_of_them() -> None:
    alike, different = Answers(fragment(*TEXTS[:2])), Answers(fragment(*TEXTS))
    assert [top._own is None for top in alike._tops.tops] == [True, True]
    assert [top._own is None for top in different._tops.tops] == [False, True], "COUNT has one window, MAX has both"

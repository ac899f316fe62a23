"""The definitions of a deployment's queries, on rows few enough to see what is right."""

import pytest

from tests.simulation.cluster_oracles import SECOND_US, Result
from tests.simulation.deployed_answers import DEFINITIONS, NEVER_US, answered, expected, given_out_until
from tests.simulation.schedules import COMPLETENESS_SQL, MORE_SQL, SAMPLES_SQL

MEANS, FASTEST, EVERY = MORE_SQL[1], MORE_SQL[2], MORE_SQL[4]


def sample(seconds, speed, flow=None, *, is_default=True):
    return {
        "fjord_start_us": int(seconds * SECOND_US), "fjord_default_rate": is_default, "sensor": "s", "segment": 1,
        "lane": 1, "speed": speed, "flow": flow,
    }  # fmt: skip


def counts(seconds, due, missing, samples=0):
    row = sample(seconds, None) | {"fjord_form": "f", "fjord_samples": samples}
    return row | {"fjord_start_us": seconds * SECOND_US - 1, "fjord_expected": due, "fjord_missing": missing}


def answers(sql, *rows):
    found = expected(DEFINITIONS[sql], rows)
    return [(start_us / SECOND_US, end_us / SECOND_US, row) for start_us, end_us, row in found]


def test_every_query_that_is_drawn_has_a_definition():
    assert DEFINITIONS.keys() == {SAMPLES_SQL, COMPLETENESS_SQL, *MORE_SQL}


def test_samples_are_those_of_the_default_rate():
    found = answers(SAMPLES_SQL, sample(1, 50.0), sample(2, 51.0, is_default=False), counts(20, 1, 1))
    assert found == [(1, 1.000001, '{"segment":1,"sensor":"s","speed":50.0}')]


def test_samples_of_a_period_are_those_at_its_multiples():
    assert [start for start, *_ in answers(EVERY, *(sample(each, 50.0) for each in range(3, 9)))] == [4, 8]


def test_means_change_with_each_sample_that_comes_or_leaves():
    """
    stamps    0    4          12    16
    mean      |10  |15         |20   |
    """  # fmt: skip
    assert answers(MEANS, sample(0, 10.0), sample(4, 20.0)) == [
        (start, end, f'{{"mean":{mean},"segment":1,"sensor":"s"}}')
        for start, end, mean in [(0, 4, 10.0), (4, 12, 15.0), (12, 16, 20.0)]
    ]


def test_a_sample_counts_in_two_windows_of_which_each_has_half():
    found = answers(FASTEST, sample(1, 10.0), sample(9, None))
    assert [(round(start), round(end), row) for start, end, row in found] == [
        (8, 16, '{"fastest":10.0,"segment":1}'),
        (16, 24, '{"fastest":10.0,"segment":1}'),
        (24, 32, '{"fastest":null,"segment":1}'),
    ]


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([sample(1, 1.0), counts(20, 4, 3)], ['{"cars":1,"seen":0.25,"sensor":"s"}']),
        ([counts(20, 4, 2, samples=2)], ['{"cars":2,"seen":0.5,"sensor":"s"}']),
        ([sample(1, 1.0)], ['{"cars":1,"seen":null,"sensor":"s"}']),
        ([counts(20, 4, 4)], []),
    ],
)
def test_completeness_is_the_share_of_due_samples_that_were_seen(rows, seen):
    assert [row for *_, row in answers(COMPLETENESS_SQL, *rows)] == seen


def test_an_open_answer_is_valid_until_it_is_closed():
    results = [
        Result(1, 5, None, "{}"),
        Result(2, 6, 7, "[]"),
        Result(3, None, 9, "closes 1"),
        Result(4, 9, None, "{}"),
    ]
    assert list(answered(results)) == [(5, 9, "{}"), (6, 7, "[]"), (9, NEVER_US, "{}")]


@pytest.mark.parametrize(
    ("watermark_us", "handover", "until_us"),
    [
        (30, None, 30),
        (30, (24, 30), 30),  # it was over
        (29, (24, 30), 16),  # what ends at the handover waits, too
        (29, (25, 30), 24),
        (12, (40, 50), 12),
    ],
)
def test_a_query_that_is_dropped_while_it_hands_over_takes_along_what_waits(watermark_us, handover, until_us):
    rows = [(start, start + 8, "{}") for start in (0, 8, 16, 24)]
    assert given_out_until(rows, watermark_us, handover) == until_us

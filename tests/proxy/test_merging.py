from __future__ import annotations

from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.demands import QueryDemand
from protocols.programs import SLEEP
from protocols.streams import Field, FieldType, StreamSchema
from proxy.merging import SensorLimits, merge_demands

SECOND = 1_000_000
SCHEMA = StreamSchema(
    "traffic",
    (
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL),
        Field("flow", FieldType.INTEGER),
    ),
)
LIMITS = SensorLimits(default_period_us=10 * SECOND, minimum_period_us=2 * SECOND)


def q(name, fields="", period=None):
    return QueryDemand(name, tuple(fields.split()), period and period * SECOND)


@pytest.mark.parametrize(
    ("demands", "fields", "period"),
    [
        ([], (), 0),
        ([q("a", "speed")], ("speed",), 10),
        ([q("a", "speed", 5)], ("speed",), 5),
        ([q("a", "speed", 30)], ("speed",), 30),
        ([q("a", "speed", 30), q("b", "flow")], ("speed", "flow"), 10),
        ([q("a", "flow", 30), q("b", "speed", 3), q("c", "speed", 60)], ("speed", "flow"), 3),
        ([q("a", "flow", 4), q("b", "speed", 6)], ("speed", "flow"), 2),
        ([q("a", "flow", 25), q("b", "speed")], ("speed", "flow"), 5),
        ([q("too slow for both", "flow", 5), q("b", "speed", 3)], ("speed", "flow"), 3),
        ([q("too fast", "speed", 1)], ("speed",), 2),
        ([q("only instants")], ("speed",), 10),
        ([q("fixed only", "segment", 4)], ("speed",), 4),
        ([q("fixed too", "flow segment", 4)], ("flow",), 4),
        ([q("wrong", "colour", 2), q("b", "flow", 7)], ("flow",), 7),
        ([q("wrong", "speed colour", 3)], (), 0),
    ],
)
def test_program(demands, fields, period):
    merged, _ = merge_demands(demands, SCHEMA, LIMITS)
    assert merged.program.fields == fields
    assert merged.program.period_us == period * SECOND


def test_unknown_fields_are_refused_by_name():
    _, refused = merge_demands([q("a", "speed colour"), q("b", "flow")], SCHEMA, LIMITS)
    assert [(each.query, "'colour'" in each.reason) for each in refused] == [("a", True)]


@pytest.mark.parametrize(
    ("demands", "words"),
    [
        ([], "nobody asks: sleep"),
        ([q("a", "speed", 5)], "speed every 5s (asked by query 'a') for 1 query"),
        ([q("a", "speed", 1)], "its fastest; 1s asked by query 'a'"),
        ([q("a", "speed")], "the sensor's default"),
        ([q("a", "speed", 4), q("b", "speed", 6)], "speed every 2s (the longest with all samples of 4s, 6s)"),
        ([q("a", "speed", 5), q("b", "speed", 3)], "too slow for the longest with all samples of 3s, 5s"),
    ],
)
def test_reason_says_why(demands, words):
    assert words in merge_demands(demands, SCHEMA, LIMITS)[0].reason


queries = st.lists(
    st.builds(
        QueryDemand,
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.sampled_from(["speed", "flow", "segment"]), unique=True).map(tuple),
        st.none() | st.integers(1, 100 * SECOND),
    ),
    max_size=8,
)


@given(queries)
def test_every_query_gets_its_fields_and_at_least_its_rate(demands):
    program = merge_demands(demands, SCHEMA, LIMITS)[0].program
    for each in demands:
        assert set(each.fields) - {"segment"} <= set(program.fields)
        wanted = LIMITS.default_period_us if each.period_us is None else each.period_us
        assert program.period_us <= max(wanted, LIMITS.minimum_period_us)
    if program.period_us > LIMITS.minimum_period_us:
        shared = gcd(*(LIMITS.default_period_us if each.period_us is None else each.period_us for each in demands))
        assert shared < LIMITS.minimum_period_us or program.period_us == shared, "every query gets exactly its samples"
    assert (program == SLEEP) == (not demands)


@given(queries, st.randoms())
def test_order_does_not_matter(demands, random):
    shuffled = demands[:]
    random.shuffle(shuffled)
    assert merge_demands(demands, SCHEMA, LIMITS)[0].program == merge_demands(shuffled, SCHEMA, LIMITS)[0].program

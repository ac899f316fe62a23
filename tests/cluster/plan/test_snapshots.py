"""The evaluator that rewriting is checked with gives what the digest's vectors say (papers/pipes_algebra.md 9.1)."""

from __future__ import annotations

import pytest

from cluster.operators import (
    CountWindow,
    Difference,
    Distinct,
    Granularity,
    Intersection,
    Istream,
    PartitionedWindow,
    SemiJoin,
    Source,
    TimeWindow,
    Union,
)
from cluster.operators.columns import Column
from protocols.wire.streams import FieldType
from tests.cluster.plan.plans import call, condition, grouped, pick, where
from tests.cluster.plan.snapshots import Streams, evaluate

# a, b, c are 1, 2, 3.
LETTERS = {"a": 1, "b": 2, "c": 3}
NAMES = {number: letter for letter, number in LETTERS.items()}


def _stream(written: str) -> list[tuple[int, tuple[int, ...]]]:
    pairs = (part.split(":") for part in written.split())
    return [(int(stamp), (LETTERS[letter],)) for stamp, bag in pairs for letter in bag]


STREAMS: Streams = {
    "one": _stream("1:c 2:aaa 3:aaab 4:aaabc 5:bb 6:bb"),
    "two": _stream("2:bb 3:bb 4:abc 5:aab 6:acc"),
    "three": _stream("1:c 2:a 3:b 4:b 5:a 6:c"),
}
ONE, TWO, THREE = (Source(name, (Column("x", FieldType.INTEGER),)) for name in STREAMS)
IS_B = pick(THREE, x='"x"', b='"x" % 2')
"""With the groups {a, c} and {b} as column b."""


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (where(ONE, '"x" = 1 OR "x" = 3'), "1:c 2:aaa 3:aaa 4:aaac"),
        (Union(ONE, TWO), "1:c 2:aaabb 3:aaabbb 4:aaaabbcc 5:aabbb 6:abbcc"),
        (Distinct(ONE), "1:c 2:a 3:ab 4:abc 5:b 6:b"),
        (Difference(ONE, TWO), "1:c 2:aaa 3:aaa 4:aa 5:b 6:bb"),
        (Difference(TWO, ONE), "2:bb 3:b 5:aa 6:acc"),
        (Intersection(ONE, TWO), "3:b 4:abc 5:b"),
        (SemiJoin(ONE, pick(TWO, y='"x"'), condition('"x" = "y"')), "3:b 4:aaabc 5:bb"),
        (TimeWindow(ONE, 2), "1:c 2:aaac 3:aaaaaab 4:aaaaaabbc 5:aaabbbc 6:bbbb 7:bb"),
        (TimeWindow(ONE, 3, 2), "1:c 2:c 3:aaaaaabc 4:aaaaaabc 5:aaaaaabbbbc 6:aaaaaabbbbc 7:bbbb 8:bbbb"),
        (CountWindow(THREE, 3), "1:c 2:ac 3:abc 4:abb 5:abb 6:abc 7:abc 8:abc 9:abc"),
        (pick(PartitionedWindow(IS_B, ("b",), 1), x='"x"'), "1:c 2:a 3:ab 4:ab 5:ab 6:bc 7:bc 8:bc 9:bc"),
        (pick(PartitionedWindow(IS_B, ("b",), 2), x='"x"'), "1:c 2:ac 3:abc 4:abbc 5:aabb 6:abbc 7:abbc 8:abbc 9:abbc"),
        (Granularity(ONE, 2), "2:aaa 4:aaabc 6:bb"),
        (Istream(ONE), "1:c 2:aaa 3:b 4:c 5:b"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_snapshots_are_those_of_the_paper(plan, expected):
    found = [
        f"{t}:{''.join(sorted(NAMES[row[0]] for row in bag.elements()))}"
        for t, bag in enumerate(evaluate(plan, STREAMS, 10))
        if bag
    ]
    assert " ".join(found) == expected


def test_a_count_has_no_row_where_nothing_is_valid():
    counts = [list(bag) for bag in evaluate(grouped(ONE, "", call("count")), STREAMS, 8)]
    assert counts == [[], [(1,)], [(3,)], [(4,)], [(5,)], [(2,)], [(2,)], []]


def test_scalars_have_three_values():
    rows: Streams = {"one": [(0, (None,))]}
    assert evaluate(where(ONE, 'NOT ("x" = 1)'), rows, 1)[0].total() == 0
    assert evaluate(where(ONE, '"x" = 1 OR TRUE'), rows, 1)[0].total() == 1

"""papers/pipes_algebra.md section 9.1: logical streams, by the oracle's definitions and through the operators."""

from __future__ import annotations

from collections import Counter

import pytest

from cluster.fjord.acceptance import check_supported
from cluster.operators import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    Node,
    PartitionedWindow,
    Project,
    SemiJoin,
    Source,
    TimeWindow,
    Union,
)
from cluster.operators.columns import AggregateCall, Column, Output
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.oracle.comparison import snapshots_of
from tests.cluster.oracle.definition import Bag, Streams, evaluate
from tests.cluster.oracle.running import all_at_once, one_by_one, run_plan
from tests.cluster.papers.notation import logical

INSTANTS = 14
STREAMS = {
    "s1": "1:c 2:aaa 3:aaab 4:aaabc 5:bb 6:bb",
    "s2": "2:bb 3:bb 4:abc 5:aab 6:acc",
    "s3": "1:c 2:a 3:b 4:b 5:a 6:c",
}
S1, S2, S3 = (Source(name, (Column("e", FieldType.TEXT),)) for name in STREAMS)
OTHER = Project(S2, (Output("f", read_scalar('"e"', FieldType.TEXT)),))
EQUAL = read_scalar('"e" = "f"', FieldType.BOOLEAN)


def where(node: Node, sql: str) -> Node:
    return Filter(node, read_scalar(sql, FieldType.BOOLEAN))


def mapped(node: Node, sql: str, kind: FieldType = FieldType.TEXT, name: str = "e") -> Node:
    return Project(node, (Output(name, read_scalar(sql, kind)),))


GROUPED = Project(
    S3,
    (
        Output("e", read_scalar('"e"', FieldType.TEXT)),
        Output("g", read_scalar("""CASE WHEN "e" = 'b' THEN 'b' ELSE 'ac' END""", FieldType.TEXT)),
    ),
)
# Letters that add up: a = 1, b = 10, c = 100.
NUMBERS = mapped(S1, """CASE "e" WHEN 'a' THEN 1 WHEN 'b' THEN 10 ELSE 100 END""", FieldType.INTEGER, "n")
COUNT = AggregateCall("n", "count", None, FieldType.INTEGER)
SUM = AggregateCall("s", "sum", read_scalar('"n"', FieldType.INTEGER), FieldType.INTEGER)

LETTERS: dict[str, tuple[Node, str]] = {
    "filter a, c": (where(S1, "\"e\" IN ('a', 'c')"), "1:c 2:aaa 3:aaa 4:aaac"),
    "map b to x": (
        mapped(S1, """CASE WHEN "e" = 'b' THEN 'x' ELSE "e" END"""),
        "1:c 2:aaa 3:aaax 4:aaacx 5:xx 6:xx",
    ),
    "S1 union S2": (Union(S1, S2), "1:c 2:aaabb 3:aaabbb 4:aaaabbcc 5:aabbb 6:abbcc"),
    "distinct": (Distinct(S1), "1:c 2:a 3:ab 4:abc 5:b 6:b"),
    "S1 - S2": (Difference(S1, S2), "1:c 2:aaa 3:aaa 4:aa 5:b 6:bb"),
    "S2 - S1": (Difference(S2, S1), "2:bb 3:b 5:aa 6:acc"),
    "intersection": (Intersection(S1, S2), "3:b 4:abc 5:b"),
    "intersection, as S1 - (S1 - S2)": (Difference(S1, Difference(S1, S2)), "3:b 4:abc 5:b"),
    "max-union": (
        Union(Union(Difference(S1, S2), Difference(S2, S1)), Intersection(S1, S2)),
        "1:c 2:aaabb 3:aaabb 4:aaabc 5:aabb 6:abbcc",
    ),
    "semi-join =": (SemiJoin(S1, OTHER, EQUAL), "3:b 4:aaabc 5:bb"),
    "anti-join =": (AntiJoin(S1, OTHER, EQUAL), "1:c 2:aaa 3:aaa 6:bb"),
    "group a": (where(S1, "\"e\" = 'a'"), "2:aaa 3:aaa 4:aaa"),
    "group b": (where(S1, "\"e\" = 'b'"), "3:b 4:b 5:bb 6:bb"),
    "group of the rest": (where(S1, "\"e\" NOT IN ('a', 'b')"), "1:c 4:c"),
    "window 2": (TimeWindow(S1, 2), "1:c 2:aaac 3:aaaaaab 4:aaaaaabbc 5:aaabbbc 6:bbbb 7:bb"),
    "window 3, advance 2": (
        TimeWindow(S1, 3, 2),
        "1:c 2:c 3:aaaaaabc 4:aaaaaabc 5:aaaaaabbbbc 6:aaaaaabbbbc 7:bbbb 8:bbbb",
    ),
    "window 1 is the identity": (TimeWindow(S1, 1), STREAMS["s1"]),
    "count window 3": (
        CountWindow(S3, 3),
        "1:c 2:ac 3:abc 4:abb 5:abb 6:abc 7:abc 8:abc 9:abc 10:abc 11:abc 12:abc 13:abc",
    ),
    "partitioned window 1": (
        mapped(PartitionedWindow(GROUPED, ("g",), 1), '"e"'),
        "1:c 2:a 3:ab 4:ab 5:ab 6:bc 7:bc 8:bc 9:bc 10:bc 11:bc 12:bc 13:bc",
    ),
    "partitioned window 2": (
        mapped(PartitionedWindow(GROUPED, ("g",), 2), '"e"'),
        "1:c 2:ac 3:abc 4:abbc 5:aabb 6:abbc 7:abbc 8:abbc 9:abbc 10:abbc 11:abbc 12:abbc 13:abbc",
    ),
    "granularity 2": (Granularity(S1, 2), "2:aaa 4:aaabc 6:bb"),
    "Istream": (Istream(S1), "1:c 2:aaa 3:b 4:c 5:b"),
}


def streams() -> Streams:
    return {
        name: [(at, (letter,)) for at, letters in logical(text).items() for letter in sorted(letters.elements())]
        for name, text in STREAMS.items()
    }


def check(node: Node, expected: list[Bag]) -> None:
    """By definition, and through the operators however the stream is cut."""
    meaning = evaluate(node, [streams()], INSTANTS)
    promised = range(0, INSTANTS, meaning.granule)
    assert not meaning.ambiguous
    assert [meaning.snapshots[0][at] for at in promised] == [expected[at] for at in promised]
    check_supported(node)
    for batches in (all_at_once(streams()), one_by_one(streams())):
        found = snapshots_of(run_plan(node, batches), INSTANTS)
        assert [found[at] for at in promised] == [expected[at] for at in promised]


@pytest.mark.parametrize(("node", "text"), LETTERS.values(), ids=[f"9.1 {name}" for name in LETTERS])
def test_9_1_letters(node: Node, text: str) -> None:
    letters = logical(text)
    check(
        node,
        [Counter({(letter,): n for letter, n in letters.get(at, Counter()).items()}) for at in range(INSTANTS)],
    )


@pytest.mark.parametrize(
    ("call", "values"),
    [
        pytest.param(COUNT, {1: 1, 2: 3, 3: 4, 4: 5, 5: 2, 6: 2}, id="9.1 COUNT"),
        pytest.param(SUM, {1: 100, 2: 3, 3: 13, 4: 113, 5: 20, 6: 20}, id="9.1 SUM"),
    ],
)
def test_9_1_aggregates(call: AggregateCall, values: dict[int, int]) -> None:
    expected = [Counter({(values[at],): 1}) if at in values else Counter() for at in range(INSTANTS)]
    check(Aggregate(NUMBERS, (), (call,)), expected)


def test_9_1_product_sizes_and_pairs() -> None:
    pairs = {2: "ab:6", 3: "ab:6 bb:2", 5: "ba:4 bb:2", 6: "ba:2 bc:4"}
    expected: list[Bag] = [Counter() for _ in range(INSTANTS)]
    for at, text in pairs.items():
        expected[at] = Counter({tuple(pair): int(n) for pair, n in (word.split(":") for word in text.split())})
    expected[4] = Counter({(one, other): n for one, n in (("a", 3), ("b", 1), ("c", 1)) for other in "abc"})
    assert sum(expected[4].values()) == 15
    check(Join(S1, OTHER, None), expected)

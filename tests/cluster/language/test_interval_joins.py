"""Conditions that bound both stamps are a join WITHIN a time, however they are written; other conditions are not."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

from cluster.language.catalog import BaseStream, Catalog
from cluster.language.translation import translate, translate_derived
from cluster.operators import Join, Node, StampJoin
from cluster.plan.rewrite import rewrite
from cluster.testing import EOF, QueryRun, ScriptedSource
from protocols.wire.streams import Field, FieldType, StreamSchema

COLUMNS = (Field("k", FieldType.INTEGER), Field("v", FieldType.INTEGER))
CATALOG = Catalog.of([BaseStream(StreamSchema(name, COLUMNS), "ts") for name in "abc"])
SIDES = ("", "INNER ", "LEFT ", "RIGHT OUTER ", "FULL ")


def meaning(node: Node) -> tuple[Any, ...]:
    """Return what the one join by stamps of a plan, as it is run, is: its inputs may have stamps that nothing reads."""
    (join,) = [each for each in nodes(rewrite(node).node) if isinstance(each, StampJoin)]
    return join.low_us, join.high_us, join.kind, join.keys, join.predicate


def parts(dice: random.Random, low: int, high: int) -> list[str]:
    """Return conditions that say that b's stamp minus a's is from `low` to `high` microseconds."""

    def stamp(name: str, plus: int = 0) -> str:
        written = dice.choice((f"{name}.ts", f"STAMP({name})", f"({name}.TS)"))
        if not plus and dice.random() < 0.7:
            return written
        size = f"INTERVAL '{abs(plus)}' MICROSECOND"
        return f"{written} {'+' if plus >= 0 else '-'} {size}"

    def at_least(less: int) -> str:  # b - a >= less
        strict = dice.random() < 0.3
        less -= strict
        match dice.randrange(4):
            case 0:
                return f"{stamp('b')} {'>' if strict else '>='} {stamp('a', less)}"
            case 1:
                return f"{stamp('a', less)} {'<' if strict else '<='} {stamp('b')}"
            case 2:
                return f"{stamp('b', -less)} {'>' if strict else '>='} {stamp('a')}"
            case _:
                return f"STAMP(b) - a.ts {'>' if strict else '>='} -INTERVAL '{-less}' MICROSECOND"

    def at_most(more: int) -> str:  # b - a <= more, as a - b >= -more
        swapped = at_least(-more).replace("a.ts", "#").replace("b.ts", "a.ts").replace("#", "b.ts")
        swapped = swapped.replace("a.TS", "#").replace("b.TS", "a.TS").replace("#", "b.TS")
        return swapped.replace("STAMP(a)", "#").replace("STAMP(b)", "STAMP(a)").replace("#", "STAMP(b)")

    if dice.random() < 0.4:
        return [dice.choice((
            f"{stamp('b')} BETWEEN {stamp('a', low)} AND {stamp('a', high)}",
            f"{stamp('a')} BETWEEN {stamp('b', -high)} AND {stamp('b', -low)}",
        ))]  # fmt: skip
    return [at_least(low), at_most(high)]


@pytest.mark.parametrize("seed", range(120))
def test_a_spelling_is_the_join_that_it_means(seed: int) -> None:
    dice = random.Random(seed)
    low, high = sorted(dice.sample(range(-5, 6), 2))
    bounds = parts(dice, low, high)
    others = dice.sample(["a.k = b.k", "a.v < b.v", "b.v > 1"], dice.randrange(4))
    on = [*others]
    for each in bounds:
        on.insert(dice.randrange(len(on) + 1), each)
    side = dice.choice(SIDES)
    meant = f"WITHIN {low} US TO {high} US ON {' AND '.join(others) or 'TRUE'}"
    expected = meaning(translate(f"SELECT a.k, b.v FROM a {side}JOIN b {meant}", CATALOG).node)
    found = translate(f"SELECT a.k, b.v FROM a {side}JOIN b ON {' AND '.join(on)}", CATALOG)
    assert not found.warnings
    assert meaning(found.node)[: None if others else 4] == expected[: None if others else 4]
    (join,) = [each for each in nodes(found.node) if isinstance(each, StampJoin)]
    assert {(join.low_us, join.high_us), (-join.high_us, -join.low_us)} >= {(low, high)}
    again = translate(found.text, CATALOG, registered=True)
    assert [each.kind for each in nodes(again.node) if isinstance(each, StampJoin)] == [join.kind]


def nodes(node: Node) -> list[Node]:
    """Return a plan's nodes."""
    return [node, *(each for below in node.inputs for each in nodes(below))]


def test_the_condition_may_stand_in_where_as_in_flink() -> None:
    meant = meaning(translate("SELECT a.v FROM a JOIN b WITHIN 0 US TO 4 US ON a.k = b.k WHERE a.v > 3", CATALOG).node)
    between = "a.ts BETWEEN b.ts - INTERVAL '4' MICROSECOND AND b.ts"
    for text in (
        f"a, b WHERE a.k = b.k AND {between} AND a.v > 3",
        f"a JOIN b ON a.k = b.k WHERE a.v > 3 AND {between}",
    ):
        found = translate(f"SELECT a.v FROM {text}", CATALOG)
        assert meaning(found.node) == meant
        again = rewrite(translate(found.text, CATALOG, registered=True).node).node
        (join,) = [each for each in nodes(again) if isinstance(each, StampJoin)]
        assert (join.low_us, join.high_us, join.keys) == (0, 4, (("k", "k_2"),))


@pytest.mark.parametrize(
    "text",
    [
        "a JOIN b ON a.k = b.k AND a.ts >= b.ts",  # without an upper bound all tuples would be kept
        "a JOIN b ON a.k = b.k AND a.ts = b.ts",
        "a JOIN b ON a.ts BETWEEN SYMMETRIC b.ts AND b.ts + INTERVAL '1' SECOND",
        "a JOIN b ON a.ts > b.ts AND a.ts < b.ts",
        "a JOIN b WINDOW(RANGE 5 SECONDS) ON a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' SECOND",
        "a JOIN b ON a.k = b.k OR a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' SECOND",
        "a JOIN b ON a.k = b.k JOIN c ON b.ts BETWEEN c.ts AND c.ts + INTERVAL '1' SECOND",
        "a JOIN b ON a.k = b.k AND a.ts BETWEEN TIMESTAMP '2020-01-01' AND TIMESTAMP '2020-01-02'",
        "a CROSS JOIN b WHERE a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' SECOND",
    ],
)
def test_other_conditions_are_about_tuples_of_one_snapshot(text: str) -> None:
    found = translate(f"SELECT a.v FROM {text}", CATALOG)
    assert not any(isinstance(each, StampJoin) for each in nodes(found.node))
    assert found.text == f"SELECT a.v FROM {text}"


def test_a_text_that_was_kept_before_means_what_it_did() -> None:
    text = "SELECT a.v FROM a JOIN b ON a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' SECOND"
    assert any(isinstance(each, Join) for each in nodes(translate(text, CATALOG, registered=True).node))
    derived = translate_derived(f"CREATE STREAM d AS {text};", CATALOG)
    assert derived.text == (
        "CREATE STREAM d AS SELECT a.v FROM a JOIN b WITHIN -1000000 US TO 0 US ON "
        "a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' SECOND;"
    )
    kept = translate_derived(derived.text, CATALOG, registered=True)
    assert any(isinstance(each, StampJoin) for each in nodes(kept.node))


@pytest.mark.parametrize("seed", range(6))
def test_a_spelling_answers_what_it_says(seed: int) -> None:
    dice = random.Random(seed)
    rows = {
        name: [(dice.randrange(20), dice.choice((1, 2, None)), dice.randrange(4)) for _ in range(12)] for name in "ab"
    }
    database = duckdb.connect()
    for name, tuples in rows.items():
        database.execute(f"CREATE TABLE {name} (ts BIGINT, k BIGINT, v BIGINT)")
        database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", tuples)
    low, high = sorted(dice.sample(range(-5, 6), 2))
    ends = (f"STAMP(a) + INTERVAL '{each}' MICROSECOND" for each in (low, high))
    joined = f"FROM a {SIDES[seed % len(SIDES)]}JOIN b ON a.k = b.k AND"
    # A pair is valid at its later tuple; one without a partner when the last could have come.
    instant = (
        f"CASE WHEN b.ts IS NULL THEN greatest(a.ts, a.ts + {high}) "
        f"WHEN a.ts IS NULL THEN greatest(b.ts, b.ts - {low}) ELSE greatest(a.ts, b.ts) END"
    )
    meant = database.execute(
        f"SELECT {instant}, a.k, a.v, b.k, b.v {joined} b.ts - a.ts BETWEEN {low} AND {high}"
    ).fetchall()
    scripts = {
        name: ScriptedSource(
            {"k": int, "v": int},
            [*((at, {"k": k, "v": v}) for at, k, v in tuples), EOF()],
            lateness="100us",
            batch_size=4,
        )
        for name, tuples in rows.items()
    }
    text = f"SELECT a.k, a.v, b.k AS bk, b.v AS bv {joined} STAMP(b) BETWEEN {' AND '.join(ends)}"
    found = [(each.start, *each.row.values()) for each in QueryRun(text, scripts).run()]
    assert Counter[tuple[Any, ...]](found) == Counter(meant)
    assert meant


@pytest.mark.parametrize(
    "from_",
    [
        "a JOIN b ON a.k = b.k AND a.ts > b.ts",
        "a JOIN b ON a.k = b.k WHERE STAMP(a) > STAMP(b)",
        "a JOIN b USING (k) WHERE b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts",
        "a CROSS JOIN b WHERE b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts",
        "a, b, c WHERE a.k = b.k AND b.k = c.k AND c.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts",
    ],
)
def test_conditions_on_stamps_that_are_not_read_as_an_interval_get_a_warning(from_: str) -> None:
    warnings = translate(f"SELECT a.v FROM {from_}", CATALOG).warnings
    assert any("joined at equal stamps only" in each and "WITHIN" in each for each in warnings)


@pytest.mark.parametrize(
    "from_",
    [
        "a, b WHERE a.k = b.k AND a.ts = b.ts",
        "a WINDOW(RANGE 5 SECONDS), b WHERE a.k = b.k AND a.ts > b.ts",
        "a JOIN b ON a.k = b.k WHERE a.ts > NOW() - INTERVAL '5' SECOND",
    ],
)
def test_other_conditions_on_stamps_get_none(from_: str) -> None:
    assert not any("equal stamps" in each for each in translate(f"SELECT a.v FROM {from_}", CATALOG).warnings)

"""The streams and relations that random texts are about, and what random tuples they bring.

`alpha`, `Beta` and `Order` have small values that meet often; `wild` has the largest and oddest there are. Events are
given to the harness as a proxy would: by stream and detector.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.language.catalog import BaseStream, Catalog, StaticRelation
from cluster.operators.columns import Column
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.functions.declared import FUNCTIONS
from tests.cluster.published_tuples import with_publishers

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT

Row = tuple[Any, ...]
Stamped = tuple[int, Row]

LAST = 20
"""No stamp is above this."""

SCHEMAS: dict[str, StreamSchema] = {
    each.name: each
    for each in (
        StreamSchema(
            "alpha",
            (
                Field("place", TEXT, fixed=True), Field("k", INTEGER), Field("v", REAL, "mph"), Field("ok", BOOLEAN),
                Field("note", TEXT),
            ),
        ),
        StreamSchema(
            "Beta",
            (
                Field("place", TEXT, fixed=True), Field("k", INTEGER), Field("_w", REAL, "km/h"),
                Field("count", INTEGER),
            ),
        ),
        StreamSchema("Order", (Field("from", INTEGER), Field("Case", TEXT), Field("select", BOOLEAN))),
        StreamSchema(
            "wild",
            (
                Field("n", INTEGER), Field("m", INTEGER), Field("x", REAL), Field("y", REAL), Field("u", TEXT),
                Field("b", BOOLEAN),
            ),
        ),
        StreamSchema(
            "road", (Field("place", TEXT, fixed=True), Field("side", INTEGER, fixed=True), Field("höhe", REAL))
        ),
    )
}  # fmt: skip
STAMPED_BY = {"alpha": "ts"}
"""The column of CREATE STREAM's ORDERED BY, which no text may name."""

PLACES = StaticRelation(
    "places",
    "places@1",
    (Column("place", TEXT), Column("segment", INTEGER), Column("km", REAL, "km"), Column("closed", BOOLEAN)),
)
CATALOG = Catalog.of(
    [*(BaseStream(schema, STAMPED_BY.get(name)) for name, schema in SCHEMAS.items()), PLACES]
).with_functions(FUNCTIONS)  # fmt: skip

DETECTORS: tuple[tuple[float, float], ...] = ((0.5, 0.25), (1.0, 1.0), (-0.5, -2.0))
"""Levels above which an event of `road` begins, and below which it ends."""

EVENT_SCHEMA = (Field("place", TEXT, fixed=True), Field("side", INTEGER, fixed=True), Field("passing_us", INTEGER))


def events_name(above: float, below: float) -> str:
    """Return under what name the harness has the events that a detector sees in `road`."""
    return f"road above {above:g} below {below:g}"


TABLES: dict[str, tuple[Field, ...]] = {
    **{name: schema.fields for name, schema in SCHEMAS.items()},
    **{events_name(*levels): EVENT_SCHEMA for levels in DETECTORS},
}
"""By name: the columns of what the harness reads."""

LARGEST = 2**63 - 1
TAME: dict[FieldType, tuple[Any, ...]] = {
    INTEGER: (0, 1, 2, 3, None),
    REAL: (0.0, -0.0, 0.5, None, 1.5, math.nan, -2.5, 2.0, math.inf),
    TEXT: ("x", "y", "xy", "", None, "X", "a_b"),
    BOOLEAN: (True, False, None),
}
WILD: dict[FieldType, tuple[Any, ...]] = {
    INTEGER: (
        0, 1, -1, 7, LARGEST, -LARGEST - 1, LARGEST - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**31, 2**32, 10, None,
        3_037_000_500,
    ),
    REAL: (
        0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 3.5, -2.5, 1e308, -1e308, 1e300, 1e-300, 5e-324, math.nan, math.inf,
        -math.inf, 9007199254740992.0, 9007199254740993.0, 9.223372036854776e18, -9.223372036854776e18, 0.1, 1e16,
        123456.789, 0.015625, 2.675, 1.005, -0.285, None, 700.0, 1e19,
    ),
    TEXT: (
        "", " ", "a", "A", "é", "e\u0301", "straße", "ß", "İ", "日本", "👩\u200d🚀", "it's", '"', "a%b", "a_b", "%",
        "_", "\\", "a\\b", "a\nb", "  pad ", "12", " 12 ", "-3.5", "2.5", "+7", "1e3", ".5", "5.", "true", "T", " yes",
        "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e400", "nan", "inf", "N", "false", "0",
        "-9223372036854775809", "9007199254740993.2", "9223372036854775807.5", "9007199254740992500e-3", "1.5", "0.5",
        "0.0", "-0", "1_0", "0x1F", "é" * 3, "\t", "zz", None, "a" * 40, "12abc", "1 2", "--", "/*", "{0}", "ö%",
    ),
    BOOLEAN: (True, False, None),
}  # fmt: skip
PLACE_NAMES = ("p", "q", "r", None)


@dataclass(frozen=True)
class World:
    """What the streams of one stream set bring, in the order of arrival, and the rows of the relation."""

    streams: Mapping[str, Sequence[Stamped]]
    places: tuple[Row, ...]


def random_world(dice: random.Random) -> World:
    """Return streams that are disordered, with duplicates, equal stamps and empty stretches; or without.

    Some have rows that devices published, alone or beside samples. Events are no such rows.
    """
    tied = dice.random() < 0.5
    streams = {name: _tuples(dice, name, fields, tied=tied) for name, fields in TABLES.items()}
    count = dice.choice((0, 1, 3, 5))
    kinds = [column.type for column in PLACES.columns[1:]]
    places = [(dice.choice(PLACE_NAMES), *(dice.choice(TAME[kind][:5]) for kind in kinds)) for _ in range(count)]
    return World(streams | with_publishers(dice, {name: streams[name] for name in SCHEMAS}), tuple(places))


def _tuples(dice: random.Random, name: str, fields: Sequence[Field], *, tied: bool) -> list[Stamped]:
    count = dice.choice((0, 1, 3, 6, 9, 12))
    gap = dice.choice((0, 0, 8))
    stamps = [dice.randint(0, LAST) for _ in range(count)]
    stamps = [stamp for stamp in stamps if not gap or not 6 <= stamp < 6 + gap]
    if not tied:
        stamps = list(dict.fromkeys(stamps))
    pools = [_pool(dice, name, field) for field in fields]
    rows = [(stamp, tuple(dice.choice(pool) for pool in pools)) for stamp in stamps]
    if tied and rows:
        rows += [dice.choice(rows) for _ in range(dice.choice((0, 0, 1, 3)))]
    late = dice.choice((0, 2, 6))
    arrival = [(stamp + late * dice.random(), dice.random(), (stamp, row)) for stamp, row in rows]
    return [stamped for _, _, stamped in sorted(arrival, key=lambda each: each[:2])]


def _pool(dice: random.Random, stream: str, field: Field) -> Sequence[Any]:
    if field.name == "place":
        return PLACE_NAMES[: dice.choice((1, 2, 4))]
    if field.name == "passing_us":
        return (1, 2, 5, 900)
    if stream != "wild":
        return TAME[field.type][: dice.choice((2, 3, 5, 9))]
    pool = WILD[field.type]
    return pool if dice.random() < 0.5 else dice.sample(pool, min(len(pool), dice.choice((2, 4, 8))))


def as_read(value: Any) -> Any:
    """Return what a value of a sample is in a query: no negative zero, and NULL for what is infinite or no number."""
    if not isinstance(value, float):
        return value
    return value + 0.0 if math.isfinite(value) else None

"""What every source has to do alike: one table, in each of their forms."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from cluster.language.comparisons import Comparison
from cluster.language.declarations import CreateRelation
from cluster.language.translation import parse_statement
from cluster.operators.columns import Column
from cluster.relations.allowed_files import AllowedFiles
from cluster.relations.allowed_hosts import AllowedHosts
from cluster.relations.opening import Reach, open_source
from cluster.relations.source import Limits
from protocols.wire.streams import FieldType

INCIDENTS = (
    Column("segment", FieldType.TEXT),
    Column("lane", FieldType.INTEGER),
    Column("cost", FieldType.REAL),
    Column("open", FieldType.BOOLEAN),
    Column("since", FieldType.INTEGER),
)
NOON_US = 1_330_603_200_000_000
"""2012-03-01 12:00 UTC."""
ROWS = [
    ("s1", 1, 12.5, True, NOON_US),
    ("s2", 2, None, False, NOON_US + 500_000),
    (None, None, 0.0, None, None),
    ("s1", 1, 12.5, True, NOON_US),
]
"""A NULL key, and a row that is there twice."""

CONDITIONS = [
    (Comparison("segment", "=", ("s1",)),),
    (Comparison("segment", "in", ("s2", "s3")),),
    (Comparison("segment", "is null"),),
    (Comparison("segment", ">", ("s1",)),),
    (Comparison("lane", ">=", (2,)),),
    (Comparison("lane", "in", (1, 5)), Comparison("cost", "<", (20.0,))),
    (Comparison("cost", "=", (12.5,)),),
    (Comparison("cost", "is not null"), Comparison("open", "=", (True,))),
    (Comparison("since", ">", (NOON_US,)),),
    (Comparison("since", "<=", (NOON_US,)), Comparison("lane", "<", (2.5,))),
    (Comparison("segment", "=", ("' OR 1=1 --",)),),
]


def meant(condition):
    """The rows of ROWS that satisfy a condition, by definition."""
    tests = {
        "=": lambda a, b: a == b[0], "<": lambda a, b: a < b[0], "<=": lambda a, b: a <= b[0],
        ">": lambda a, b: a > b[0], ">=": lambda a, b: a >= b[0], "in": lambda a, b: a in b,
        "is not null": lambda a, b: True,
    }  # fmt: skip
    names = [column.name for column in INCIDENTS]

    def holds(row):
        for each in condition:
            value = row[names.index(each.column)]
            if each.operator == "is null":
                if value is not None:
                    return False
            elif value is None or not tests[each.operator](value, each.values):
                return False
        return True

    return [row for row in ROWS if holds(row)]


def same(found, rows):
    """Whether a frame has just these rows, each as often, in any order."""
    return sorted(map(repr, found.rows())) == sorted(map(repr, rows))


def statement(source, *, ending="REFRESH EVERY 30 SECONDS", name="incidents", more=""):
    found = parse_statement(f"CREATE RELATION {name} FROM '{source}' {more} {ending}")
    assert isinstance(found, CreateRelation)
    return found


ALL_FILES = Reach(AllowedFiles([Path("/")]), AllowedHosts(["no-such-host.invalid"]))


def opened(source, *, limits=None, sensors=None, reach=ALL_FILES, **rest):
    limits = limits or Limits(read_seconds=20)
    return open_source(statement(source, **rest), limits=limits, reach=reach, sensors=sensors)


def frame():
    return pl.DataFrame(
        ROWS,
        schema={
            "segment": pl.String, "lane": pl.Int64, "cost": pl.Float64, "open": pl.Boolean, "since": pl.Datetime("us"),
        },
        orient="row",
    )  # fmt: skip

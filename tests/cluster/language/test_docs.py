"""Every example of docs/reference/sql.md, and of the pages that it lists, does what the page says."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from cluster.errors import PlanError
from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.declarations import CreateFunction, CreateRelation, DropRelation
from cluster.language.errors import FjordSqlError
from cluster.language.functions import AGGREGATE_NAMES, FUNCTION_NAMES
from cluster.language.parameters import bind
from cluster.language.quantities import DURATION_UNITS
from cluster.language.translation import (
    CreateDerivedStream,
    CreateStream,
    DropStream,
    parse_statement,
    translate,
    translate_derived,
)
from cluster.local.query_arguments import values_given
from cluster.operators.columns import Column
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import FieldType

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGES = re.findall(r"^\* \[[^]]+\]\((sql/[\w-]+\.md)\)", (REFERENCE / "sql.md").read_text("utf-8"), re.MULTILINE)
PAGE = "".join((REFERENCE / each).read_text("utf-8") for each in ("sql.md", *PAGES))
EXAMPLES = re.findall(r"^```(sql[a-z ]*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_every_page_is_listed():
    assert sorted(PAGES) == sorted(f"sql/{each.name}" for each in (REFERENCE / "sql").glob("*.md"))


def test_examples_are_run_in_the_order_of_the_pages():
    sensors = (Column("sensor", FieldType.TEXT), Column("battery", FieldType.REAL))
    catalog = Catalog.of([StaticRelation("sensors", "sensors@0", sensors)])
    seen = {"sql": 0, "sql refused": 0, "sql unsupported": 0, "sql template": 0}
    for kind, text in EXAMPLES:
        seen[kind] += 1
        if kind == "sql refused":
            with pytest.raises(FjordSqlError):
                translate(text, catalog)
            continue
        if kind == "sql template":
            with pytest.raises(FjordSqlError, match=r"the parameter :\w+ has no value"):
                translate(text, catalog)
            continue
        if kind == "sql unsupported":
            with pytest.raises(PlanError):
                check_supported(rewrite(translate(text, catalog).node).node)
            continue
        statement = parse_statement(text)
        match statement:
            case CreateStream():
                catalog = catalog.with_stream(statement.stream)
            case CreateDerivedStream():
                catalog = catalog.with_stream(translate_derived(text, catalog))
            case CreateRelation():
                statement.condition_on(statement.columns)
                catalog = catalog.with_stream(StaticRelation(statement.name, f"{statement.name}@1", statement.columns))
            case CreateFunction():
                made = replace(statement.function, identity=f"{statement.name}@1")
                catalog = catalog.with_functions([*catalog.functions.values(), made])
            case DropStream() | DropRelation():
                catalog = catalog.without(statement.name)
            case _:
                check_supported(rewrite(translate(text, catalog).node).node)
    assert seen == {"sql": 162, "sql refused": 23, "sql unsupported": 1, "sql template": 1}
    streams = {"traffic", "weather", "minute_load", "road", "loops", "gateways", "straße", "climate", "heating"}
    relations = {"incidents", "places", "crossings", "sensors"}
    assert set(catalog.names) == streams | relations


def test_the_template_with_the_values_of_the_command_is_the_query_behind_it():
    ((template, command, query),) = re.findall(
        r"^```sql template\n(.*?)^```\n\n```console\n\$ (.*?)\n```\n.*?^```sql\n(.*?)^```$",
        PAGE,
        flags=re.MULTILINE | re.DOTALL,
    )
    words = shlex.split(command)
    settings = [word for before, word in pairwise(words) if before == "--set"]
    assert bind(template, values_given(settings)).text == query


def test_the_error_shown_is_the_error_given():
    catalog = Catalog.of([parse_statement(EXAMPLES[0][1]).stream])
    with pytest.raises(FjordSqlError) as caught:
        translate("SELECT AVG(speeed) FROM traffic WINDOW(RANGE 1 HOUR)", catalog)
    assert f"```text\n{caught.value}\n{caught.value.underlined()}\n```" in PAGE


@pytest.mark.parametrize("name", [*FUNCTION_NAMES, *AGGREGATE_NAMES])
def test_every_function_is_on_the_page(name):
    assert f"`{name}" in PAGE


def test_every_long_unit_of_time_is_on_the_page():
    for unit in ("MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS"):
        assert unit in DURATION_UNITS
        assert f"`{unit}`" in PAGE

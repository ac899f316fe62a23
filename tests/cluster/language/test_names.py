"""Names that are taken: each new one is found in proportion to what it takes, not to how many there are."""

from __future__ import annotations

import pytest

from cluster.errors import OneOfManyError
from cluster.language.catalog import Catalog
from cluster.language.errors import FjordSqlError
from cluster.language.parameters import bind
from cluster.language.statement_texts import statements_in
from cluster.language.translation import translate
from cluster.operators.columns import Names, unique_name
from cluster.service.registry.query_names import NamesInUse, spellings_of
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([StreamSchema("straße", (Field("größe", FieldType.REAL), Field("_x", FieldType.TEXT)))])


class CountingNames(Names):
    """Counts how often it is asked whether a name is taken."""

    asked = 0

    def __contains__(self, name: str) -> bool:
        self.asked += 1
        return super().__contains__(name)


def test_equal_names_get_numbers_without_counting_from_one_again() -> None:
    names = CountingNames(["v_3", "lane"])
    found = [names.unique("v") for _ in range(1_000)]
    assert found[:4] == ["v", "v_2", "v_4", "v_5"]
    assert len(set(found)) == 1_000
    assert names.asked < 3 * 1_000


def test_case_makes_no_difference() -> None:
    names = Names(["Lane"])
    assert "lANE" in names
    assert names.unique("lane") == "lane_2"
    names.add("SPEED")
    assert unique_name("speed", ["SPEED", "Speed_2"]) == "speed_3"
    assert names.unique("speed") == "speed_2"


def test_a_name_is_the_same_in_any_case_and_normal_form() -> None:
    composed = translate("SELECT Größe AS é, \"GRÖSSE\" FROM straße WHERE _x = 'e\u0301'", CATALOG)
    decomposed = translate("SELECT gro\u0308ße AS e\u0301, \"gro\u0308sse\" FROM STRASSE WHERE _X = 'e\u0301'", CATALOG)
    assert [each.name for each in decomposed.node.schema] == ["é", "größe"]
    assert decomposed.node == composed.node
    assert "'e\u0301'" in decomposed.text  # a value stays as it is written
    assert (
        bind("SELECT :gro\u0308ße + größe AS x FROM straße", {"GRÖSSE": 1}).text == "SELECT 1 + größe AS x FROM straße"
    )


@pytest.mark.parametrize("text", ["SELECT größe AS fjord_ö FROM straße", 'SELECT größe AS "FJORD_x" FROM straße'])
def test_names_of_fjord_s_own_columns_stay_free(text: str) -> None:
    with pytest.raises(FjordSqlError, match="begins Fjord's own names"):
        translate(text, CATALOG)


def test_a_query_is_found_by_any_spelling_of_its_name() -> None:
    names = NamesInUse(running=spellings_of(["é"]), waiting={}, count=1, used=0, most=9)
    with pytest.raises(OneOfManyError, match="there is a query 'é' already"):
        names.named(["e\u0301"])
    assert names.named(["_x", "gro\u0308ße"]) == (["_x", "größe"], None)
    assert [each.name for each in statements_in("-- name: gro\u0308ße\nSELECT 1")] == ["größe"]

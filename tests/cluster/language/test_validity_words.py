"""Words of what held for how long are names elsewhere; users' functions keep theirs; and what sensors are asked for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cluster.expressions.user_functions import UserFunction
from cluster.language.catalog import Catalog
from cluster.language.declarations import name_in_use
from cluster.language.parameters import bind
from cluster.language.translation import translate
from cluster.operators import UntilNext
from cluster.operators.walks import nodes_of
from cluster.plan import stored_plans
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.language.example_catalog import CATALOG

WORDS = (
    *("valid", "until", "duration", "allen", "contains", "during", "equals", "before", "after", "meets", "starts"),
    *("finishes", "max", "coalesce", "tolerance", "prev", "keep", "tuples", "quality"),
)
STREAM = StreamSchema("valid", tuple(Field(name, FieldType.INTEGER) for name in (*WORDS, "next", "overlaps")))


@pytest.mark.parametrize("word", WORDS)
def test_words_are_names_elsewhere(word: str) -> None:
    catalog = Catalog.of([STREAM])
    texts = (
        f"SELECT {word}, {word} + 1 AS x FROM valid WHERE {word} > 1",
        f"SELECT {word}.{word} FROM valid {word}",
        f"SELECT valid.{word} FROM valid VALID UNTIL NEXT BY {word} MAX 5 MINUTES",
        f"SELECT DURATION(VALID({word})) {word} FROM valid VALID UNTIL NEXT BY ({word}, valid) MAX 5 MINUTES {word}",
        f"SELECT VALID(valid) {word} FROM valid VALID UNTIL NEXT MAX 5 MINUTES",
        f"SELECT COUNT(*) {word}, 1 AS next FROM valid GROUP BY {word}",
        f"SELECT {word} AS x, VALID({word}) FROM valid WINDOW(RANGE 1 HOUR) COALESCE({word} TOLERANCE 2) {word}",
        f"SELECT {word}.{word} FROM valid WINDOW(RANGE 1 HOUR) COALESCE({word}) {word} KEEP 5 TUPLES",
        f"SELECT {word} AS x FROM valid {word} WHERE {word} > 1 UNION SELECT {word} FROM valid AS {word}",
        f"SELECT v.next ~= 5 {word} FROM valid AS v JOIN valid {word} ON ({word}.{word} ~= v.next TOLERANCE 2)",
    )
    for text in texts:
        assert translate(text, catalog).node is not None


@pytest.mark.parametrize("word", ["next", "overlaps"])
def test_reserved_words_of_sql_are_columns_as_before(word: str) -> None:
    assert translate(f"SELECT {word}, v.{word} AS x FROM valid AS v WHERE {word} > 1", Catalog.of([STREAM])).node


def test_functions_of_users_keep_their_names() -> None:
    own = UserFunction("valid", "valid@1", "own", "valid", (FieldType.REAL,), FieldType.BOOLEAN)
    other = replace(own, name="Duration", identity="d@1", parameters=(FieldType.INTEGER,))
    catalog = CATALOG.with_functions([own, other])
    node = translate("SELECT valid(speed) AS v FROM traffic AS t WHERE duration(lane)", catalog).node
    assert "fjord_valid" not in str(stored_plans.written(node))


def test_the_longest_time_may_be_a_parameter() -> None:
    text = "SELECT lane FROM traffic VALID UNTIL NEXT BY sensor MAX :longest"
    found = bind(text, {"longest": "5 MINUTES"}).text
    (held,) = (each for each in nodes_of(translate(found, CATALOG).node) if isinstance(each, UntilNext))
    assert (held.keys, held.longest_us) == (("sensor",), 300_000_000)
    assert stored_plans.read(stored_plans.written(held)) == held


@pytest.mark.parametrize(("condition", "bands"), [("speed > 5", 0), ("lane > 5", 1)])
def test_sensors_send_all_samples_that_may_be_the_next(condition: str, bands: int) -> None:
    """A condition on keys removes whole sequences; a tuple that another one removes ends the one before it."""
    text = f"SELECT lane, speed FROM traffic VALID UNTIL NEXT BY lane MAX 5 MINUTES WHERE {condition}"
    (demand,) = demands_of("q", rewrite(translate(text, CATALOG).node).node)["traffic"]
    assert demand.fields == ("lane", "speed")
    assert len(demand.bands) == bands


PAIRS = (
    "SELECT t.lane FROM traffic VALID UNTIL NEXT MAX 1 HOUR{} AS t, weather VALID UNTIL NEXT MAX 1 HOUR AS w WHERE {}"
)


@pytest.mark.parametrize("word", ["BEFORE", "AFTER", "MEETS", "OVERLAPS", "DURING"])
def test_a_warning_of_relations_that_tuples_held_together_never_have(word: str) -> None:
    apart = word in ("BEFORE", "AFTER", "MEETS")
    condition = f"VALID(t) {word} VALID(w)"
    warnings = translate(PAIRS.format("", condition), CATALOG).warnings
    assert [each for each in warnings if each.startswith(f"{condition} is never true")] == [*warnings][: int(apart)]
    assert bool(warnings) == apart
    assert not translate(PAIRS.format(" WINDOW(RANGE 1 HOUR)", condition), CATALOG).warnings


@pytest.mark.parametrize("name", ["valid", "duration", "allen"])
def test_names_of_functions_that_are_taken(name: str) -> None:
    assert name_in_use(name) is not None

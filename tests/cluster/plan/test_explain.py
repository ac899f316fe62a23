"""Plans as people see them."""

from __future__ import annotations

from cluster.language.translation import translate
from cluster.operators import Aggregate, Dstream, Intersection, Join
from cluster.plan.explain import explain, explained
from cluster.plan.rewrite import rewrite
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.plan.plans import ALSO_A, A, B, window


def explanation(text: str, *, schemas: bool = False) -> str:
    query = translate(text, CATALOG)
    return explained(query, rewrite(query.node), schemas=schemas)


def test_an_explanation_has_the_plan_the_rules_and_the_rewritten_plan():
    text = "SELECT sensor, AVG(speed) AS v FROM traffic WINDOW(ROWS 9) WHERE sensor = 'a' GROUP BY sensor"
    assert explanation(text) == (
        "Logical plan\n"
        'project sensor, v = "avg(speed)"\n'
        "└─ aggregate AVG(speed) by sensor\n"
        "   └─ filter sensor = 'a'\n"
        "      └─ window of the last 9 tuples\n"
        "         └─ stream traffic\n"
        "\n"
        "Rules applied\n"
        "  1. narrow aggregate\n"
        "\n"
        "Rewritten plan\n"
        'project sensor, v = "avg(speed)"\n'
        "└─ aggregate AVG(speed) by sensor\n"
        "   └─ project sensor, speed\n"
        "      └─ filter sensor = 'a'\n"
        "         └─ window of the last 9 tuples\n"
        "            └─ stream traffic\n"
        "\n"
        "Warnings\n"
        "  WINDOW(ROWS 9) counts tuples: where several of one stream carry the same stamp, which of them count is"
        " arbitrary"
    )


def test_an_explanation_has_no_second_plan_where_nothing_can_be_made_cheaper():
    assert explanation("SELECT * FROM traffic") == (
        "Logical plan\nstream traffic\n\nRules applied\n  none\n\nRewritten plan\nthe same"
    )


def test_schemas_and_units_on_demand():
    shown = explanation("SELECT speed, lane FROM traffic", schemas=True)
    assert "project speed, lane  (speed real [mph], lane integer)" in shown


def test_parts_that_are_used_twice_are_shown_once():
    assert explain(Join(Intersection(window(A, 5), window(A, 5)), B, None)) == (
        "product\n├─ intersection\n│  ├─ [1] window of 5us\n│  │  └─ stream a\n│  └─ same as [1]\n└─ stream b"
    )


def test_events_and_what_sensors_should_know_are_shown():
    text = (
        "SELECT COMPLETENESS() AS seen FROM traffic EVENTS(speed ABOVE 0.6 BELOW 0.4) WINDOW(RANGE 1 HOUR) "
        "SAMPLE EVERY 1 SECOND AT LEAST EVERY 1 MINUTE LIFETIME 90 DAYS"
    )
    assert explain(translate(text, CATALOG).node) == (
        "project seen = completeness\n"
        "└─ aggregate COMPLETENESS()\n"
        "   └─ window of 1h\n"
        "      └─ events of traffic where speed rises to 0.6 and falls to 0.4, sampled every 1s, at least every 1m,"
        " to last 90d"
    )


def test_groups_without_aggregates_have_nothing_between_their_words():
    assert Aggregate(window(A, 5), ("x",), ()).describe() == "aggregate by x"


def test_every_node_has_a_word():
    assert Dstream(A).describe() == "deletions"
    assert Intersection(A, ALSO_A).describe() == "intersection"

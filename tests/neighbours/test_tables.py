"""The attacks, what is made of a victim's answers, and outcomes as a table."""

from __future__ import annotations

import io
import json
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from cluster.language.catalog import Catalog
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from firmware_sim.phenomena.traffic import TRAFFIC
from tests.neighbours.__main__ import main
from tests.neighbours.attacks import ATTACKS, Attack, chosen
from tests.neighbours.owner import Answered
from tests.neighbours.running import Outcome, wrong_answers
from tests.neighbours.table import as_json, table, totals
from tests.neighbours.victim import MOTES, QUERIES, SECOND_US, Answer, Arrival, Seen, judged, meant

NOON_US = 1_330_603_200 * SECOND_US
SEEN = Seen(100, 0, 0, 0.25, 0.5)
HELD = Outcome(Attack("groups/a real", ("SELECT 1",)), Answered(accepted=1), (), SEEN, ())
REFUSED = Outcome(
    Attack("products/five", ("SELECT 1", "SELECT 2"), refused="rows"),
    Answered(refused=2, reasons=["too many rows;\n" + "the limit is 2 " * 10]), (), SEEN, (),
)  # fmt: skip
SLOW = Outcome(
    Attack("functions/loops", ("SELECT 1",), stopped="5 s"), Answered(accepted=1), ("it takes longer than 5 s",),
    Seen(100, 3, 1, 2.5, 9.0), ("of 100 answers of the victim 3 lack and 1 are wrong",),
)  # fmt: skip


def test_a_line_for_each_attack() -> None:
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(table([HELD, REFUSED, SLOW]))
    _, held, refused, slow = [re.split(r"\s{2,}", text.strip()) for text in console.export_text().splitlines()]
    assert held == ["groups/a real", "1 statement added", "1 accepted", "0.25", "0.50", "100 of 100", "answers", "held"]
    assert refused[1:3] == ["2 statements added", "2 refused"]
    assert refused[6].startswith("too many rows; the limit is 2")
    assert refused[6].endswith("...")
    assert slow[3:] == ["2.50", "9.00", "3 lack, 1 wrong", "it takes longer than 5 s", "failed"]


def test_lags_count_from_when_an_attack_has_begun() -> None:
    expected = [Answer("victim_rows", at * SECOND_US, at * SECOND_US + 1, ()) for at in range(4)]
    arrivals = [Arrival(each, each.start_us / SECOND_US + 1.0 + number) for number, each in enumerate(expected[:3])]
    assert judged(expected, arrivals, 10.0).median_s == 2.5
    seen = judged(expected, arrivals, 10.0, lags_from_us=2 * SECOND_US)
    assert (seen.median_s, seen.p99_s, seen.lacking) == (5.0, 7.0, 1)


def test_totals_name_what_was_not_held() -> None:
    assert totals([HELD, REFUSED]) == ["2 attacks, 2 held; 200 answers of the victim compared"]
    (line,) = totals([HELD, SLOW])[1:]
    assert line.startswith("functions/loops was not held: median lag of 2.5 s, at most 2 s; ")
    assert line.endswith("; of 100 answers of the victim 3 lack and 1 are wrong")
    assert totals([]) == ["no attack was carried out"]
    assert [each["held"] for each in json.loads(json.dumps(as_json([HELD, SLOW])))] == [True, False]


def test_a_victim_has_an_answer_of_each_mote_and_segment_in_each_second() -> None:
    found = meant(NOON_US, NOON_US + 3 * SECOND_US)
    assert len([each for each in found if each.query == "victim_rows"]) == 3 * MOTES
    sums = [each for each in found if each.query == "victim_sums"]
    assert {each.start_us for each in sums} == {NOON_US + place * SECOND_US - 1 for place in (1, 2, 3)}
    assert {each.values[1] for each in sums} == {8}  # two samples of each of four motes
    assert {each.query for each in found} == QUERIES.keys()


def test_answers_that_lack_or_are_wrong_are_counted_and_lag_on() -> None:
    one, two, three = (Answer("victim_rows", NOON_US, NOON_US + 1, (number,)) for number in range(3))
    noon = NOON_US / SECOND_US
    seen = judged([one, two], [Arrival(one, noon + 0.5)], noon + 10)
    assert (seen.expected, seen.lacking, seen.wrong, seen.exact) == (2, 1, 0, False)
    assert (seen.median_s, seen.p99_s) == (5.25, 10)
    assert judged([one], [Arrival(one, noon), Arrival(one, noon)], noon).wrong == 1
    assert judged([one], [Arrival(one, noon), Arrival(three, noon)], noon).wrong == 1
    assert judged([one, two], [Arrival(two, noon), Arrival(one, noon)], noon).exact
    assert not judged([], [], noon).exact


def test_what_an_owner_is_answered_is_held_against_what_it_should_be() -> None:
    refused, stopped, runs = REFUSED.attack, SLOW.attack, HELD.attack
    assert wrong_answers(refused, Answered(refused=2, reasons=["too many rows"]), ()) == []
    assert wrong_answers(refused, Answered(accepted=1, refused=1, reasons=["too many rows"]), ()) == [
        "1 statements were accepted that had to be refused"
    ]
    assert wrong_answers(refused, Answered(refused=1, reasons=["no such stream"]), ()) == [
        "refused for another reason: no such stream"
    ]
    assert wrong_answers(stopped, Answered(accepted=1), ("it takes longer than 5 s",)) == []
    assert wrong_answers(stopped, Answered(accepted=1), ("it is ill",)) == [
        "no error says why its query has no answers"
    ]
    assert wrong_answers(runs, Answered(accepted=1, refused=3), ()) == []
    assert wrong_answers(runs, Answered(refused=1, reasons=["busy"]), ()) == ["nothing was accepted: busy"]


def test_names_of_attacks_are_unique_and_choose_them() -> None:
    assert len({each.name for each in ATTACKS}) == len(ATTACKS)
    kinds = {each.name.partition("/")[0] for each in ATTACKS}
    assert kinds >= {"products", "groups", "columns", "wide", "patterns", "results", "functions", "many", "churn"}
    assert chosen(["columns/", "churn/"]) == tuple(each for each in ATTACKS if each.name.startswith(("col", "churn")))
    assert chosen([]) == ATTACKS
    for each in ATTACKS:
        re.compile(each.refused or each.stopped or "")
        assert each.statements


OF_LANGUAGE = re.compile("for ever|calendar")
READ = [
    "columns/8",
    "columns/6",
    "groups/",
    "patterns/w",
    "patterns/of up",
    "wide/200",
    "order/",
    "distinct/",
    "sessions/",
    "calendar/",
]


@pytest.mark.parametrize("attack", chosen(READ), ids=lambda each: each.name)
def test_statements_are_read_so_that_limits_and_no_mistakes_decide(attack: Attack) -> None:
    catalog = Catalog.of([TRAFFIC])
    for text in attack.statements:
        if attack.refused is not None and OF_LANGUAGE.search(attack.refused):
            with pytest.raises(FjordSqlError, match=attack.refused):
                translate(text, catalog)
        else:
            assert translate(text, catalog).node


def test_an_unknown_attack_is_an_error() -> None:
    done = CliRunner().invoke(main, ["--only", "nothing like it"])
    assert done.exit_code == 2
    assert "no attack has 'nothing like it' in its name" in done.output
    shown = CliRunner().invoke(main, ["--show", "--only", "churn/one"])
    assert shown.output == "churn/one query: 1 added and dropped, again and again\n"

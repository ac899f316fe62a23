"""A text of several statements is divided at semicolons, and nowhere else; comments name what follows them."""

from __future__ import annotations

import pytest

from cluster.language.statement_texts import StatementText, statements_in

CASES: dict[str, list[tuple[str, int, str | None]]] = {
    "": [],
    " \n;; ;\n-- name: none\n": [],
    "SELECT 1": [("SELECT 1", 1, None)],
    "SELECT 1;": [("SELECT 1", 1, None)],
    "\n\n SELECT\n1 ;\nSELECT 2;": [("SELECT\n1", 3, None), ("SELECT 2", 5, None)],
    "SELECT ';', \";\" /* ; */ -- ;\n FROM s; x": [
        ("SELECT ';', \";\" /* ; */ -- ;\n FROM s", 1, None),
        ("x", 2, None),
    ],
    "'a;b'; \"c;d\"": [("'a;b'", 1, None), ('"c;d"', 1, None)],
    "-- name: slow\nSELECT 1;\n--NAME:fast cars  \nSELECT 2;SELECT 3": [
        ("SELECT 1", 2, "slow"),
        ("SELECT 2", 4, "fast cars"),
        ("SELECT 3", 4, None),
    ],
    "-- name: a\n-- about it\n-- name: b\n\nSELECT 1;": [("SELECT 1", 5, "b")],
    "SELECT -- name: inside\n1; SELECT 2": [("SELECT -- name: inside\n1", 1, None), ("SELECT 2", 2, None)],
    "SELECT 1; -- name: next\nSELECT 2": [("SELECT 1", 1, None), ("SELECT 2", 2, "next")],
    "/* name: no */ SELECT 1": [("SELECT 1", 1, None)],
    "-- name:\nSELECT 1": [("SELECT 1", 2, None)],
    "SELECT 1; SELECT 'never closed; SELECT 2": [("SELECT 1", 1, None), ("SELECT 'never closed; SELECT 2", 1, None)],
    "SELECT 1 /* never closed; SELECT 2": [("SELECT 1 /* never closed; SELECT 2", 1, None)],
    "SELECT 1; /* never closed SELECT 2": [("SELECT 1", 1, None), ("/* never closed SELECT 2", 1, None)],
    "SELECT 1;\r\n-- name: two\r\nSELECT 2;\r\n": [("SELECT 1", 1, None), ("SELECT 2", 3, "two")],
}


@pytest.mark.parametrize("text", CASES)
def test_a_text_is_divided_into_statements(text: str) -> None:
    found = statements_in(text)
    assert [(each.text, each.line, each.name) for each in found] == CASES[text]
    assert all(text[each.start :].startswith(each.text) for each in found)


def test_dividing_takes_time_in_proportion_to_the_text() -> None:
    found = statements_in("-- name: n\nSELECT 'a' FROM s;\n" * 50_000)
    assert len(found) == 50_000
    assert found[-1] == StatementText("SELECT 'a' FROM s", found[-1].start, 100_000, "n")


def test_marks_that_editors_put_before_a_text_hide_no_name() -> None:
    text = "\ufeff-- name: a\nSELECT 1;\n\ufeff-- name: b\nSELECT 2;\n\ufeff"
    assert [(each.name, each.text) for each in statements_in(text)] == [("a", "SELECT 1"), ("b", "SELECT 2")]

"""Which names queries get, without a registry."""

from __future__ import annotations

import pytest

from cluster.errors import OneOfManyError
from cluster.service.registry.query_names import (
    NamesInUse,
    QueryExistsError,
    TooManyQueriesError,
    UnknownQueryError,
    spellings_of,
)
from protocols.errors import TopicError

IN_USE = NamesInUse(running=spellings_of(("q3", "slow")), waiting=spellings_of(("q5",)), count=3, used=2, most=6)


@pytest.mark.parametrize(
    ("wanted", "names", "used"),
    [
        (["fast"], ["fast"], None),
        ([None], ["q4"], 4),
        ([None, None], ["q4", "q6"], 6),
        (["q4", None], ["q4", "q6"], 6),
        ([None, "fast"], ["q4", "fast"], 4),
        ([], [], None),
    ],
)
def test_numbers_go_up_past_all_names(wanted: list[str | None], names: list[str], used: int | None) -> None:
    assert IN_USE.named(wanted) == (names, used)


@pytest.mark.parametrize(
    ("wanted", "place", "cause"),
    [
        (["slow"], 0, QueryExistsError),
        (["q5"], 0, QueryExistsError),
        (["a", "a"], 1, QueryExistsError),
        ([None, "q4"], 1, QueryExistsError),
        (["Slow"], 0, QueryExistsError),
        (["Q5"], 0, QueryExistsError),
        (["a", "A"], 1, QueryExistsError),
        (["straße", "STRASSE"], 1, QueryExistsError),
        (["a", "b", "c", "d"], 3, TooManyQueriesError),
        (["a", "b/c"], 1, TopicError),
    ],
)
def test_a_name_is_refused(wanted: list[str | None], place: int, cause: type[Exception]) -> None:
    with pytest.raises(OneOfManyError) as caught:
        IN_USE.named(wanted)
    assert caught.value.place == place
    assert isinstance(caught.value.cause, cause)


def test_a_name_that_differs_in_case_only_is_refused_with_the_other_one() -> None:
    with pytest.raises(OneOfManyError) as caught:
        IN_USE.named(["SLOW"])
    error = caught.value.cause
    assert error.message == "there is a query 'slow' already, and 'SLOW' differs from it in case only"
    assert error.hint == "choose another name, or drop it first"


def test_no_name_is_made_up_that_differs_in_case_only() -> None:
    in_use = NamesInUse(running=spellings_of(("Q1", "q2", "Q2")), waiting={}, count=3, used=0, most=9)
    assert in_use.named([None]) == (["q3"], 3)
    assert in_use.named(["Q3", None]) == (["Q3", "q4"], 4)


def test_an_unknown_name_shows_those_that_differ_in_case_only() -> None:
    running = spellings_of(("slow", "SLOW", "fast"))
    assert UnknownQueryError("Slow", ("slow", "SLOW", "fast"), running).hint == (
        "there is 'slow' and 'SLOW': a query is found by its name as it was given, in upper and lower case"
    )
    assert UnknownQueryError("slower", ("slow", "SLOW", "fast"), running).hint == "running queries: slow, SLOW, fast"

"""Which names queries get, without a registry."""

from __future__ import annotations

import pytest

from cluster.errors import OneOfManyError
from cluster.service.registry.query_names import NamesInUse, QueryExistsError, TooManyQueriesError
from protocols.errors import TopicError

IN_USE = NamesInUse(running=("q3", "slow"), waiting=("q5",), used=2, most=6)


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
        (["a", "b", "c", "d"], 3, TooManyQueriesError),
        (["a", "b/c"], 1, TopicError),
    ],
)
def test_a_name_is_refused(wanted: list[str | None], place: int, cause: type[Exception]) -> None:
    with pytest.raises(OneOfManyError) as caught:
        IN_USE.named(wanted)
    assert caught.value.place == place
    assert isinstance(caught.value.cause, cause)

"""Where queries begin, given the tables of streams and where the present epoch began."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cluster.errors import ClusterError
from cluster.service.queries.plan_options import positions_between_epochs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.storage.stream_tables import StreamTable

TABLES = cast("Mapping[str, StreamTable]", {"a": SimpleNamespace(version=7), "b": SimpleNamespace(version=3)})


@pytest.mark.parametrize(
    ("streams", "before", "found"),
    [
        ({"a", "b"}, {}, {"a": 7, "b": 3}),
        ({"a"}, {"a": 5}, {"a": 7}),
        ({"a", "away"}, {"a": 5, "away": 4}, {"a": 7, "away": 4}),
        (set(), {"away": 4}, {}),
    ],
)
def test_a_stream_that_is_away_keeps_its_position(
    streams: set[str], before: dict[str, int], found: dict[str, int]
) -> None:
    assert positions_between_epochs(frozenset(streams), before, TABLES) == found


def test_a_stream_without_a_table_is_named() -> None:
    with pytest.raises(ClusterError, match="'c' has no table"):
        positions_between_epochs(frozenset({"a", "d", "c"}), {"a": 1}, TABLES)

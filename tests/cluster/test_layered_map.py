"""A layered map is the dictionary that one would have copied, and looks at what changes only."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import layered_map
from cluster.layered_map import LayeredMap

KEYS = st.integers(0, 9)
CHANGES = st.lists(st.tuples(st.lists(KEYS, max_size=3), st.lists(st.tuples(KEYS, st.integers()), max_size=3)))


@given(st.dictionaries(KEYS, st.integers()), CHANGES, st.integers(0, 5))
def test_it_is_the_dictionary_that_one_would_have_copied(
    base: dict[int, int], changes: list[tuple[list[int], list[tuple[int, int]]]], most: int
) -> None:
    found, wanted = LayeredMap(dict(base)), dict(base)
    with patch.object(layered_map, "MOST_CHANGES", most):
        for go, new in changes:
            gone = [key for key in dict.fromkeys(go) if key in wanted]
            come = [(key, value) for key, value in new if key not in gone]
            before, copied = dict(found), found
            for key in gone:
                del wanted[key]
            wanted.update(come)
            found = found.changed(gone, come)
            assert dict(copied) == before, "the map before has changed"
            assert found == wanted
            assert len(found) == len(wanted)
            assert all((key in found) == (key in wanted) for key in range(10))
            assert list(found) == list(wanted)


def test_what_is_not_there_cannot_go() -> None:
    found = LayeredMap({"a": 1}).changed(["a"])
    for missing in (found, LayeredMap[str, int]()):
        with pytest.raises(KeyError):
            missing.changed(["a"])
        with pytest.raises(KeyError):
            missing["a"]
        assert missing.get("a") is None
    assert repr(found.changed(come=[("a", 2)])) == "{'a': 2}"

"""Random tests draw some of their examples, and all of them where that is asked for."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.conftest import pytest_collection_modifyitems
from tests.examples import TIMES, seeds, some_of


@pytest.mark.parametrize(
    ("times", "written", "drawn"),
    [
        (None, 100, 16), (None, 30, 6), (None, 20, 6), (None, 5, 5), ("1", 100, 100), ("1", 5, 5), ("10", 100, 1_000),
        ("0.5", 5, 2), ("0.01", 5, 1),
    ],
)  # fmt: skip
def test_some_examples_are_drawn(times: str | None, written: int, drawn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TIMES, raising=False)
    if times is not None:
        monkeypatch.setenv(TIMES, times)
    assert some_of(written) == drawn


@hypothesis.given(number=st.integers())
@hypothesis.settings(max_examples=60, phases=[hypothesis.Phase.generate])
def test_a_property_test_is_marked(number: int, request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("examples")


def test_a_property_test_draws_a_sixth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TIMES, raising=False)
    drawn: list[int] = []

    @hypothesis.settings(max_examples=60)
    @hypothesis.given(st.integers())
    def test_drawing(number: int) -> None:
        drawn.append(number)

    items = [pytest.Function.from_parent(request.node.parent, name=name, callobj=test_drawing) for name in ("a", "b")]
    pytest_collection_modifyitems(request.config, items)
    test_drawing()
    assert len(drawn) == 10, "a sixth, although there are two items of one test"


def test_tests_with_seeds_have_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TIMES, raising=False)

    @seeds(60)
    def test(seed: int) -> None:
        pass

    marks = {mark.name: mark for mark in test.pytestmark}
    assert set(marks) == {"examples", "parametrize"}
    assert marks["parametrize"].args == ("seed", range(10))

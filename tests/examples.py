"""How many random examples tests draw: some in ``make test``, all in ``make examples``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings

TIMES = "FJORD_EXAMPLES"
"""Of the environment: how many times as many examples as are written in the tests; a share of them if it is missing."""
SHARE = 6
FEWEST = 6
"""A test whose author found so few enough draws all of them, unless it says otherwise."""
Test = TypeVar("Test", bound=Callable[..., object])


def some_of(count: int, fewest: int = FEWEST) -> int:
    """Return how many to draw of so many examples; a test that asks for it has the mark `examples`."""
    times = os.environ.get(TIMES)
    return max(min(fewest, count), count // SHARE) if times is None else max(1, round(count * float(times)))


def seeds(count: int, fewest: int = FEWEST) -> Callable[[Test], Test]:
    """Return a decorator of a test with a parameter `seed`: it runs with some of so many seeds."""

    def decorated(test: Test) -> Test:
        return pytest.mark.examples(pytest.mark.parametrize("seed", range(some_of(count, fewest)))(test))

    return decorated


def some_examples(given: settings) -> settings:
    """Return the settings of a property test with the number of examples that it draws."""
    return settings(given, max_examples=some_of(given.max_examples))

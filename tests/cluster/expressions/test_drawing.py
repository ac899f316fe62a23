"""The random expressions have every function of the language in them."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.expressions.called_functions import FUNCTIONS
from cluster.expressions.nodes import Call
from cluster.expressions.walks import from_below
from tests.cluster.expressions.drawing import drawn

EXPRESSIONS = 2000


def called() -> Iterator[str]:
    for number in range(EXPRESSIONS):
        expression, _, _ = drawn(f"functions/{number}")
        yield from (part.function for part in from_below(expression) if isinstance(part, Call))


def test_every_function_is_drawn() -> None:
    assert set(FUNCTIONS.values()) - set(called()) == set()

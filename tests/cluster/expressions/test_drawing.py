"""The random expressions have every function of the language in them."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.expressions.nodes import Call
from cluster.expressions.walks import from_below
from cluster.scalars import SCALAR_FUNCTIONS
from tests.cluster.expressions.drawing import drawn

EXPRESSIONS = 2000


def called() -> Iterator[str]:
    for number in range(EXPRESSIONS):
        expression, _, _ = drawn(f"functions/{number}")
        yield from (part.function for part in from_below(expression) if isinstance(part, Call))


def test_every_function_is_drawn() -> None:
    assert SCALAR_FUNCTIONS.keys() - set(called()) == set()

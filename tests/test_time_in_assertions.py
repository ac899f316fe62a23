"""No test asserts how long something takes: that depends on what else the machine does. Limits may end a hang."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FUNCTIONS = {
    f"{name}{unit}" for name in ("monotonic", "perf_counter", "process_time", "thread_time") for unit in ("", "_ns")
}
WALL = {"time", "time_ns"}
VIRTUAL = TESTS / "simulation"
"""Where loops have simulated time."""


def is_reading(node: ast.AST, *, virtual: bool) -> bool:
    """Return whether an expression reads a clock."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name(name):
            return name in FUNCTIONS
        case ast.Attribute(ast.Name("time"), name):
            return name in FUNCTIONS | WALL
        case ast.Attribute(ast.Name("loop") | ast.Call(ast.Attribute(_, "get_running_loop")), "time"):
            return not virtual
    return False


def is_rough(comparison: ast.Compare) -> bool:
    """Return whether a comparison is one of more or less."""
    names = {node.func for node in ast.walk(comparison) if isinstance(node, ast.Call)}
    about = any(isinstance(each, ast.Name | ast.Attribute) and ast.unparse(each).endswith("approx") for each in names)
    return about or any(isinstance(each, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for each in comparison.ops)


class Durations:
    """What a function computes from clocks.

    Parameters
    ----------
    function
        The function.
    virtual
        Whether loops have simulated time.
    """

    def __init__(self, function: ast.AST, *, virtual: bool) -> None:
        self._virtual = virtual
        self._read: set[str] = set()
        self._computed: set[str] = set()
        assignments = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        for _ in assignments:
            for each in assignments:
                names = {node.id for target in each.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
                if self.has(each.value):
                    self._computed |= names
                elif self._reads(each.value):
                    self._read |= names

    def _reads(self, expression: ast.AST) -> bool:
        return any(
            is_reading(node, virtual=self._virtual)
            or (isinstance(node, ast.Name) and node.id in self._read | self._computed)
            for node in ast.walk(expression)
        )

    def has(self, expression: ast.AST) -> bool:
        """Return whether an expression is computed from a reading, as a difference is."""
        nodes = list(ast.walk(expression))
        computed = any(isinstance(node, ast.Name) and node.id in self._computed for node in nodes)
        return computed or any(isinstance(node, ast.BinOp) and self._reads(node) for node in nodes)


def assertions_of_time(text: str, *, virtual: bool = False) -> Iterator[int]:
    """Yield the lines of assertions that compare what is computed from a clock; loops may wait until a limit."""
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        durations = Durations(function, virtual=virtual)
        waiting = {id(each) for loop in ast.walk(function) if isinstance(loop, ast.While) for each in ast.walk(loop)}
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and id(node) not in waiting:
                compared = [each for each in ast.walk(node.test) if isinstance(each, ast.Compare) and is_rough(each)]
                if any(durations.has(each) for each in compared):
                    yield node.lineno


def test_no_test_asserts_how_long_something_takes() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in assertions_of_time(path.read_text(), virtual=path.is_relative_to(VIRTUAL))
    ]
    assert found == [], "count steps, calls or bytes instead"


@pytest.mark.parametrize("lines", [
    ("began = time.monotonic()", "work()", "assert time.monotonic() - began < 1"),
    ("began = time.process_time()", "took = process_time() - began", "assert took == approx(1)"),
    ("until = time.time() + 5", "work()", "assert time.time() < until"),
    ("began = asyncio.get_running_loop().time()", "for _ in x:", "    assert loop.time() - began >= 0.1"),
])  # fmt: skip
def test_an_assertion_of_time_is_found(lines: tuple[str, ...]) -> None:
    assert list(assertions_of_time("\n    ".join(["def test():", *lines]))) == [4]


@pytest.mark.parametrize("lines", [
    ("until = time.monotonic() + 60", "while not done():", "    assert time.monotonic() < until"),
    ("before = time.time()", "found = noted()", "assert before <= found.at <= time.time()"),
    ("took = measured(clock=lambda: 5.0)", "assert took == 5.0"),
])  # fmt: skip
def test_limits_that_end_a_hang_and_the_order_of_instants_may_stay(lines: tuple[str, ...]) -> None:
    assert list(assertions_of_time("\n    ".join(["def test():", *lines]))) == []

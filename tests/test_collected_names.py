"""Names of tests are the same in every process that collects them: else those that share the work refuse to start."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MODULES = {"datetime", "date", "os", "random", "secrets", "tempfile", "time", "uuid"}
"""Whose functions return something else in another process, but for those that read or join what they are given."""
FIXED = {"datetime.fromtimestamp", "datetime.fromisoformat", "datetime.combine", "date.fromisoformat", "time.gmtime"}


def changes(call: ast.Call) -> bool:
    """Return whether a call returns something else in another process; `gzip` writes the time if it has no other."""
    name = ast.unparse(call.func)
    timed = name == "gzip.compress" and all(each.arg != "mtime" for each in call.keywords)
    return timed or (name.rpartition(".")[0] in MODULES and name not in FIXED)


def changing_parameters(text: str) -> Iterator[int]:
    """Yield the lines of parameters that differ from process to process."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.parametrize":
            lazy = {id(call) for each in ast.walk(node) if isinstance(each, ast.Lambda) for call in ast.walk(each.body)}
            calls = [each for each in ast.walk(node) if isinstance(each, ast.Call) and id(each) not in lazy]
            yield from (each.lineno for each in calls if changes(each))


def test_no_parameter_differs_from_process_to_process() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in changing_parameters(path.read_text())
    ]
    assert found == [], "give it a fixed value, or make it in the test"


@pytest.mark.parametrize(
    ("value", "differs"),
    [
        ("gzip.compress(b'a')", True),
        ("gzip.compress(b'a', mtime=0)", False),
        ("time.time()", True),
        ("lambda: time.time()", False),
        ("datetime.now(UTC)", True),
    ],
)
def test_a_parameter_that_differs_is_found(value: str, *, differs: bool) -> None:
    text = f"@pytest.mark.parametrize('x', [{value}])\ndef test(x): ..."
    assert list(changing_parameters(text)) == ([1] if differs else [])

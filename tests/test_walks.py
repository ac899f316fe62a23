"""The walks in docs/architecture.md: what is typed there is what happens, and what is named there is there."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
WALKS = re.search(r"^## A query, from text.*?^## More", ARCHITECTURE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)`[\s,]*\(?`([\w.]+)`")


def stops() -> list[tuple[str, str]]:
    assert WALKS is not None
    return NAMED.findall(WALKS.group())


def defined(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            yield from (f"{node.name}.{method.name}" for method in methods)


def test_what_is_typed_is_what_happens() -> None:
    found = doctest.testfile(str(ARCHITECTURE), module_relative=False, encoding="utf-8")
    assert found.attempted > 20
    assert not found.failed


def test_the_walks_stop_at_many_places() -> None:
    assert len(stops()) > 30


@pytest.mark.parametrize(("path", "name"), stops())
def test_what_the_walks_name_is_there(path: str, name: str) -> None:
    assert name in defined(ROOT / path)

"""The examples in docstrings are true, in every module that has some."""

from __future__ import annotations

import ast
import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("protocols", "firmware_sim", "proxy", "cluster", "tests")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def examples_in(file: Path) -> int:
    """How many examples the docstrings of a file have, as its text shows them."""
    text = file.read_text(encoding="utf-8")
    if ">>> " not in text:
        return 0
    docstrings = [ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED)]
    return sum(len(doctest.DocTestParser().get_examples(each)) for each in docstrings if each)


EXAMPLES = {
    file.relative_to(ROOT): count
    for package in FOLDERS
    for file in sorted((ROOT / package).rglob("*.py"))
    if (count := examples_in(file))
}


@pytest.mark.parametrize("folder", sorted({file.parent.as_posix() for file in EXAMPLES}))
def test_examples_are_true(folder: str) -> None:
    for file, count in EXAMPLES.items():
        if file.parent.as_posix() == folder:
            found = doctest.testmod(import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__")))
            assert found.failed == 0
            assert found.attempted == count, f"doctest does not find all examples of {file}"

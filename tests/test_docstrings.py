"""The examples in docstrings are true, in every module that has some, and what they refer to is there."""

from __future__ import annotations

import ast
import doctest
import re
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
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


def modules() -> list[Path]:
    found = [file for package in FOLDERS[:-1] for file in sorted((ROOT / package).rglob("*.py"))]
    return [file for file in found if file.name != "__main__.py"]


def names_nothing(kind: str, name: str, module: str, text: str) -> bool:
    """Whether a role in the docstrings of a module names nothing, or the module itself."""
    if kind == "mod":
        return name == module or find_spec(name) is None
    if "." not in name:
        return len(re.findall(rf"\b{name}\b", text)) < 2  # it is defined, imported, or spoken of
    whole = name.split(".")
    for length in range(len(whole) - 1, -1, -1):
        prefix = ".".join(whole[:length]) or module
        try:
            found = import_module(prefix)
        except ModuleNotFoundError:
            continue
        try:
            reduce(getattr, whole[length:], found)
        except AttributeError:
            continue
        return False
    return not re.search(rf"\bclass {whole[0]}\b|\bimport [^\n]*\b{whole[0]}\b", text)


@pytest.mark.parametrize("package", FOLDERS[:-1])
def test_what_docstrings_refer_to_is_there(package: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in modules()
        if file.relative_to(ROOT).parts[0] == package
        for text in [file.read_text("utf-8")]
        for kind, name in re.findall(r":(mod|class|func|meth):`~?([\w.]+)`", text)
        if names_nothing(kind, name, ".".join(file.relative_to(ROOT).with_suffix("").parts), text)
    ]
    assert wrong == []

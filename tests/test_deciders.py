"""What decides does not wait, write or draw: all modules that say "Pure", and classes and functions that do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_repository import PACKAGES

ROOT = Path(__file__).parents[1]
WAITING = {
    "asyncio",
    "concurrent",
    "deltalake",
    "fcntl",
    "glob",
    "http",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "psycopg",
    "pyspark",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "time",
    "urllib",
    "uuid",
}
"""Modules that wait, read or write, ask for the time, or draw lots."""
OPENING = {"breakpoint", "input", "open", "print"}
PRESENT = {"now", "today", "utcnow"}


def is_marked(node: ast.AST) -> bool:
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return documented and re.search(r"\bPure\b", ast.get_docstring(node) or "") is not None


def is_pure(path: Path) -> bool:
    return is_marked(ast.parse(path.read_text("utf-8")))


def all_modules() -> Iterator[str]:
    for package in PACKAGES:
        yield from (str(path.relative_to(ROOT)) for path in sorted((ROOT / package).rglob("*.py")))


PURE = [path for path in all_modules() if is_pure(ROOT / path)]


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree that run: imports for types alone are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from at_run_time(child)


def imported(source: str) -> set[str]:
    found: set[str] = set()
    for node in at_run_time(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update({node.module or "", *(f"{node.module}.{each.name}" for each in node.names)})
    return found


def impurities(source: str) -> list[str]:
    """What a pure module must not do, of what this one does."""
    found = sorted(f"imports {name}" for name in imported(source) if name.partition(".")[0] in WAITING)
    for node in at_run_time(ast.parse(source)):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            found.append("waits")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OPENING:
            found.append(f"calls {node.func.id}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PRESENT:
            found.append(f"calls {node.func.attr}")
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import sqlite3", ["imports sqlite3"]),
        ("def f():\n    from time import monotonic", ["imports time", "imports time.monotonic"]),
        ("from random import Random", ["imports random", "imports random.Random"]),
        ("async def f(): ...", ["waits"]),
        ("datetime.now()", ["calls now"]),
        ("open('file')", ["calls open"]),
        ("if TYPE_CHECKING:\n    from pathlib import Path", []),
        ("from timeit_free import x\nimport msgspec", []),
    ],
)
def test_impurities_are_found(source: str, found: list[str]) -> None:
    assert impurities(source) == found


@pytest.mark.parametrize("path", PURE)
def test_what_is_pure_neither_waits_nor_writes_nor_draws(path: str) -> None:
    assert impurities((ROOT / path).read_text("utf-8")) == []


def impurities_of(name: str, source: str) -> list[str]:
    """What a class or function that says "Pure" does in spite of it, with what its module has imported for others."""
    tree = ast.parse(source)
    (node,) = (each for each in tree.body if getattr(each, "name", None) == name)
    waiting = {
        each.asname or each.name.partition(".")[0]
        for statement in at_run_time(tree)
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for each in statement.names
        if (getattr(statement, "module", None) or each.name).partition(".")[0] in WAITING
    }
    annotations = {
        part
        for each in ast.walk(node)
        for hint in (getattr(each, "annotation", None), getattr(each, "returns", None))
        if hint is not None
        for part in ast.walk(hint)
    }
    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each not in annotations}
    return [*impurities(ast.unparse(node)), *sorted(f"uses {each}" for each in used & waiting)]


MARKED = [
    (path, node.name)
    for path in all_modules()
    if path not in PURE
    for node in ast.parse((ROOT / path).read_text("utf-8")).body
    if isinstance(node, ast.ClassDef | ast.FunctionDef) and is_marked(node)
]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\n\ndef f():\n    'Pure.'\n    return 1", []),
        ("import time\n\ndef f():\n    'Pure.'\n    return time.monotonic()", ["uses time"]),
        ("from pathlib import Path\n\ndef f(at: Path):\n    'Pure.'\n    return at.name", []),
        ("from pathlib import Path\n\nclass f:\n    'Pure.'\n    def g(self): return Path()", ["uses Path"]),
    ],
)
def test_what_a_marked_definition_uses_of_its_module_is_found(source: str, found: list[str]) -> None:
    assert impurities_of("f", source) == found


@pytest.mark.parametrize(("path", "name"), MARKED)
def test_what_is_marked_neither_waits_nor_writes_nor_draws(path: str, name: str) -> None:
    assert impurities_of(name, (ROOT / path).read_text("utf-8")) == []


def test_many_modules_are_pure_and_some_definitions_beside_their_shell() -> None:
    assert len(PURE) > 50
    assert len(MARKED) > 10

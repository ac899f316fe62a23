"""What decides does not wait, write or draw: the table in docs/architecture.md, and all modules that say "Pure"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_repository import PACKAGES

ROOT = Path(__file__).parents[1]
TABLE = re.findall(
    r"^\| [^|`]+ \| `([\w/]+\.py)` \| `([\w/]+\.py)` \|$",
    (ROOT / "docs" / "architecture.md").read_text("utf-8"),
    re.MULTILINE,
)
"""Deciders and their shells."""
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


def is_pure(path: Path) -> bool:
    return re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "") is not None


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


def module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


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


def test_many_modules_are_pure() -> None:
    assert len(PURE) > 50
    assert len(TABLE) > 12


@pytest.mark.parametrize(("decider", "shell"), TABLE)
def test_a_shell_carries_out_what_its_decider_decides(decider: str, shell: str) -> None:
    assert is_pure(ROOT / decider), f"the docstring of {decider} does not say that it is pure"
    assert not is_pure(ROOT / shell)
    known = imported((ROOT / shell).read_text("utf-8"))
    for other, _ in TABLE:  # a decider may pass decisions of another on to its shell
        if module(other) in known:
            known |= imported((ROOT / other).read_text("utf-8"))
    assert module(decider) in known


def test_deciders_do_not_know_their_shells() -> None:
    shells = {module(shell) for _, shell in TABLE}
    assert {path: known for path in PURE if (known := imported((ROOT / path).read_text("utf-8")) & shells)} == {}


def test_every_decider_beside_a_shell_is_in_the_table() -> None:
    rooms = {Path(shell).parent for _, shell in TABLE}
    beside = {path for path in PURE if Path(path).parent in rooms}
    assert beside - {decider for decider, _ in TABLE} == set()

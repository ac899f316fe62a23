"""Every module of the product is imported, directly or not, by a command, or by a library that documents describe."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.test_repository import PACKAGES, ROOT, imports_of

LIBRARIES = {
    "cluster.testing": "docs/how-to/try-and-test-queries.md",
    "firmware_sim.virtual_time.fleet": "docs/reference/motes.md",
}
"""Modules that programs of users import, and where that is described."""


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(file): file for package in PACKAGES for file in (ROOT / package).rglob("*.py")}


def read_by(name: str) -> Iterator[str]:
    """Names that a module imports, or has as texts: those of modules that run as processes, or are imported late."""
    yield from imports_of(MODULES[name])
    for node in ast.walk(ast.parse(MODULES[name].read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]


def commands() -> set[str]:
    """The modules behind the scripts and entry points of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = [*project["scripts"].values(), *(t for g in project["entry-points"].values() for t in g.values())]
    return {target.partition(":")[0] for target in targets} | {each for each in MODULES if each.endswith(".__main__")}


def reached_from(names: set[str]) -> set[str]:
    reached: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in MODULES and name not in reached:
            reached.add(name)
            left += [*read_by(name), name.rpartition(".")[0]]
    return reached


def test_every_module_is_reached_from_a_command_or_a_documented_library() -> None:
    assert len(commands()) > 10
    assert sorted(MODULES.keys() - reached_from(commands() | LIBRARIES.keys())) == []


def test_libraries_are_described_and_no_command_needs_them() -> None:
    assert LIBRARIES.keys() & reached_from(commands()) == set()
    for name, page in LIBRARIES.items():
        text = (ROOT / page).read_text("utf-8")
        assert name in text, f"{page} does not name {name}"

"""The examples in docstrings say what happens."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("protocols", "firmware_sim", "proxy", "cluster")
FILES = [
    path.relative_to(ROOT)
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
FOLDERS = sorted({path.parent.as_posix() for path in FILES})


@pytest.mark.parametrize("folder", FOLDERS)
def test_examples_are_true(folder: str) -> None:
    for path in FILES:
        if path.parent.as_posix() == folder:
            found = doctest.testmod(import_module(".".join(path.with_suffix("").parts)))
            assert found.attempted
            assert not found.failed

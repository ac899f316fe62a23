"""docs/explanation/proofs.md says of each promise what proves it, and names no test and no target that is not there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.proof.parts import PARTS
from tests.proof.record import ROOT

PAGE = (ROOT / "docs" / "explanation" / "proofs.md").read_text("utf-8")
PROMISES, MOVED = PAGE.split("## Tests that only `make proof` runs")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table, without its head."""
    found = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in found[2:]]


def quoted(cell: str) -> list[str]:
    """Return what is written as code."""
    return re.findall(r"`([^`]+)`", cell)


def is_there(name: str) -> bool:
    """Return whether a target, a file, or a test in a file is there."""
    if name.startswith("make "):
        return name.removeprefix("make ") in TARGETS
    file, _, test = name.partition("::")
    return (ROOT / file).exists() and (not test or f"def {test}(" in (ROOT / file).read_text("utf-8"))


def marked() -> Iterator[str]:
    """Yield the tests that only the proof runs."""
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        text = path.read_text("utf-8")
        if "mark.proof" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                "mark.proof" in ast.unparse(each) for each in node.decorator_list
            ):
                yield f"{path.relative_to(ROOT)}::{node.name}"


@pytest.mark.parametrize("row", rows(PROMISES), ids=lambda row: row[0])
def test_each_promise_is_proven_in_the_gate_by_tests_that_are_there(row: list[str]) -> None:
    promise, gate, proof = row
    assert promise
    assert quoted(gate), "there is something in the gate"
    assert [each for each in quoted(gate) + quoted(proof) if not is_there(each)] == []
    assert all(each.startswith("tests/") for each in quoted(gate))
    assert all(each.startswith("make ") for each in quoted(proof))


def test_every_part_of_the_proof_proves_a_promise() -> None:
    named = {each for row in rows(PROMISES) for each in quoted(row[2])}
    assert {f"make {part.command[1]}" for part in PARTS} == named


def test_every_test_that_only_the_proof_runs_is_named_with_what_stands_for_it() -> None:
    moved = {quoted(test)[0]: quoted(instead) for test, instead in rows(MOVED)}
    assert sorted(moved) == sorted(marked())
    assert all(moved.values())
    assert [each for instead in moved.values() for each in instead if not is_there(each)] == []
    assert not {each for instead in moved.values() for each in instead} & {*moved}, "that is in the proof only, too"


def test_no_whole_file_is_left_to_the_proof() -> None:
    """Its tests would have no name on the page."""
    marked_whole = re.compile(r"^pytestmark\b.*mark\.proof", re.MULTILINE)
    left = [path for path in (ROOT / "tests").rglob("*.py") if marked_whole.search(path.read_text("utf-8"))]
    assert left == []


@pytest.mark.parametrize("name", ["make nothing", "tests/nothing", "tests/proof/test_promises.py::test_nothing"])
def test_what_is_not_there_is_noticed(name: str) -> None:
    assert not is_there(name)

"""Every kind of operation has one running kind, beside its operator, and every running kind has every fact."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from cluster.fjord.running_kind import PassesNoOrigins, RunningKind
from cluster.fjord.running_kinds import ENTRIES, RUNNING_KINDS, operator_of, running_kind
from cluster.operators.operation import Operation, Prompt
from cluster.physical import operations as kinds
from cluster.physical.operations import OPERATIONS
from cluster.physical.rules import pieces

ENGINE = Path(inspect.getfile(RunningKind)).parent
MOST_CLASSES = 12
"""A `match` over more classes than this is a list of all kinds, in the wrong place."""
CUTTING = {
    kinds.UntilNext,
    kinds.SessionWindow,
    kinds.CountWindow,
    kinds.Ranked,
    kinds.Extent,
    kinds.KeptExtent,
    kinds.Held,
}
"""What may cut rows at watermarks."""


class Unheard(Prompt, frozen=True, tag="Unheard"):
    def describe(self) -> str:
        return "of no operator"


def finished(base: type[RunningKind] = RunningKind) -> Iterator[type[RunningKind]]:
    """Yield the classes of running kinds that can be made, wherever they are defined."""
    for each in base.__subclasses__():
        yield from finished(each)
        if each.__subclasses__() == [] and each.__module__ != RunningKind.__module__:
            yield each


def test_every_kind_of_operation_has_one_running_kind() -> None:
    assert Counter(kind for kind, _ in ENTRIES) == Counter(OPERATIONS)
    assert dict(RUNNING_KINDS) == dict(ENTRIES)


def test_every_running_kind_is_of_one_kind_of_operation() -> None:
    assert Counter(type(running) for _, running in ENTRIES) == Counter(finished())


@pytest.mark.parametrize("running", RUNNING_KINDS.values(), ids=[kind.kind_name() for kind in RUNNING_KINDS])
def test_every_running_kind_stands_with_an_operator_and_has_every_fact(running: RunningKind) -> None:
    assert type(running).__module__.startswith("cluster.fjord.operators.")
    assert type(running).__abstractmethods__ == frozenset()
    assert type(running).__final__


@pytest.mark.parametrize("lacks", ["instantiate", "with_origins", "flow", "kept"])
def test_what_has_no_safe_answer_is_asked_of_each(lacks: str) -> None:
    assert lacks in RunningKind.__abstractmethods__


def test_a_kind_without_a_running_kind_is_named_and_what_to_do_about_it() -> None:
    for ask in (running_kind, operator_of):
        with pytest.raises(TypeError, match=r"Unheard has no running kind: .* enter it in .*/running_kinds\.py"):
            ask(Unheard())


@pytest.mark.parametrize("operation", [kinds.Sink(), kinds.GroupedFilter(0, (), visible_from=False)])
def test_what_needs_its_fragment_is_named_without_one(operation: Operation) -> None:
    with pytest.raises(TypeError, match=f"^{operation.kind_name()} is instantiated with its fragment$"):
        operator_of(operation)


def test_what_rules_ask_for_origins_has_an_operator_with_them() -> None:
    asked = {*get_args(pieces._PASSES_ON), *CUTTING}
    assert {kind for kind, running in ENTRIES if not isinstance(running, PassesNoOrigins)} == asked


def classes_told_apart(function: ast.AST) -> int:
    matches = (node for node in ast.walk(function) if isinstance(node, ast.Match))
    patterns = (part for match in matches for case in match.cases for part in ast.walk(case.pattern))
    return sum(isinstance(part, ast.MatchClass) for part in patterns)


def test_no_function_of_the_engine_lists_all_kinds() -> None:
    found = [
        f"{file.name}: {function.name}"
        for file in sorted(ENGINE.rglob("*.py"))
        for function in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef) and classes_told_apart(function) >= MOST_CLASSES
    ]
    assert found == []

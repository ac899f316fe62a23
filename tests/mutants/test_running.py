"""Runs in copies: outcomes of mutants, and a checkout that does not change."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutants.changes import mutants_of
from tests.mutants.running import StoppedError, SuiteError, Workshop
from tests.mutants.shortening import pytest_collection_modifyitems
from tests.mutants.suite import FEWER_EXAMPLES

SOURCE = b"def f(a):\n    return a < 3\n"
CHECK = """
import os, signal, sys
from m import f
print("FAILED tests/a.py::test_f - because")
sys.exit({})
"""


@pytest.fixture
def made(tmp_path):
    def make(check):
        root, folder = tmp_path / "root", tmp_path / "copies"
        (root / "package").mkdir(parents=True)
        folder.mkdir()
        (root / "m.py").write_bytes(SOURCE)
        (root / "check.py").write_text(CHECK.format(check), encoding="utf-8")
        shop = Workshop(root, folder, [sys.executable, "check.py"], copied=("m.py", "check.py", "package", "none"))
        return shop, root

    return make


def mutant(operator="comparison"):
    return next(each for each in mutants_of("m.py", SOURCE) if each.operator == operator)


@pytest.mark.parametrize(("check", "outcome", "killed_by"), [
    ("f(3)", "killed", "tests/a.py::test_f"),
    ("f(5)", "survived", ""),
    ("os.kill(os.getpid(), signal.SIGXCPU) if f(3) else 0", "timeout", ""),
])  # fmt: skip
def test_outcomes_of_a_mutant(made, check, outcome, killed_by):
    shop, root = made(check)
    shop.prepare(2, 60.0)
    for _ in range(3):
        run = shop.run(mutant())
        assert (run.outcome, run.killed_by) == (outcome, killed_by)
    assert (root / "m.py").read_bytes() == SOURCE
    assert sorted(each.name for each in root.iterdir()) == ["check.py", "m.py", "package"]


def test_a_suite_that_fails_without_a_mutant_is_refused(made):
    shop, _ = made("f(1)")
    with pytest.raises(SuiteError, match="fails on the unchanged source"):
        shop.prepare(1, 60.0)


def test_a_suite_that_takes_too_long_is_refused(made):
    shop, _ = made("f(5)")
    with pytest.raises(SuiteError, match="0 at most"):
        shop.prepare(1, 0.0)


def test_a_run_that_is_stopped_ends_at_once(made):
    shop, _ = made("0 if not f(3) else signal.pause()")
    shop.prepare(1, 60.0)
    found = []

    def run():
        try:
            shop.run(mutant())
        except StoppedError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    shop.stop()
    thread.join(30)
    assert len(found) == 1


def test_property_tests_draw_fewer_examples():
    drawn = []

    @settings(max_examples=100)
    @given(st.integers())
    def test(number):
        drawn.append(number)

    pytest_collection_modifyitems([SimpleNamespace(obj=test), SimpleNamespace(obj=print), SimpleNamespace()])
    test()
    first = list(drawn)
    assert len(first) == 100 // FEWER_EXAMPLES
    drawn.clear()
    test()
    assert drawn == first

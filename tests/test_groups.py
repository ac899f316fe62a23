"""Tests that share what there is once run in one process, those of another group in another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SHARED

CONFTEST = """
import os
import pytest
from tests.conftest import pytest_collection_modifyitems

@pytest.fixture(scope="session")
def {first}():
    return os.getpid()

@pytest.fixture(scope="session")
def {second}():
    return os.getpid()
"""
TESTS = """
import os
import pytest

@pytest.mark.parametrize("number", range(6))
def test_one({first}, number):
    print("ran", "{first}", os.getpid())

@pytest.mark.parametrize("number", range(6))
def test_other({second}, number):
    print("ran", "{second}", os.getpid())
"""


def processes(folder: Path, first: str, second: str) -> list[set[str]]:
    """Return in which processes tests ran that use one fixture, and those that use another."""
    (folder / "conftest.py").write_text(CONFTEST.format(first=first, second=second))
    (folder / "test_it.py").write_text(TESTS.format(first=first, second=second))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rP",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-p",
        "no:cacheprovider",
        folder,
    ]
    root = Path(__file__).parents[1]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines() if line.startswith("ran ")]
    assert len(lines) == 12
    return [{process for _, each, process in lines if each == name} for name in (first, second)]


def test_tests_of_one_group_share_a_process_and_others_run_beside_them(tmp_path: Path) -> None:
    assert SHARED["spark"] != SHARED["postgres"]
    spark, postgres = processes(tmp_path, "spark", "postgres")
    assert len(spark) == len(postgres) == 1
    assert spark != postgres


def test_two_fixtures_of_one_group_are_in_one_process(tmp_path: Path) -> None:
    assert SHARED["postgres"] == SHARED["running_parts"]
    postgres, parts = processes(tmp_path, "postgres", "running_parts")
    assert postgres == parts
    assert len(parts) == 1


def test_only_tests_of_one_session_of_spark_are_bound_to_its_process() -> None:
    others = {name: group for name, group in SHARED.items() if group == SHARED["spark"]}
    assert others == {"spark": "Spark"}, "what starts processes of its own can run beside it"


def test_what_may_be_made_again_binds_no_test_that_needs_another_group(request: pytest.FixtureRequest) -> None:
    from tests.conftest import pytest_collection_modifyitems

    item = pytest.Function.from_parent(request.node.parent, name="a", callobj=lambda: None)
    item.fixturenames = ["spark", "undisturbed"]  # type: ignore[misc]
    pytest_collection_modifyitems(request.config, [item])
    assert [mark.args for mark in item.iter_markers("xdist_group")] == [("Spark",)]


def test_a_test_that_needs_what_two_groups_have_is_refused(request: pytest.FixtureRequest) -> None:
    from tests.conftest import pytest_collection_modifyitems

    item = pytest.Function.from_parent(request.node.parent, name="a", callobj=lambda: None)
    item.fixturenames = ["spark", "postgres"]  # type: ignore[misc]
    with pytest.raises(pytest.UsageError, match="needs two"):
        pytest_collection_modifyitems(request.config, [item])

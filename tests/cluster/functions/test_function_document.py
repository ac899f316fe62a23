"""The page about writing functions: its command prints what is shown, and its examples run."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from cluster.functions.calling import CALLS
from protocols.command_line.application import app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "write-functions.md").read_text(encoding="utf-8")
CREATE = "CREATE FUNCTION {} AS 'road_levels:{}'"
DAY = "examples/traffic/la_loop_speeds_day.parquet"


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "functions"))
    before = CALLS.rules
    yield
    CALLS.use(before)


def test_the_command_prints_what_is_shown():
    ((command, shown),) = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    name, *arguments = shlex.split(command)
    assert name == "fjord"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout == shown


def test_the_examples_run():
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "write-functions.md", None, None)
    assert len(test.examples) > 5
    assert doctest.DocTestRunner().run(test).failed == 0


def tried(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["query", "try", *arguments, "--on", DAY, "--text", "sensor"])
    return result.exit_code, " ".join(result.output.split())


def test_functions_of_arrow_and_values_of_parameters_are_arguments(tmp_path):
    Path(tmp_path, "functions.sql").write_text(
        f"{CREATE.format('is_number(TEXT) RETURNS BOOLEAN LANGUAGE ARROW STRICT', 'is_number')};\n"
        f"{CREATE.format('braking_feet(REAL, REAL) RETURNS REAL', 'braking_feet')};\n"
    )
    code, shown = tried(
        "SELECT COUNT(*) AS n, MAX(braking_feet(30.0, :friction)) AS feet FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 DAY) "
        "WHERE is_number(sensor)",
        *("--set", "friction=0.5", "--create", str(tmp_path / "functions.sql"), "--functions", "road_levels"),
    )
    rows = pl.scan_parquet(DAY).select(pl.len()).collect().item()
    assert (code, shown.split()[-2:]) == (0, [str(rows), "60.0"])


@pytest.mark.parametrize(
    ("statement", "allowed", "reason"),
    [
        ("f(REAL) RETURNS REAL", (), "the administrator has not allowed its module with --functions"),
        ("f(REAL) RETURNS REAL", ("--functions", "*"), "'*' names no module of functions"),
        ("f(REAL) RETURNS", ("--functions", "road_levels"), "the type of the result was expected here"),
        ("f(REAL) RETURNS REAL", ("--functions", "road_levels"), "it cannot be called with 1 argument"),
    ],
)
def test_what_is_refused_is_refused_before_files_are_read(statement, allowed, reason):
    made = CREATE.format(statement, "braking_feet") if statement.endswith("REAL") else f"CREATE FUNCTION {statement}"
    code, shown = tried("SELECT f(speed) AS x FROM traffic", "--create", made, *allowed)
    assert code == 1
    assert reason in shown

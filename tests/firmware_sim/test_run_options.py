"""Options of ``fjord motes run`` that would have no effect are refused."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from firmware_sim.command import app


@pytest.mark.parametrize("arguments", [
    ("--stream", "a/b"), ("--stream", "roads"), ("--time-column", "at"), ("--sensor-column", "loop"),
    ("--field", "mph"), ("--exit-at-end",), ("--speed", "2"),
])  # fmt: skip
def test_options_of_a_trace_need_a_trace(arguments: tuple[str, ...]) -> None:
    # An address that cannot be: without a refusal, it would be that which is refused.
    result = CliRunner().invoke(app, ["run", "--broker", "nowhere:0", *arguments])
    assert result.exit_code == 2
    assert arguments[0] in result.output
    assert "only with --trace" in " ".join(result.output.split())


@pytest.mark.parametrize("arguments", [("--world", "road"), ("--motes", "3"), ("--period", "1s")])
def test_options_of_a_generated_world_need_one(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["run", "--broker", "nowhere:0", "--trace", "none.csv", *arguments])
    assert result.exit_code == 2
    assert arguments[0] in result.output
    assert "cannot be combined with --trace" in " ".join(result.output.split())

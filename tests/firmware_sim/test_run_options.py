"""Options of ``fjord motes run`` that would have no effect are refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from firmware_sim import command
from firmware_sim.command import app
from firmware_sim.fleet import Fleet
from firmware_sim.recorded_run import RunOptions, make_fleet
from protocols.mqtt.link import BrokerAddress


@pytest.mark.parametrize("arguments", [
    ("--stream", "a/b"), ("--stream", "roads"), ("--time-column", "at"), ("--sensor-column", "loop"),
    ("--field", "mph"), ("--exit-at-end",), ("--speed", "2"),
    ("--resample",), ("--resample", "5m"),
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


@pytest.mark.parametrize(("arguments", "as_recorded", "period_us"), [
    ((), True, None), (("--resample",), False, None), (("--resample", "--speed", "2"), False, None),
    (("--resample", "5m"), False, 300_000_000), (("--resample=90s", "--seed", "2"), False, 90_000_000),
])  # fmt: skip
def test_a_trace_is_sampled_again_only_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    as_recorded: bool,
    period_us: int | None,
) -> None:
    ran: list[RunOptions] = []

    def run(options: RunOptions, *_: object) -> Fleet:
        ran.append(options)
        return make_fleet(options, BrokerAddress())

    monkeypatch.setattr(command, "_run", run)
    (tmp_path / "trace.csv").write_text("time,sensor,speed\n1000000,a,1\n2000000,a,2\n")
    result = CliRunner().invoke(app, ["run", "--trace", str(tmp_path / "trace.csv"), *arguments])
    assert result.exit_code == 0, result.output
    assert [(each.as_recorded, each.period_us) for each in ran] == [(as_recorded, period_us)]


@pytest.mark.parametrize("period", ["soon", "1us", "400d"])
def test_a_period_of_resampling_is_a_duration_that_motes_can_have(period: str) -> None:
    result = CliRunner().invoke(app, ["run", "--broker", "nowhere:0", "--trace", "none.csv", "--resample", period])
    assert result.exit_code == 2
    assert "--resample" in result.output


def test_options_in_a_log_of_an_earlier_version_are_sampled_again_as_they_were() -> None:
    assert not msgspec.json.decode(b'{"trace":"day.csv"}', type=RunOptions).as_recorded

"""The file of prices in a data folder, the command that measures them, and running queries beside their estimates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from typer.main import get_command

from cluster.costs.prices import SHIPPED, Price, Prices
from cluster.errors import StorageError
from cluster.local import calibration
from cluster.local.calibration import WORKLOADS, Load
from cluster.service.plan_command import plan
from cluster.service.queries.operator_prices import FILE, OperatorPrices, write_prices
from tests.cluster.service.conftest import Service, application

MEASURED = Prices({"Filter": Price(batch=1)}, "2026-11-26 10:00:00", "a machine")
QUERY = "SELECT sensor, AVG(speed) AS mean FROM traffic WINDOW(RANGE 1 MINUTE) WHERE lane = 2 GROUP BY sensor"


def test_a_cluster_that_runs_uses_new_prices(tmp_path: Path) -> None:
    prices = OperatorPrices(tmp_path)
    assert prices.current() is SHIPPED
    write_prices(tmp_path, MEASURED)
    assert prices.current() == MEASURED
    (tmp_path / FILE).unlink()
    assert prices.current() is SHIPPED


def test_a_file_that_cannot_be_read_is_noted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = OperatorPrices(tmp_path)
    (tmp_path / FILE).write_text('{"kinds": {"Join": {"batch": -1}}}')
    assert [prices.current() for _ in range(3)] == [SHIPPED] * 3
    assert capsys.readouterr().err.count("prices of operators cannot be read") <= 1
    write_prices(tmp_path, MEASURED)
    assert prices.current() == MEASURED


def test_without_a_folder_there_is_nothing_to_write_to(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no data folder") as refused:
        write_prices(tmp_path / "none", MEASURED)
    assert "--data" in str(refused.value.hint)


def _calibrate(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(calibration, "LOADS", (Load(50, 1), Load(100, 1)))
    monkeypatch.setattr(calibration, "WORKLOADS", {"Filter": WORKLOADS["Filter"][:1]})
    done = CliRunner().invoke(get_command(plan), ["calibrate", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_the_command_measures_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(_calibrate(monkeypatch, "--data", str(tmp_path), "--json"))
    assert found["file"] == str(tmp_path / FILE)
    assert OperatorPrices(tmp_path).current().named("Filter").batch == found["kinds"]["Filter"].get("batch", 0)
    assert found["measured"]
    assert found["machine"]


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "filter" in _calibrate(monkeypatch, "--data", str(tmp_path), "--dry-run")
    assert list(tmp_path.iterdir()) == []


def test_it_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no data folder"):
        CliRunner().invoke(get_command(plan), ["calibrate", "--data", str(tmp_path / "no")], catch_exceptions=False)


async def test_a_running_query_is_shown_with_what_it_does(service: Service) -> None:
    async with application(service.parts()) as api:
        assert (await api.post("/v1/queries", json={"sql": QUERY, "name": "slow"})).status_code == 201
        shown = (await api.get("/v1/queries/slow/plan")).text
        assert shown.startswith("slow runs in fragment ")
        assert "aggregate AVG(speed) by sensor" in shown
        assert "fjord plan calibrate" in shown
        refused = await api.get("/v1/queries/fast/plan")
        assert (refused.status_code, refused.json()["hint"]) == (404, "running queries: slow")

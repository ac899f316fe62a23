"""The option with which each part is recorded."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from cluster.service.cluster_command import run_cluster
from firmware_sim.command import run
from proxy.command import proxy


@pytest.mark.parametrize("command", [proxy, run_cluster, run])
@pytest.mark.parametrize("name", ["", " "])
def test_a_folder_without_a_name_is_an_error(command, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(command)
    shown = CliRunner().invoke(app, ["--record", name, "--record-size", "1B"])
    assert shown.exit_code == 2, shown.output
    assert "a folder's name is not empty" in shown.output
    assert not list(tmp_path.iterdir())

"""Options of ``fjord cluster`` that would make it stand still are refused."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cluster.service.cluster_command import cluster


@pytest.mark.parametrize(("option", "longest"), [("--commit-interval", "1h"), ("--trigger", "1h")])
@pytest.mark.parametrize("duration", ["106751991d", "2h"])
def test_pauses_are_bounded(option: str, longest: str, duration: str) -> None:
    # Refused before an address that cannot be is looked at.
    result = CliRunner().invoke(cluster, ["--broker", "nowhere:0", option, duration], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert f"'{duration}' is not a duration: it is {longest} at most" in " ".join(result.output.split())

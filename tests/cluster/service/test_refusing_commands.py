"""Commands that refuse what they are given: options of ``fjord cluster``, and files of ``fjord plan draw``."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.errors import ClusterError
from cluster.service import plan_command
from cluster.service.cluster_command import cluster


@pytest.mark.parametrize(("option", "longest"), [("--commit-interval", "1h"), ("--trigger", "1h")])
@pytest.mark.parametrize("duration", ["106751991d", "2h"])
def test_pauses_are_bounded(option: str, longest: str, duration: str) -> None:
    # It is refused before the impossible address is used.
    result = CliRunner().invoke(cluster, ["--broker", "nowhere:0", option, duration], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert f"'{duration}' is not a duration: it must be at most {longest}" in " ".join(result.output.split())


def test_a_cluster_that_records_does_not_replan() -> None:
    result = CliRunner().invoke(cluster, ["--record", "log", "--replan", "on"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "--replan on: is not possible with --record: plans are chosen by what Spark has measured" in " ".join(
        result.output.replace("│", " ").split()
    )


class Client:
    def plan(self, form: str) -> str:
        return f"{form} of nothing" if form != "dot" else 'digraph plan { a -> b [label=" 2 queries "]; }'


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_command, "make_client", lambda _: nullcontext(Client()))


@pytest.mark.parametrize("name", ["gone/plan.mmd", "gone/plan.md", "gone/plan.dot"])
def test_a_missing_folder_is_an_error_of_one_line(drawn: None, tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError, match=r"cannot be written: No such file or directory"):
        plan_command.draw_plan(tmp_path / name, api="")


@pytest.mark.parametrize(("name", "begins"), [("plan.svg", b"<?xml"), ("plan.png", b"\x89PNG"), ("plan.pdf", b"%PDF")])
def test_pictures_are_drawn_without_a_program_of_the_system(
    drawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, begins: bytes
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plan_command.draw_plan(tmp_path / name, api="")
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_without_graphviz_the_error_has_what_to_install(
    drawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    with pytest.raises(ClusterError, match="drawn by Graphviz, which is not installed") as caught:
        plan_command.draw_plan(tmp_path / "plan.svg", api="")
    assert "pip install 'fjord[plots]'" in str(caught.value.hint)

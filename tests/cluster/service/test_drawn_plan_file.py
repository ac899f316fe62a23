"""``fjord plan draw`` into a file that cannot be written."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.service import plan_command


class Client:
    def plan(self, form: str) -> str:
        return f"{form} of nothing"


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_command, "make_client", lambda _: nullcontext(Client()))


@pytest.mark.parametrize("name", ["gone/plan.mmd", "gone/plan.md", "gone/plan.dot"])
def test_a_folder_that_is_not_there_is_said_in_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError, match=r"cannot be written: No such file or directory"):
        plan_command.draw_plan(tmp_path / name, api="")

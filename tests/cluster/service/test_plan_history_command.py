"""``fjord plan history`` prints each change whole, however long its reason is and however narrow the terminal."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from cluster.service import plan_command

WORDS = f"joined migrating (plan 2: streams are joined as ({', '.join(f'stream_{number}' for number in range(40))}))"


class Client:
    """A cluster whose plan has changed once."""

    def plan_history(self, last: int) -> list[dict[str, object]]:
        return [{"epoch": 3, "at_seconds": 0, "words": WORDS, "operators_come": 1_234, "operators_go": 5}][:last]

    def migrations(self) -> list[dict[str, object]]:
        """Return one that waits and one that is under way."""
        return [
            {"query": "q", "why": "plan 2 was asked for", "waits_for": "room: 3"},
            {"query": "p", "why": "", "waits_for": ""},
        ]


@pytest.mark.parametrize("columns", ["80", "120"])
def test_nothing_of_a_change_is_cut_off(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setattr(plan_command, "make_client", lambda _: nullcontext(Client()))
    done = CliRunner().invoke(plan_command.plan, ["history"], env={"COLUMNS": columns}, catch_exceptions=False)
    line, waits = done.output.splitlines()[1:]
    assert waits == "q is to go on with another plan (plan 2 was asked for), and waits for room: 3"
    assert " ".join(line.split()) == f"3 1970-01-01 00:00:00 {WORDS} +1,234 -5"

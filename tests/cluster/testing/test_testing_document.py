"""The page about trying and testing queries: its commands print what is shown, and its examples run."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protocols.command_line.application import app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "try-and-test-queries.md").read_text(encoding="utf-8")
CONSOLES = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), CONSOLES, ids=range(len(CONSOLES)))
def test_commands_print_what_is_shown(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command, _, head = command.partition(" | head -")
    command, given = re.fullmatch(r"(.*?)(?: < (\S+))?", command).groups()
    name, *arguments = shlex.split(command)
    assert name == "fjord"
    result = CliRunner().invoke(app, arguments, input=Path(given).read_text() if given else None)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[: int(head) if head else None] == shown.splitlines()


def test_examples_run() -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "try-and-test-queries.md", None, None)
    assert len(test.examples) > 10
    found = doctest.DocTestRunner().run(test)
    assert found.failed == 0

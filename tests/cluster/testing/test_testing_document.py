"""The pages about trying queries on files and testing them: commands print what is shown, and examples run."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protocols.command_line.application import app

ROOT = Path(__file__).parents[3]
PAGE, QUESTIONS = (
    (ROOT / "docs" / "how-to" / name).read_text(encoding="utf-8")
    for name in ("try-and-test-queries.md", "ask-your-own-files.md")
)
CONSOLES = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE + QUESTIONS, re.MULTILINE | re.DOTALL)


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


def test_the_file_that_is_asked_begins_as_is_shown() -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```", QUESTIONS, re.MULTILINE | re.DOTALL)
    assert (ROOT / "examples" / "files" / "rooms.csv").read_text().startswith(shown)


def test_examples_run() -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "try-and-test-queries.md", None, None)
    assert len(test.examples) > 10
    found = doctest.DocTestRunner().run(test)
    assert found.failed == 0

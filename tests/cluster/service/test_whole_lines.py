"""What commands print has whole lines, wherever it goes."""

from __future__ import annotations

import pytest
from rich.table import Table

from cluster.service.client.command import print_whole


def test_a_table_is_as_wide_as_it_is_and_brackets_are_no_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = Table("headings of some length", "another", box=None)
    table.add_row("x" * 100, "[bold]as it is[/bold]")
    print_whole("[red]" + "y" * 200, table)
    first, headings, row = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert first == "[red]" + "y" * 200
    assert headings.split() == ["headings", "of", "some", "length", "another"]
    assert row.split("  ", 1)[0].strip() == "x" * 100
    assert row.endswith("[bold]as it is[/bold]")

"""The incidents of examples/traffic from SQLite: the same file and statements as for PostgreSQL, but for the source."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cluster.language.declarations import CreateRelation
from cluster.language.translation import parse_statement
from cluster.relations.allowed_files import AllowedFiles
from cluster.relations.opening import Reach, open_source
from cluster.relations.source import Limits

EXAMPLE = Path(__file__).parents[3] / "examples" / "traffic"


@pytest.mark.parametrize("name", ["incidents", "recent"])
def test_both_databases_are_asked_alike(name):
    one, other = (parse_statement((EXAMPLE / kind / f"{name}.sql").read_text()) for kind in ("postgresql", "sqlite"))
    assert isinstance(one, CreateRelation)
    assert isinstance(other, CreateRelation)
    assert (one.name, one.columns, one.refresh_us, one.stale_us) == (
        other.name, other.columns, other.refresh_us, other.stale_us
    )  # fmt: skip


def test_recent_is_by_the_clock_of_the_database_and_the_day_by_its_date(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def rows(name):
        statement = parse_statement((EXAMPLE / "sqlite" / f"{name}.sql").read_text())
        assert isinstance(statement, CreateRelation)
        source = open_source(statement, limits=Limits(), reach=Reach(AllowedFiles([tmp_path])))
        return sorted(source.rows(statement.columns).rows())

    with closing(sqlite3.connect("roads.db")) as database:
        database.executescript((EXAMPLE / "incidents.sql").read_text())
    day = rows("incidents")
    assert len(day) == 5
    assert ("716339", "debris on the road") not in day
    assert rows("recent") == []
    with closing(sqlite3.connect("roads.db")) as database:
        database.executescript((EXAMPLE / "report.sql").read_text())
    assert rows("recent") == [("r01l4", "lorry on the hard shoulder")]
    assert rows("incidents") == day

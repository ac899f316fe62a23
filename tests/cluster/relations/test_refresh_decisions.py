"""When a source is read, and which version follows, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.relations.refresh_decisions import (
    Commit,
    Freshness,
    Refreshing,
    commit_after_read,
    overdue_failure,
    rows_needed,
)

STALE = Freshness(refresh_seconds=30.0, stale_seconds=300.0, fresh_at=0.0).failed("connection refused")
FAILING = Refreshing(STALE, next_look=30.0, reading=False, preparing=False, failure="")


@pytest.mark.parametrize(("now", "due"), [(29.9, False), (30.0, True), (99.0, True)])
def test_a_source_is_read_from_its_instant_on(now: float, *, due: bool) -> None:
    assert FAILING.is_due(now) is due


def test_a_source_that_is_being_read_is_not_read_again() -> None:
    assert not replace(FAILING, reading=True).is_due(1e9)


@pytest.mark.parametrize(
    ("change", "now", "overdue"),
    [
        ({}, 300.0, True),
        ({}, 299.9, False),
        ({"freshness": replace(STALE, failures=0)}, 1e9, False),
        ({"freshness": replace(STALE, stale_seconds=None)}, 1e9, False),
        ({"freshness": replace(STALE, fresh_at=None)}, 1e9, False),
        ({"preparing": True}, 300.0, False),
        ({"failure": "stated before"}, 300.0, False),
        ({"failure": None}, 300.0, False),
    ],
)
def test_rows_are_declared_stale_once(change: dict[str, object], now: float, *, overdue: bool) -> None:
    assert replace(FAILING, **change).is_overdue(now) is overdue


def test_an_overdue_relation_is_described() -> None:
    text = overdue_failure("roads", STALE)
    assert text == "relation roads has been stale for 5 minutes: connection refused"


@pytest.mark.parametrize(
    ("changed", "needed", "failure", "commit"),
    [
        (True, True, None, Commit.ROWS),
        (True, True, "", Commit.ROWS),
        (True, True, "away", Commit.ROWS),
        (True, False, "", Commit.NOTHING),
        (True, False, "away", Commit.RECOVERY),
        (False, True, "", Commit.NOTHING),
        (False, True, "away", Commit.RECOVERY),
        (False, False, None, Commit.NOTHING),
    ],
)
def test_a_version_follows_a_read(*, changed: bool, needed: bool, failure: str | None, commit: Commit) -> None:
    assert commit_after_read(changed=changed, needed=needed, failure=failure) is commit


def test_rows_of_a_built_in_relation_are_kept_while_queries_need_them() -> None:
    idle = {"built_in": True, "wanted": False, "has_version": True, "same_columns": True, "is_read": lambda: False}
    assert not rows_needed(**idle)
    for change in (
        {"built_in": False},
        {"wanted": True},
        {"has_version": False},
        {"same_columns": False},
        {"is_read": lambda: True},
    ):
        assert rows_needed(**idle | change), change

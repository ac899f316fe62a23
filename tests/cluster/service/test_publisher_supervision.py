"""What a cluster decides about its publishers' processes, without any process."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.service.publishing.publisher_channel import News, Note
from cluster.service.publishing.supervised_publishers import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    NEWS_SECONDS,
    NewsToWrite,
    RestartPauses,
)


@given(st.lists(st.booleans()))
def test_pauses_double_until_an_attempt_succeeds(attempts: list[bool]) -> None:
    pauses, before = RestartPauses(), FIRST_PAUSE_SECONDS / 2
    for succeeded in attempts:
        pause = pauses.after(succeeded=succeeded)
        assert pause == (FIRST_PAUSE_SECONDS if succeeded else min(2 * before, LONGEST_PAUSE_SECONDS))
        before = pause


def test_a_version_is_written_once() -> None:
    news = NewsToWrite()
    assert news.due(3, None) == News(3)
    assert news.due(3, None) is None
    assert news.due(4, None) == News(4)


def test_notes_are_written_when_they_have_changed() -> None:
    news, notes = NewsToWrite(), {"q": Note({"slower": 1})}
    assert news.due(3, {}) == News(3)
    assert news.due(3, notes) == News(3, notes)
    assert news.due(3, dict(notes)) is None
    assert news.due(4, dict(notes)) == News(4)
    assert news.due(4, {}) == News(4, {})
    assert news.due(4, {}) is None


def test_notes_are_looked_at_now_and_then() -> None:
    news = NewsToWrite()
    assert news.looks_at_notes(10.0)
    assert not news.looks_at_notes(10.0 + NEWS_SECONDS / 2)
    assert news.looks_at_notes(10.0 + NEWS_SECONDS)

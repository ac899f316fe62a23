"""Topics: built and parsed alike; anything else refused."""

from __future__ import annotations

import pytest

from protocols.errors import TopicError
from protocols.wire import topics

BUILT = {
    topics.packet("p", "m"): ("packet", ("p", "m")),
    topics.announcement("p", "m"): ("announcement", ("p", "m")),
    topics.proxy_clock("p"): ("proxy_clock", ("p",)),
    topics.proxy_spool("p"): ("proxy_spool", ("p",)),
    topics.proxy_waits("p"): ("proxy_waits", ("p",)),
    topics.proxy_backlog("p", "1-1"): ("proxy_backlog", ("p", "1-1")),
    topics.control("p", "m"): ("control", ("p", "m")),
    topics.batches("p"): ("batches", ("p",)),
    topics.acks("p"): ("acks", ("p",)),
    topics.resumptions("p"): ("resumptions", ("p",)),
    topics.proxy_status("p"): ("proxy_status", ("p",)),
    topics.stream_offer("p", "s"): ("stream_offer", ("p", "s")),
    topics.mote_entry("p", "m"): ("mote_entry", ("p", "m")),
    topics.cluster_status("c"): ("cluster_status", ("c",)),
    topics.demand("s"): ("demand", ("s",)),
    topics.results("q"): ("results", ("q",)),
    topics.query_errors("q"): ("query_errors", ("q",)),
}


@pytest.mark.parametrize(("topic", "parsed"), BUILT.items())
def test_what_is_built_is_parsed(topic: str, parsed: tuple[str, tuple[str, ...]]) -> None:
    found = topics.parse(topic)
    assert (found.kind, found.names) == parsed


@pytest.mark.parametrize(
    "topic",
    ["", "fjord/v1", "fjord/v2/results/q", "fjord/v1/results", "fjord/v1/results/q/x", "fjord/v1/motes/p/m/other",
     "fjord/v1/results/a b", "fjord/v1/results/", "fjord/v1/results/+", "other"],
)  # fmt: skip
def test_topics_that_are_not_fjords_are_refused(topic: str) -> None:
    with pytest.raises(TopicError):
        topics.parse(topic)


@pytest.mark.parametrize(
    "name", ["", "a/b", "a+", "#", "-a", "a.", "e\u0301", "\u0301", "a\u200db", "x" * 65, "é" * 65, "a\n"]
)
def test_names_that_cannot_be_part_of_a_topic(name: str) -> None:
    with pytest.raises(TopicError, match="cannot be part"):
        topics.results(name)


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 64, "_x_", "7.große-straße", "é" * 64, "温度"])
def test_names_that_may_be_part_of_a_topic(name: str) -> None:
    assert topics.parse(topics.results(name)).names == (name,)


def test_proxies_and_clusters_have_names_of_ascii() -> None:
    for built in (topics.batches, topics.cluster_status):
        with pytest.raises(TopicError, match="access rules"):
            built("ä")
    with pytest.raises(TopicError, match="access rules"):
        topics.parse("fjord/v1/proxies/ä/streams/s")
    assert topics.parse("fjord/v1/proxies/p/streams/ä").names == ("p", "ä")

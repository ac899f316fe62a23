"""Which message about demands is next, without a broker: a head comes after its pieces, whatever is lost meanwhile.

begin a, b    a3  a9  head a  b1  head b
              a3  x           b1  head b      x: not published, so the head of a is not, either
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.service.publishing import published_demands
from cluster.service.publishing.published_demands import Publish, PublishedDemands, UnpublishedDemands
from protocols.wire import topics
from protocols.wire.demands import QueryDemand, StreamDemand, encode_query_demand, piece_of
from protocols.wire.frames import VERSION
from proxy.fleet.demand_assembly import DemandAssembly

NAMES = [f"q{number}" for number in range(6)]
STREAMS = ("a", "b")


@pytest.fixture(autouse=True)
def _pieces_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_demands, "WHOLE_BYTES", 0)


class Cluster:
    """Demands, and a broker that keeps what it is sent."""

    def __init__(self) -> None:
        self.demands = PublishedDemands()
        self.unpublished = UnpublishedDemands(self.demands, lambda stream: StreamDemand(VERSION, "c", stream, 1, ()))
        self.retained: dict[str, bytes] = {}
        self.sent: list[tuple[str, int | None]] = []

    def add(self, name: str, stream: str = "a", period_us: int = 1) -> None:
        demand = QueryDemand(name, ("t",), period_us)
        self.demands.pieces(stream).add(name, name, 1, [(demand, encode_query_demand(demand))])

    def take(self, each: Publish) -> None:
        assert each.message.retain
        self.sent.append((each.stream, each.piece))
        self.retained[each.message.topic] = each.message.payload
        self.unpublished.published(each)

    def publish(
        self,
        *streams: str,
        fails: Callable[[Publish], bool] = lambda _: False,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[tuple[str, int | None]]:
        """Publish what is due; return the streams and pieces that arrived."""
        self.sent = []
        self.unpublished.begin(streams)
        while (each := self.unpublished.next()) is not None:
            meanwhile()
            if fails(each):
                self.unpublished.failed(each)
            else:
                self.take(each)
        return self.sent

    def read(self, stream: str = "a") -> list[str] | None:
        """Return the queries whose demands a new proxy reads from the broker; None if pieces are missing."""
        assembly, found = DemandAssembly(stream), None
        if topics.demand(stream) in self.retained:
            found = assembly.receive_head(self.retained[topics.demand(stream)], 0)
        for name in NAMES:
            if payload := self.retained.get(topics.demand_piece(stream, piece_of(name))):
                found = assembly.receive_piece(piece_of(name), payload) or found
        return None if found is None else sorted(each.query for each in found.demand.demands)


def numbers(*names: str) -> list[int]:
    return sorted(piece_of(name) for name in names)


def test_pieces_are_published_then_their_head_one_stream_after_the_other() -> None:
    cluster = Cluster()
    for stream in STREAMS:
        cluster.add("q0", stream)
        cluster.add("q1", stream)
    own = [*numbers("q0", "q1"), None]
    assert cluster.publish("b", "a") == [(stream, piece) for stream in STREAMS for piece in own]
    assert cluster.publish("b", "a") == [("a", None), ("b", None)]
    assert cluster.read("a") == cluster.read("b") == ["q0", "q1"]
    cluster.demands.pieces("a").drop("q0", "q0")
    assert cluster.publish("a") == [("a", piece_of("q0")), ("a", None)]
    assert cluster.retained[topics.demand_piece("a", piece_of("q0"))] == b""
    assert cluster.read() == ["q1"]


@pytest.mark.parametrize("piece", [*numbers("q0", "q1"), None])
def test_what_failed_is_due_again_and_other_streams_go_on(piece: int | None) -> None:
    cluster = Cluster()
    for stream in STREAMS:
        cluster.add("q0", stream)
        cluster.add("q1", stream)
    own = [*numbers("q0", "q1"), None]
    before = own[: own.index(piece)]
    sent = cluster.publish(*STREAMS, fails=lambda each: each.stream == "a" and each.piece == piece)
    assert sent == [*(("a", each) for each in before), *(("b", each) for each in own)]
    assert cluster.publish("a") == [("a", each) for each in own if each not in before or each is None]


def test_a_head_is_as_demands_stand_when_its_turn_comes() -> None:
    cluster = Cluster()
    cluster.add("q0")
    cluster.publish("a")
    cluster.unpublished.begin("a")
    cluster.demands.pieces("a").drop("q0", "q0")
    head = cluster.unpublished.next()
    assert head is not None
    assert head.piece == piece_of("q0")
    cluster.take(head)
    while (each := cluster.unpublished.next()) is not None:
        cluster.take(each)
    assert cluster.read() == []


def test_what_arrives_after_a_new_connection_is_published_on_it_again() -> None:
    cluster = Cluster()
    cluster.add("q0")
    cluster.unpublished.begin("a")
    piece = cluster.unpublished.next()
    assert piece is not None
    cluster.unpublished.connected("a")
    cluster.unpublished.published(piece)
    assert cluster.publish("a") == [("a", piece_of("q0")), ("a", None)]
    cluster.unpublished.connected("a")
    assert cluster.publish("a") == [("a", piece_of("q0")), ("a", None)], "it has all pieces once more"


def test_a_round_that_was_cancelled_is_not_gone_on_with() -> None:
    cluster = Cluster()
    cluster.add("q0")
    cluster.add("q1")
    cluster.unpublished.begin("a")
    assert cluster.unpublished.next() is not None
    assert cluster.publish("a") == [*(("a", each) for each in numbers("q0", "q1")), ("a", None)]
    assert cluster.unpublished.next() is None


def test_requested_pieces_of_known_streams_are_published_again() -> None:
    cluster = Cluster()
    cluster.add("q0")
    cluster.add("q1")
    cluster.publish("a")
    wanted = frozenset({piece_of("q1"), 4_000})
    assert cluster.unpublished.requested({"a": wanted, "other": wanted}) == ["a"]
    assert not cluster.demands.known("other")
    assert cluster.publish("a") == [("a", piece_of("q1")), ("a", None)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "drop", "publish", "fail", "lose", "ask"]),
        st.sampled_from(NAMES),
        st.integers(0, 4),
    ),
    max_size=30,
)


@given(STEPS, STEPS)
def test_a_new_proxy_reads_all_demands_after_a_round_without_faults(
    steps: list[tuple[str, str, int]], meanwhile: list[tuple[str, str, int]]
) -> None:
    cluster, running = Cluster(), set[str]()
    later = iter(meanwhile)

    def change(kind: str, name: str) -> None:
        if kind == "add" and name not in running:
            running.add(name)
            cluster.add(name, period_us=len(running))
        elif kind == "drop" and name in running:
            running.discard(name)
            cluster.demands.pieces("a").drop(name, name)
        elif kind == "lose":
            cluster.retained.clear()
            cluster.unpublished.connected("a")

    def one_more() -> None:
        for kind, name, _ in later:
            change(kind, name)
            break

    for kind, name, place in steps:
        change(kind, name)
        if kind == "publish":
            cluster.publish("a", meanwhile=one_more)
        elif kind == "fail":
            left = iter(range(place))
            cluster.publish("a", fails=lambda _, left=left: next(left, None) is None)  # type: ignore[misc]
        elif kind == "ask":
            cluster.unpublished.requested({"a": frozenset(numbers(name))})
    cluster.publish("a")
    assert cluster.read() == sorted(running)

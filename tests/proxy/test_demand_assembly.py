"""Demands assembled from pieces are those that were published as a whole, whatever happens to messages on the way.

The cluster's side is real; the broker keeps the last message of each topic, and the way to the proxy loses, doubles and
delays them. Messages of one topic stay in order, as MQTT promises.

    cluster   piece 3, head 2 ---+---> piece 3, head 2, piece 3 ...     proxy: 1, 1, 2, 2
                                 lost, doubled, late, or kept and sent again
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.service.publishing import published_demands
from cluster.service.publishing.published_demands import StreamPieces
from protocols.errors import FrameError, UnsupportedVersionError
from protocols.wire.demands import (
    MAX_PIECE_BYTES,
    MAX_PIECES_BYTES,
    MOST_DEMANDS,
    PIECES,
    DemandHead,
    QueryDemand,
    StreamDemand,
    decode_demand,
    digest_of,
    encode_piece,
    encode_query_demand,
    piece_of,
    read_head,
)
from protocols.wire.frames import MEBIBYTE, VERSION, encode
from protocols.wire.programs import Band
from proxy.broker.mosquitto import _LARGEST_PACKET_BYTES
from proxy.fleet import demand_assembly
from proxy.fleet.demand_assembly import (
    FIRST_REQUEST_US,
    MOST_BYTES,
    MOST_STREAMS,
    Assembled,
    DemandAssemblies,
    DemandAssembly,
    StoredDemand,
)

HEAD = "head"
KINDS = ["add", "add", "drop", "deliver", "deliver", "lose", "double", "with memory", "without memory", "request"]


def demand(name: str, high: float = 20.0) -> QueryDemand:
    return QueryDemand(name, ("speed",), bands=(Band("speed", high=high),))


def encoded(*demands: QueryDemand) -> list[tuple[QueryDemand, bytes]]:
    return [(each, encode_query_demand(each)) for each in demands]


class Cluster:
    """Publishes demands as a cluster does, and knows each as it was as a whole."""

    def __init__(self) -> None:
        self.pieces = StreamPieces("traffic")
        self.running: list[tuple[str, int]] = []
        self.epoch = 0
        self.wholes: dict[int, tuple[QueryDemand, ...]] = {0: ()}
        self.retained: dict[str, bytes] = {}

    def add(self, dice: random.Random) -> None:
        self.epoch += 1
        name = f"q{self.epoch}"
        demands = encoded(*(demand(name, dice.randrange(90)) for _ in range(dice.choice([1, 1, 2]))))
        self.pieces.add(f"{name}@{self.epoch}", name, self.epoch, demands)
        self.running.append((name, self.epoch))

    def drop(self, dice: random.Random) -> None:
        self.epoch += 1
        if self.running:
            name, since = self.running.pop(dice.randrange(len(self.running)))
            assert self.pieces.drop(f"{name}@{since}", name)

    def publish(self) -> Iterator[tuple[str, bytes]]:
        known = StreamDemand(VERSION, "c", "traffic", self.epoch, ())
        for number, payload in self.pieces.unpublished():
            yield str(number), payload
            self.pieces.note_published(number, payload)
        self.wholes[self.epoch] = tuple(each.demand for each in self.pieces.ordered())
        yield HEAD, self.pieces.head(known)


class Way:
    """From the broker to a proxy: messages of one topic stay in order."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster = cluster
        self.dice = dice
        self.waiting: dict[str, list[bytes]] = {}
        self.assembly = DemandAssembly("traffic")
        self.applied: list[Assembled] = []

    def publish(self) -> None:
        for topic, payload in self.cluster.publish():
            self.cluster.retained[topic] = payload
            self.waiting.setdefault(topic, []).append(payload)

    def deliver(self, *, lost: bool = False, doubled: bool = False) -> bool:
        topics = sorted(topic for topic, waiting in self.waiting.items() if waiting)
        if not topics:
            return False
        topic = self.dice.choice(topics)
        payload = self.waiting[topic].pop(0)
        for _ in range(0 if lost else 2 if doubled else 1):
            if topic == HEAD:
                found = self.assembly.receive_head(payload, 0)
            else:
                found = self.assembly.receive_piece(int(topic), payload)
            if found is not None:
                self.applied.append(found)
        return True

    def reconnect(self) -> None:
        """Let the broker send what it keeps; what was under way is lost."""
        self.waiting = {topic: [payload] for topic, payload in self.cluster.retained.items() if payload}

    def check(self) -> None:
        for each in self.applied:
            assert each.demand.demands == self.cluster.wholes[each.demand.epoch], "half of a change"
            assert not each.unreadable
        self.applied = self.applied[-1:]


@given(
    st.lists(st.sampled_from(KINDS), max_size=60),
    st.sampled_from([0, 150, 10_000]),
    st.integers(1, PIECES),
    st.randoms(use_true_random=False),
)
def test_pieces_are_what_was_published_as_a_whole(
    kinds: list[str], whole_bytes: int, pieces: int, dice: random.Random
) -> None:
    cluster = Cluster()
    way = Way(cluster, dice)
    with (
        patch.object(published_demands, "WHOLE_BYTES", whole_bytes),
        patch.object(published_demands, "piece_of", lambda name: piece_of(name) % pieces),
    ):
        for kind in kinds:
            match kind:
                case "add" | "drop":
                    (cluster.add if kind == "add" else cluster.drop)(dice)
                    way.publish()
                case "with memory":
                    way.reconnect()
                case "without memory":
                    cluster.retained.clear()
                    way.waiting.clear()
                    cluster.pieces.forget_published()
                    way.publish()
                case "request":
                    asked = way.assembly.request("p", 10**18)
                    if asked is not None:
                        cluster.pieces.forget_published(asked.pieces)
                        way.publish()
                case _:
                    way.deliver(lost=kind == "lose", doubled=kind == "double")
            way.check()
        # In the end the proxy has the newest demand: from what the broker keeps, or what it asks for.
        way.publish()
        if dice.random() < 0.5:
            way.reconnect()
        while way.deliver():
            way.check()
        asked = way.assembly.request("p", 10**18)
        if asked is not None:
            cluster.pieces.forget_published(asked.pieces)
            way.publish()
            while way.deliver():
                way.check()
        way.check()
    assert way.applied[-1].demand.epoch == cluster.epoch


def of(*names: str) -> tuple[dict[int, bytes], bytes]:
    """Return the pieces and the head of demands of some queries."""
    by_number: dict[int, list[tuple[int, bytes]]] = {}
    for since, name in enumerate(names, 1):
        by_number.setdefault(piece_of(name), []).append((since, encode_query_demand(demand(name))))
    pieces = {number: encode_piece(VERSION, "traffic", number, entries) for number, entries in by_number.items()}
    digests = {number: digest_of(piece) for number, piece in pieces.items()}
    return pieces, encode(DemandHead(VERSION, "c", "traffic", len(names), digests))


def test_a_change_is_applied_only_when_all_its_pieces_are_here() -> None:
    assembly = DemandAssembly("traffic")
    before, first = of("a", "b")
    after, second = of("a", "b", "c", "d")
    assert assembly.receive_head(first, 0) is None
    found = [assembly.receive_piece(number, payload) for number, payload in before.items()]
    assert [each is not None for each in found] == [False] * (len(before) - 1) + [True]
    changed = [number for number in after if after[number] != before.get(number)]
    assert len(changed) == 2
    assert assembly.receive_piece(changed[0], after[changed[0]]) is None
    assert assembly.receive_head(second, 0) is None
    complete = assembly.receive_piece(changed[1], after[changed[1]])
    assert complete is not None
    assert [each.query for each in complete.demand.demands] == ["a", "b", "c", "d"]


def test_one_demand_more_among_thousands_is_the_only_one_that_is_read() -> None:
    cluster, assembly = Cluster(), DemandAssembly("traffic")
    dice = random.Random(1)
    for _ in range(3_000):
        cluster.add(dice)

    def publish() -> list[int]:
        sizes = []
        for topic, payload in cluster.publish():
            if topic == HEAD:
                assert assembly.receive_head(payload, 0) is not None
            else:
                assembly.receive_piece(int(topic), payload)
            sizes.append(len(payload))
        return sizes

    publish()
    for change in (cluster.add, cluster.drop):
        read = assembly.demands_read
        change(dice)
        sizes = publish()
        assert len(sizes) == 2, "one piece, and the head"
        assert sum(sizes) < 10_000
        assert assembly.demands_read - read <= 2, "a query may have two demands"


def test_missing_pieces_are_requested_less_and_less_often() -> None:
    assembly = DemandAssembly("traffic")
    pieces, head = of("a", "b")
    assembly.receive_head(head, 100)
    at, asked = 100, []
    for _ in range(4):
        while (request := assembly.request("p", at)) is None:
            at += FIRST_REQUEST_US // 5
        assert set(request.pieces) == pieces.keys()
        asked.append(at)
    pauses = [(later - earlier) / FIRST_REQUEST_US for earlier, later in zip([100, *asked], asked, strict=False)]
    assert pauses == [1, 2, 4, 8]
    for number, payload in pieces.items():
        assembly.receive_piece(number, payload)
    assert assembly.request("p", at + 10**12) is None


def test_a_lost_piece_is_requested_however_often_others_change() -> None:
    assembly = DemandAssembly("traffic")
    pieces, _ = of("a", "b")
    lost, changing = sorted(pieces)
    requests = []
    for turn in range(4):
        piece = encode_piece(VERSION, "traffic", changing, [(turn, encode_query_demand(demand("b", 20.0 + turn)))])
        digests = {lost: digest_of(pieces[lost]), changing: digest_of(piece)}
        at_us = turn * (FIRST_REQUEST_US - 1)
        assembly.receive_piece(changing, piece)
        assembly.receive_head(encode(DemandHead(VERSION, "c", "traffic", 1 + turn, digests)), at_us)
        requests.append(assembly.request("p", at_us))
    assert [each and each.pieces for each in requests] == [None, None, (lost,), None]


def test_a_head_is_applied_though_a_piece_was_another_one_meanwhile() -> None:
    assembly = DemandAssembly("traffic")
    first, other = (encode_piece(VERSION, "traffic", 3, [(1, encode_query_demand(demand(name)))]) for name in "ab")
    heads = [encode(DemandHead(VERSION, "c", "traffic", epoch, {3: digest_of(first)})) for epoch in (1, 3)]
    assembly.receive_piece(3, first)
    assert assembly.receive_head(heads[0], 0) is not None
    assembly.receive_piece(3, other)
    assert assembly.receive_head(heads[1], 0) is None
    found = assembly.receive_piece(3, first)
    assert found is not None
    assert found.demand.epoch == 3


def test_a_broker_takes_a_piece_with_all_demands_that_are_accepted() -> None:
    assert MAX_PIECE_BYTES <= _LARGEST_PACKET_BYTES
    assert MAX_PIECES_BYTES + MEBIBYTE <= _LARGEST_PACKET_BYTES


def test_an_earlier_cluster_is_understood() -> None:
    assembly = DemandAssembly("traffic")
    whole = StreamDemand(VERSION, "c", "traffic", 3, (demand("b"), demand("a")))
    found = assembly.receive_head(encode(whole), 0)
    assert found == Assembled(whole)
    again = assembly.receive_head(encode(msgspec.structs.replace(whole, demands=(*whole.demands, demand("c")))), 0)
    assert again is not None
    assert again.demand.demands[0] is found.demand.demands[0], "what is known is not read again"
    assert assembly.demands_read == 3


def test_an_earlier_proxy_keeps_what_it_has() -> None:
    _, head = of("a")
    with pytest.raises(FrameError, match="does not fit its format") as caught:
        decode_demand(head)
    assert caught.value.reason == "shape"


def test_one_bad_demand_is_left_out_and_the_others_hold() -> None:
    assembly = DemandAssembly("traffic")
    bad = msgspec.msgpack.encode(["bad", ["speed"], -1])
    entries = [(1, encode_query_demand(demand("a"))), (2, bad), (3, encode_query_demand(demand("b")))]
    for round_ in range(2):
        piece = encode_piece(VERSION, "traffic", 7, [*entries, *([(4, encode_query_demand(demand("c")))] * round_)])
        assembly.receive_piece(7, piece)
        found = assembly.receive_head(encode(DemandHead(VERSION, "c", "traffic", 1, {7: digest_of(piece)})), 0)
        assert found is not None
        assert [each.query for each in found.demand.demands] == ["a", "b", "c"][: 2 + round_]
        assert [each.query for each in found.unreadable] == ["bad"]


def test_untrusted_pieces_are_bounded() -> None:
    assemblies = DemandAssemblies("p")
    pieces, head = of("a")
    (number,) = pieces
    for name in ("256", "007", "-1", "x", "٣"):
        with pytest.raises(FrameError, match="not the number of a piece"):
            assemblies.receive_piece("traffic", name, pieces[number])
    with pytest.raises(FrameError, match="on the topic of") as caught:
        assemblies.receive_piece("traffic", str((number + 1) % PIECES), pieces[number])
    assert caught.value.reason == "stream"
    with pytest.raises(FrameError, match="on the topic of"):
        assemblies.receive_piece("other", str(number), pieces[number])
    with pytest.raises(FrameError, match="on the topic of"):
        assemblies.receive_head("other", head, 0)
    with pytest.raises(UnsupportedVersionError):
        assemblies.receive_piece("traffic", "1", encode_piece(2, "traffic", 1, []))
    assert assemblies.receive_head("traffic", head, 0) is None
    assert assemblies.receive_piece("traffic", str(number), pieces[number]) is not None
    large = [(1, b"\xda\xff\xff" + b"x" * 65_535)] * 16
    fitting = MOST_BYTES // len(encode_piece(VERSION, "traffic", 1, large))
    for each in range(fitting):
        assemblies.receive_piece("traffic", str(each), encode_piece(VERSION, "traffic", each, large))
    with pytest.raises(FrameError, match="bytes") as caught:
        assemblies.receive_piece("traffic", str(fitting), encode_piece(VERSION, "traffic", fitting, large))
    assert caught.value.reason == "size"
    for each in range(MOST_STREAMS - 2):
        assemblies.receive_head(f"s{each}", b"", 0)
    with pytest.raises(FrameError, match="1,000 streams already"):
        assemblies.receive_head("one-more", b"", 0)


def test_more_demands_than_are_allowed_are_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand_assembly, "MOST_DEMANDS", 3)
    assembly = DemandAssembly("traffic")
    pieces, head = of("a", "b", "c", "d")
    for number, payload in pieces.items():
        assembly.receive_piece(number, payload)
    with pytest.raises(FrameError, match="more than 3 demands"):
        assembly.receive_head(head, 0)
    pieces, head = of("a", "b", "c")
    for number, payload in pieces.items():
        assembly.receive_piece(number, payload)
    assert assembly.receive_head(head, 0) is not None
    assert MOST_DEMANDS == 65_536


def test_what_is_kept_restores_the_demand() -> None:
    assembly, kept = DemandAssemblies("p"), StoredDemand(None)
    for names in (("a", "b"), ("a", "b", "c"), ("a",)):
        pieces, head = of(*names)
        for number, payload in pieces.items():
            assembly.receive_piece("traffic", str(number), payload)
        found = assembly.receive_head("traffic", head, 0)
        kept = kept.followed_by(assembly.take_changes("traffic"))
        again = DemandAssemblies("p").restore("traffic", kept, 0)
        assert again == found
        assert {number for number, payload in kept.pieces.items() if payload is not None} == pieces.keys()
    assembly.receive_head("traffic", b"", 0)
    kept = kept.followed_by(assembly.take_changes("traffic"))
    assert kept.head is None
    assert not any(kept.pieces.values())


def test_a_head_says_which_form_it_has() -> None:
    _, head = of("a")
    assert isinstance(read_head(head), DemandHead)
    for bad in ({256: b"12345678"}, {-1: b"12345678"}, {1: b"1234567"}, {1: "12345678"}, {"1": b"12345678"}):
        with pytest.raises(FrameError, match="does not fit"):
            read_head(msgspec.msgpack.encode([1, "c", "traffic", 1, bad]))

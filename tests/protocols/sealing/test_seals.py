"""Intruders, for each kind of frame: without a seal, with another key, cut off, moved, replayed, set back."""

from __future__ import annotations

import json
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import SettingsError
from protocols.mqtt.messages import Message
from protocols.sealing import seals as seals_module
from protocols.sealing.keys import make_keys, read_mote_keys, read_part_keys
from protocols.sealing.seals import KEPT, OF_CLUSTER, OF_MOTES, OF_PROXIES, FleetSeals, PartSeals, load_part_keys, seal
from protocols.wire import topics

OURS = make_keys(b"o" * 32, ["p", "q"])
THEIRS = make_keys(b"t" * 32, ["p", "q"])
NOW = 1_764_057_600.0


def part(folder, keys=OURS, name="cluster", now=NOW):
    """Return the seals of a part, connected: a proxy by its name, or the cluster."""
    file = "cluster.keys" if name == "cluster" else f"proxy-{name}.keys"
    (folder / name).mkdir(exist_ok=True)
    seals = PartSeals(read_part_keys(keys.files()[file], file), folder / name, now=lambda: now)
    seals.connecting()
    return seals


def motes(keys=OURS, proxy="p"):
    return FleetSeals(read_mote_keys(keys.files()[f"motes-{proxy}.keys"], "motes"))


TOPICS = {
    # kind: its topic, another one of its kind, sender, receiver
    "packet": (topics.packet("p", "m"), topics.packet("p", "n"), "motes", "p"),
    "announcement": (topics.announcement("p", "m"), topics.announcement("p", "n"), "motes", "p"),
    "control": (topics.control("p", "m"), topics.control("p", "n"), "p", "motes"),
    "batches": (topics.batches("p"), topics.batches("q"), "p", "cluster"),
    "resumptions": (topics.resumptions("p"), topics.resumptions("q"), "p", "cluster"),
    "proxy_status": (topics.proxy_status("p"), topics.proxy_status("q"), "p", "cluster"),
    "proxy_claim": (topics.proxy_claim("p"), topics.proxy_claim("q"), "p", "p"),
    "proxy_clock": (topics.proxy_clock("p"), topics.proxy_clock("q"), "p", "cluster"),
    "proxy_spool": (topics.proxy_spool("p"), topics.proxy_spool("q"), "p", "cluster"),
    "proxy_waits": (topics.proxy_waits("p"), topics.proxy_waits("q"), "p", "cluster"),
    "proxy_backlog": (topics.proxy_backlog("p", "1"), topics.proxy_backlog("p", "2"), "p", "p"),
    "stream_offer": (topics.stream_offer("p", "s"), topics.stream_offer("p", "z"), "p", "cluster"),
    "mote_entry": (topics.mote_entry("p", "m"), topics.mote_entry("p", "n"), "p", "q"),
    "demand_report": (topics.demand_report("p", "s"), topics.demand_report("p", "z"), "p", "cluster"),
    "demand_request": (topics.demand_request("p", "s"), topics.demand_request("p", "z"), "p", "cluster"),
    "acks": (topics.acks("p"), topics.acks("q"), "cluster", "p"),
    "cluster_status": (topics.cluster_status("c"), topics.cluster_status("d"), "cluster", "p"),
    "cluster_claim": (topics.cluster_claim("c"), topics.cluster_claim("d"), "cluster", "cluster"),
    "demand": (topics.demand("s"), topics.demand("z"), "cluster", "p"),
    "demand_piece": (topics.demand_piece("s", 1), topics.demand_piece("s", 2), "cluster", "p"),
}


def made(folder, name, keys=OURS):
    return motes(keys) if name == "motes" else part(folder, keys, name)


def test_every_topic_of_frames_has_a_sender_with_a_key():
    assert TOPICS.keys() == OF_MOTES | OF_CLUSTER | OF_PROXIES
    assert all(
        topics.parse(topic).kind == kind == topics.parse(moved).kind for kind, (topic, moved, *_) in TOPICS.items()
    )
    assert TOPICS.keys() > KEPT


@pytest.mark.parametrize("kind", sorted(TOPICS))
def test_intruders_are_refused_and_nothing_else_is(kind, tmp_path):
    topic, moved, sender, receiver = TOPICS[kind]
    sends, receives = made(tmp_path, sender), made(tmp_path, receiver)
    plain = Message(topic, b"a frame")
    sealed = sends.seal(plain)
    assert b"a frame" in sealed.payload
    assert sealed.payload != plain.payload
    other_folder = tmp_path / "intruder"
    other_folder.mkdir()
    attacks = {
        "unsealed": [plain, Message(topic, b""), Message(topic, b"\x00" + sealed.payload[1:])],
        "forged": [
            made(other_folder, sender, THEIRS).seal(plain),
            Message(topic, sealed.payload[:-1]),
            Message(topic, sealed.payload[:-1] + bytes([sealed.payload[-1] ^ 1])),
            Message(topic, sealed.payload[:3]),
            Message(topic, b"\xc1"),
            Message(topic, sealed.payload + b"\0"),
            Message(moved, sealed.payload),
        ],
    }
    for reason, messages in attacks.items():
        for each in messages:
            assert receives.open(each).refusal == reason, each
    opened = receives.open(sealed)
    assert (opened.payload, opened.refusal) == (b"a frame", "")
    if kind in OF_MOTES:
        return  # their numbers are in the frames: the fleet and the mote know them
    assert receives.open(sealed).refusal == "replayed"
    again = Message(topic, sealed.payload, retain=True)
    assert receives.open(again).payload == b"a frame", "the broker sends what it retains once more"
    newer = sends.seal(plain)
    assert receives.open(newer).refusal == ""
    assert receives.open(again).refusal == "replayed"
    will, last = sends.seal_will(plain), sends.seal(plain)
    assert [receives.open(each).refusal for each in (last, will)] == ["", ""]


@pytest.mark.parametrize("kind", sorted(KEPT))
def test_older_frames_are_refused_after_restarts_of_both_and_after_a_clock_that_is_set_back(kind, tmp_path):
    topic, _, sender, receiver = TOPICS[kind]
    plain = Message(topic, b"a frame")
    old = part(tmp_path, name=sender).seal(plain)
    sends, receives = part(tmp_path, name=sender), part(tmp_path, name=receiver)
    assert receives.open(sends.seal(plain)).refusal == ""
    receives.connecting()  # what it has seen is written now
    again = part(tmp_path, name=receiver)
    for retain in (False, True):
        assert again.open(Message(topic, old.payload, retain=retain)).refusal == "replayed"
    assert again.open(part(tmp_path, name=sender, now=NOW - 1e6).seal(plain)).refusal == "", "the file counts"
    (tmp_path / sender / "counters-link.json").unlink()
    if sender != receiver:
        assert again.open(part(tmp_path, name=sender, now=NOW + 9).seal(plain)).refusal == "", "the clock counts"


def test_a_part_has_no_say_for_others(tmp_path):
    cluster, p, q = (part(tmp_path, name=name) for name in ("cluster", "p", "q"))
    frame = b"a frame"
    for forger in (p, q):  # a proxy with keys is no cluster, and no other proxy
        for topic, victim in ((topics.acks("p"), q), (topics.demand("s"), q), (topics.acks("q"), p)):
            assert victim.open(forger.seal(Message(topic, frame))).refusal == "forged"
    assert cluster.open(q.seal(Message(topics.batches("p"), frame))).refusal == "forged"
    assert p.open(q.seal(Message(topics.mote_entry("q", "m"), frame))).payload == frame
    assert p.open(motes(proxy="q").seal(Message(topics.packet("p", "m"), frame))).refusal == "forged"
    assert cluster.open(motes().seal(Message(topics.packet("p", "m"), frame))).refusal == "forged"
    assert cluster.open(p.seal(Message(topics.batches("unknown"), frame))).refusal == "forged"


def test_what_is_no_frame_passes_as_it_is(tmp_path):
    seals = part(tmp_path)
    for topic in (topics.results("q"), topics.query_errors("q"), "zigbee2mqtt/lamp", "fjord/v1/unknown"):
        message = Message(topic, b'{"a": 1}')
        assert seals.seal(message) == seals.open(message) == message


def test_no_secret_is_shown(tmp_path):
    keys = read_part_keys(OURS.files()["proxy-p.keys"], "p")
    secrets = [OURS.cluster, *OURS.proxies.values(), *(each.master for each in OURS.motes.values())]
    shown = repr(OURS) + repr(keys) + str(keys) + repr(keys.motes) + repr(PartSeals(keys, tmp_path))
    assert not [each for each in secrets if each.hex() in shown or repr(each) in shown or repr(each)[2:-1] in shown]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("signing", "sining"), "has 1 unknown entries"),
        (lambda text: text.replace('signing = "', 'signing = "0'), "lacks a key of 32 bytes"),
        (lambda text: text.replace('signing = "', 'signing = "xy'), "lacks a key of 32 bytes"),
        (lambda text: text + "secret secret", "is not TOML"),
        (lambda text: text + '"a/b" = 1\n', "names a part as none can be named"),
        (lambda text: text.replace("[generations]\n", "[generations]\n") + '"m2" = -1\n', "has a generation that"),
    ],
)
def test_a_file_that_is_wrong_is_refused_and_not_quoted(change, problem):
    text = OURS.with_renewed_mote("p", "m1").files()["proxy-p.keys"]
    with pytest.raises(SettingsError, match=problem) as caught:
        read_part_keys(change(text), "proxy-p.keys")
    assert not [line for line in text.splitlines() if len(line) > 40 and line[-20:-1] in str(caught.value)]
    assert "secret secret" not in str(caught.value)


def test_a_file_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "p.keys"
    file.write_text(OURS.files()["proxy-p.keys"])
    file.chmod(0o640)
    with pytest.raises(SettingsError, match="may be read by others"):
        load_part_keys(file, proxy="p")
    file.chmod(0o600)
    assert load_part_keys(file, proxy="p").motes is not None
    with pytest.raises(SettingsError, match="has no keys of a cluster"):
        load_part_keys(file, proxy=None)
    with pytest.raises(SettingsError, match="cannot read the keys"):
        load_part_keys(tmp_path / "none", proxy="p")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"sent": "x", "seen": {}}', b'{"sent": 1, "seen": [1]}', b"\xff"]
)
def test_damaged_counters_are_begun_again(tmp_path, content):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "counters-link.json").write_bytes(content)
    part(tmp_path, name="p")
    assert json.loads((tmp_path / "p" / "counters-link.json").read_text())["sent"] == int(NOW)


def test_a_proxy_with_keys_cannot_fill_the_memory_of_others(tmp_path, monkeypatch):
    monkeypatch.setitem(seals_module.MOST_TOPICS, "mote_entry", 5)
    monkeypatch.setattr(seals_module, "MOST_NAMES", 3)
    cluster, p, q = (part(tmp_path, name=name) for name in ("cluster", "p", "q"))

    def refusals(seals, topic_of, names, receives=cluster):
        return [receives.open(seals.seal(Message(topic_of(name), b"f", retain=True))).refusal for name in names]

    offers = partial(topics.stream_offer, "p")
    assert refusals(p, offers, "abcd") == ["", "", "", "too_many_topics"]
    assert refusals(p, partial(topics.mote_entry, "p"), "abcdef") == [*[""] * 5, "too_many_topics"], (
        "each kind for itself"
    )
    assert refusals(p, offers, "cadb") == ["", "", "too_many_topics", ""], "those that are known go on"
    assert refusals(q, partial(topics.stream_offer, "q"), "wxyz") == ["", "", "", "too_many_topics"], "q has its own"
    assert refusals(p, lambda _: topics.batches("p"), "a") == [""]
    assert len(cluster._seen.seen) == 3 + 5 + 3 + 1
    cluster.connecting()  # what it has seen is written now
    again = part(tmp_path)
    assert refusals(p, offers, "eda", again) == ["too_many_topics", "too_many_topics", ""], "the file counts"
    renewed = OURS.renewed(b"r" * 32, proxies=["p"])
    receives = part(tmp_path, renewed)
    assert refusals(part(tmp_path, renewed, "p"), offers, "e", receives) == [""], "another key begins anew"


def signed_far_ahead(keys, topic):
    """A frame that a thief of the key of p has sealed: no later counter is left."""
    signing = Ed25519PrivateKey.from_private_bytes(keys.proxies["p"])
    return Message(topic, seal(signing, topic, 2**64 - 1, b"a frame"))


def test_a_key_that_replaces_a_stolen_one_begins_with_counters_of_its_own(tmp_path):
    topic = topics.batches("p")
    first = part(tmp_path)
    assert first.open(signed_far_ahead(OURS, topic)).refusal == ""
    first.connecting()  # what it has seen is written now
    assert part(tmp_path).open(part(tmp_path, name="p").seal(Message(topic, b"b"))).refusal == "replayed"
    renewed = OURS.renewed(b"r" * 32, proxies=["p"])
    receives = part(tmp_path, renewed)
    assert receives.open(part(tmp_path, renewed, "p").seal(Message(topic, b"b"))).refusal == ""
    assert receives.open(signed_far_ahead(OURS, topic)).refusal == "forged"


def test_motes_whose_secret_was_renewed_are_named_once(tmp_path):
    assert part(tmp_path, name="p").renewed_motes == frozenset()
    keys = OURS.with_renewed_mote("p", "m7")
    assert part(tmp_path, keys, "p").renewed_motes == {"m7"}
    assert part(tmp_path, keys, "p").renewed_motes == frozenset()
    assert part(tmp_path, keys.with_renewed_mote("p", "m7"), "p").renewed_motes == {"m7"}


@pytest.mark.parametrize("kind", ["proxy_claim", "cluster_claim"])
def test_a_part_opens_what_it_sends_to_itself(kind, tmp_path):
    topic, _, sender, _ = TOPICS[kind]
    itself = part(tmp_path, name=sender)
    for _ in range(3):
        assert itself.open(itself.seal(Message(topic, b"a frame"))).refusal == ""

"""Stimulus ids: the identity of a frame as text, by which a log of events names what has caused what.

Nothing is added to frames for it. A frame that has numbers of its own is named by them, one without by what it carries:

    packet m7/3/812                    mote, boot, sequence
    batch roadside/5f.../traffic/42    proxy, epoch, stream, sequence
    demand traffic@17                  stream, epoch
    message zigbee2mqtt/m1 5d41402abc4b2a76     any other: its topic, and a digest of its bytes
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from protocols.errors import ProtocolError
from protocols.wire import topics
from protocols.wire.batches import decode_ack, decode_batch, decode_resumption
from protocols.wire.catalog import decode_mote_entry, decode_proxy_clock, decode_status, decode_stream_offer
from protocols.wire.demands import decode_demand_report, decode_demand_request, digest_of, read_head
from protocols.wire.packets import AdjustClock, Control, RunProgram, decode_announcement, decode_control, decode_packet
from protocols.wire.programs import program_number

_LONGEST_TOPIC = 120


def stimulus_of(topic: str, payload: bytes) -> str:
    """Return the identity of a message; one that cannot be read is named by its topic and a digest.

    Examples
    --------
    >>> from protocols.wire.batches import Ack
    >>> from protocols.wire.frames import encode
    >>> stimulus_of("fjord/v1/proxies/roadside/acks", encode(Ack(1, "roadside", "5f", "traffic", 42)))
    'ack roadside/5f/traffic/42'
    >>> stimulus_of("tele/plug/SENSOR", b"{}")
    'message tele/plug/SENSOR 01e7b720ff566d53'
    """
    try:
        parsed = topics.parse(topic)
        named = _NAMED.get(parsed.kind)
        if named is not None and payload:
            return named(payload)
        if parsed.kind == "demand_piece":
            return f"piece {'/'.join(parsed.names)} {digest_of(payload).hex()}"
        kind, where = parsed.kind, "/".join(parsed.names)
    except ProtocolError:
        kind, where = "message", topic[:_LONGEST_TOPIC]
    return f"{kind} {where} {_digest(payload)}"


def _digest(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=8).hexdigest()


def _packet(payload: bytes) -> str:
    packet = decode_packet(payload)
    return f"packet {packet.mote}/{packet.boot}/{packet.sequence}"


def _announcement(payload: bytes) -> str:
    found = decode_announcement(payload)
    return f"announcement {found.mote}/{found.boot} {_digest(payload)}"


def _control(payload: bytes) -> str:
    found: Control = decode_control(payload)
    words = [
        f"program {program_number(each.program)}"
        if isinstance(each, RunProgram)
        else f"clock {each.by_us:+}us"
        if isinstance(each, AdjustClock)
        else "announce"
        for each in found.instructions
    ]
    return f"control {found.mote}: {', '.join(words)}"


def _batch(payload: bytes) -> str:
    found = decode_batch(payload)
    return f"batch {found.proxy}/{found.epoch}/{found.stream}/{found.sequence}"


def _ack(payload: bytes) -> str:
    found = decode_ack(payload)
    return f"ack {found.proxy}/{found.epoch}/{found.stream}/{found.through}"


def _resumption(payload: bytes) -> str:
    found = decode_resumption(payload)
    return f"resumption {found.proxy}/{found.epoch}/{found.stream}/{found.first}"


def _status(payload: bytes) -> str:
    found = decode_status(payload)
    return f"status {found.name} {found.presence.value} since {found.since_us}"


def _clock(payload: bytes) -> str:
    found = decode_proxy_clock(payload)
    return f"clock {found.proxy} {found.clock_us}"


def _offer(payload: bytes) -> str:
    found = decode_stream_offer(payload)
    return f"offer {found.proxy}/{found.stream.name} {_digest(payload)}"


def _entry(payload: bytes) -> str:
    found = decode_mote_entry(payload)
    return f"entry {found.proxy}/{found.mote} {_digest(payload)}"


def _demand(payload: bytes) -> str:
    found: Any = read_head(payload)
    head = getattr(found, "head", found)
    return f"demand {head.stream}@{head.epoch}"


def _report(payload: bytes) -> str:
    found = decode_demand_report(payload)
    return f"report {found.proxy}/{found.stream}@{found.epoch}"


def _request(payload: bytes) -> str:
    found = decode_demand_request(payload)
    return f"request {found.proxy}/{found.stream}: {' '.join(map(str, found.pieces))}"


_NAMED: Mapping[str, Callable[[bytes], str]] = {
    "packet": _packet,
    "announcement": _announcement,
    "control": _control,
    "batches": _batch,
    "acks": _ack,
    "resumptions": _resumption,
    "proxy_status": _status,
    "cluster_status": _status,
    "proxy_claim": _status,
    "cluster_claim": _status,
    "proxy_clock": _clock,
    "stream_offer": _offer,
    "mote_entry": _entry,
    "demand": _demand,
    "demand_report": _report,
    "demand_request": _request,
}

"""The records of a packet become tuples, or are rejected, and are entered into the mote's accounts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from protocols.errors import SchemaError
from protocols.wire.catalog import ClockFault
from protocols.wire.packets import Health, Packet
from protocols.wire.programs import SECOND_US, SamplingProgram
from proxy.counting.sample_account import ReceivedPacket
from proxy.counting.sample_ledger import SampleLedger
from proxy.motes.mote_clock import WrongClock
from proxy.motes.mote_entries import MoteCounters
from proxy.motes.mote_events import MoteInstruction, PacketReceived, PacketsLost, Rebooted, Rejected, Rejection
from proxy.motes.packet_numbers import PacketNumbers
from proxy.records.record_reader import RecordReader
from proxy.records.waiting_tuples import LOWEST_US, MotePosition, PacketTuples


def read_packet(
    reader: RecordReader | None,
    packet: Packet,
    counters: MoteCounters,
    *,
    announced: bool,
    watermark_us: int | None,
    oldest_us: int | None,
    known_until_us: int | None,
) -> tuple[PacketTuples | None, list[Rejected]]:
    """Return the tuples of a packet that are accepted, None for none, and the rejections.

    Parameters
    ----------
    reader
        Reads the records of the program that the packet names; None if that is not known.
    packet
        Of the mote.
    counters
        Of the mote; they are raised.
    announced
        Whether the mote has announced itself.
    watermark_us
        Of the stream: tuples stamped before it are late. None before the first.
    oldest_us
        A right clock stamps nothing before it; None for no such bound.
    known_until_us
        The mote's low watermark before the packet; None if it is not known.
    """
    if reader is None or not announced:
        return None, _reject_unreadable(packet, counters, announced=announced)
    rejected: list[Rejected] = []
    if watermark_us is not None:
        reader.passed(watermark_us)
    try:
        tuples = reader.read(packet)
    except SchemaError as error:
        rejected.append(reject(Rejection.SHAPE, str(error), packet, counters))
        if not reader.fills:
            return None, rejected
        # Changes in it are lost: what was sent before must not be repeated.
        reader.lost(known_until_us)
        tuples = reader.read(msgspec.structs.replace(packet, records=()))
    if tuples is not None and oldest_us is not None:
        tuples, older = drop_older(tuples, oldest_us)
        if older is not None:
            counters.samples_behind += older.samples
            rejected.append(older)
    if tuples is not None and watermark_us is not None:
        tuples, late = drop_late(tuples, watermark_us)
        if late is not None:
            counters.samples_late += late.samples
            rejected.append(late)
    if tuples is not None:
        counters.samples_received += len(tuples.starts_us)
    return tuples, rejected


def latest_health(packet: Packet) -> Health | None:
    """Return the last report of a mote's health in a packet; None if there is none."""
    found = None
    for record in packet.records:
        if type(record) is Health:
            found = record
    return found


def reject(reason: Rejection, detail: str, packet: Packet, counters: MoteCounters) -> Rejected:
    """Return the rejection of a whole packet, with the number of samples in it."""
    counters.packets_rejected += 1
    return Rejected(reason, detail, sum(not isinstance(each, Health) for each in packet.records))


def reject_replayed(packet: Packet, last: PacketNumbers, counters: MoteCounters) -> Rejected:
    """Return the rejection of a packet whose number is not after the last one."""
    counters.packets_rejected += 1
    detail = (
        f"packet {packet.sequence} of boot {packet.boot} after packet {last.sequence} of boot {last.boot}: it came "
        "twice, or two motes have this name"
    )
    return Rejected(Rejection.REPLAYED, detail, len(packet.samples))


def reject_unreachable(packet: Packet, last: PacketNumbers, counters: MoteCounters) -> Rejected:
    """Return the rejection of a packet of a boot that the mote cannot have reached."""
    detail = f"packet {packet.sequence} of boot {packet.boot} soon after boot {last.boot}"
    return reject(Rejection.BOOT, detail, packet, counters)


def reject_duplicate(packet: Packet, counters: MoteCounters) -> Rejected:
    """Return the rejection of a packet that was received before and still waits for earlier ones."""
    detail = f"packet {packet.sequence} of boot {packet.boot} waits for others already"
    return reject(Rejection.REPLAYED, detail, packet, counters)


def reject_wrong_clock(wrong: WrongClock, packet: Packet, counters: MoteCounters) -> Rejected:
    """Return the rejection of the samples of a packet that a wrong clock stamped."""
    ahead = wrong.fault is ClockFault.AHEAD
    detail = f"clock is {wrong.by_us / SECOND_US:.1f} s {wrong.fault}"
    found = reject(Rejection.CLOCK_AHEAD if ahead else Rejection.CLOCK_BEHIND, detail, packet, counters)
    if ahead:
        counters.samples_ahead += found.samples
    else:
        counters.samples_behind += found.samples
    return found


def drop_late(tuples: PacketTuples, watermark_us: int) -> tuple[PacketTuples | None, Rejected | None]:
    """Return the tuples that are on time, and the rejection of the others; None for none of either kind."""
    oldest_us = min(tuples.starts_us)
    if oldest_us >= watermark_us:
        return tuples, None
    on_time = tuples.since(watermark_us)
    late = len(tuples) - (0 if on_time is None else len(on_time))
    detail = f"stamped up to {(watermark_us - oldest_us) / SECOND_US:.3f} s before the stream's watermark"
    return on_time, Rejected(Rejection.LATE, detail, late)


def drop_older(tuples: PacketTuples, oldest_us: int) -> tuple[PacketTuples | None, Rejected | None]:
    """Return the tuples that a right clock may have stamped, and the rejection of older ones."""
    first_us = min(tuples.starts_us)
    if first_us >= oldest_us:
        return tuples, None
    kept = tuples.since(oldest_us)
    older = len(tuples) - (0 if kept is None else len(kept))
    detail = f"stamped up to {(oldest_us - first_us) / SECOND_US:.3f} s before the oldest that a right clock stamps"
    return kept, Rejected(Rejection.CLOCK_BEHIND, detail, older)


def _reject_unreadable(packet: Packet, counters: MoteCounters, *, announced: bool) -> list[Rejected]:
    """Return the rejection of a packet whose program is not known; nothing if it has no samples."""
    if all(isinstance(each, Health) for each in packet.records):
        return []
    if not announced:
        return [reject(Rejection.UNANNOUNCED, f"mote {packet.mote!r} has not announced itself", packet, counters)]
    detail = f"samples were taken under program {packet.program}, which this proxy does not know"
    return [reject(Rejection.UNKNOWN_PROGRAM, detail, packet, counters)]


_READ = frozenset({Rejection.LATE, Rejection.CLOCK_BEHIND})
"""Records that are rejected for their stamps have been read all the same."""


class PriorState(NamedTuple):
    """The state of a mote before a packet: its program, its low watermark, and its last packet."""

    running: int | None
    low_watermark_us: int | None
    position: MotePosition


def enter(
    ledger: SampleLedger,
    before: PriorState,
    event: PacketReceived,
    found: Sequence[MoteInstruction],
    *,
    not_before_us: int | None,
    programs: tuple[SamplingProgram | None, SamplingProgram],
    gap: bool = False,
    lost_until_us: int = LOWEST_US,
) -> None:
    """Enter a packet that was accepted in sequence.

    Parameters
    ----------
    ledger
        The accounts.
    before, event
        The state before the packet, and the packet.
    found
        The instructions that it led to.
    not_before_us
        The mote was sent this bound: no sample of its next program is stamped before it.
    programs
        The one the packet names, None if it is not known, and the one the mote should run.
    gap
        Whether packets before it were accepted without their samples.
    lost_until_us
        Samples stamped before this instant were missing when the proxy was started again.
    """
    packet, position = event.packet, before.position
    rebooted = any(isinstance(each, Rebooted) for each in found)
    if rebooted:
        ledger.stop(before.low_watermark_us)
    received = ReceivedPacket(
        packet,
        None if rebooted else before.low_watermark_us,
        position.clock_us,
        changed=rebooted or before.running != packet.program,
        gap=gap or any(isinstance(each, PacketsLost) for each in found),
        read=not any(isinstance(each, Rejected) and each.reason not in _READ for each in found),
        resumed=before.running is None and position.boot >= 0,
        not_before_us=not_before_us,
        watermark_us=event.watermark_us,
        lost_until_us=lost_until_us,
    )
    ledger.packet_received(received, *programs)

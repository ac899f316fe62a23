"""How a packet is entered into the accounts of its mote's samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocols.wire.programs import SamplingProgram
from proxy.counting.sample_account import ReceivedPacket
from proxy.counting.sample_ledger import SampleLedger
from proxy.motes.mote_events import MoteInstruction, PacketReceived, PacketsLost, Rebooted, Rejected, Rejection
from proxy.records.waiting_tuples import MotePosition
from proxy.records.watermarks import LOWEST_US

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

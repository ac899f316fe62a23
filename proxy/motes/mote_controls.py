"""What is sent to a mote while it listens: its program, corrections of its clock, requests to announce itself. Pure.

A mote listens for a while after some of its packets, and at no other time::

    packets      1         2 (window)        3         4 (window)
    sent                     control                     control
"""

from __future__ import annotations

from protocols.wire.frames import VERSION
from protocols.wire.packets import AdjustClock, AnsweringControl, Control, Instruction, Packet, SendAnnouncement
from proxy.motes.mote_clock import MoteClock
from proxy.motes.mote_events import MoteInstruction, PacketReceived, ProgramNotTakenUp, SendControl
from proxy.motes.program_handover import ProgramHandover


class MoteControls:
    """The controls of one mote.

    Parameters
    ----------
    mote
        Its name.
    clock
        Its clock.
    handover
        Of the program it should run.
    answering
        Whether the mote has a key: then it obeys controls only that name the packet they answer.
    """

    __slots__ = ("_answering", "_clock", "_handover", "_mote", "_rejected_boot")  # one for each mote

    def __init__(self, mote: str, clock: MoteClock, handover: ProgramHandover, *, answering: bool = False) -> None:
        self._mote = mote
        self._answering = answering
        self._clock = clock
        self._handover = handover
        self._rejected_boot: int | None = None

    def announced(self) -> None:
        """Note that an announcement was accepted."""
        self._rejected_boot = None

    def announcement_rejected(self, boot: int) -> None:
        """Note that the announcement of a boot was rejected: another one would be rejected too."""
        self._rejected_boot = boot

    def next(self, event: PacketReceived, *, announced: bool) -> list[MoteInstruction]:
        """Return what to send in the listen window of a packet, unless the packet was held back until it had closed."""
        packet, received_us = event.packet, event.received_us
        if packet.listen_us <= 0:
            return []
        if not announced:
            return self.request_announcement(packet, received_us)
        if not self._clock.listens(packet, received_us):
            return []
        instructions: list[MoteInstruction] = []
        correction_us = self._clock.take_correction_us()
        if correction_us is not None:
            instructions.append(self._control(AdjustClock(correction_us), packet))
        if packet.program == self._handover.number:
            return instructions
        begins_us = packet.promise_us if self._clock.fault is None else min(packet.promise_us, received_us)
        program = self._handover.next_control(begins_us if event.watermark_us is None else event.watermark_us)
        instructions.append(self._control(program, packet))
        if self._handover.newly_failed:
            instructions.append(ProgramNotTakenUp(self._handover.most_attempts))
        return instructions

    def request_announcement(self, packet: Packet, received_us: int) -> list[MoteInstruction]:
        """Return the request to announce itself; nothing if one of the same boot was rejected."""
        if self._rejected_boot == packet.boot or not self._clock.listens(packet, received_us):
            return []
        return [self._control(SendAnnouncement(), packet)]

    def _control(self, instruction: Instruction, packet: Packet) -> SendControl:
        control = Control(VERSION, self._mote, (instruction,))
        if self._answering:
            control = AnsweringControl(VERSION, self._mote, (instruction,), packet.boot, packet.sequence)
        return SendControl(control, packet.listen_us)

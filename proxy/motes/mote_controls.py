"""What is sent to a mote while it listens: its program, corrections of its clock, requests to announce itself. Pure.

A mote listens for a while after some of its packets, and at no other time::

    packets      1         2 (window)        3         4 (window)
    sent                     control                     control
"""

from __future__ import annotations

from protocols.wire.frames import VERSION
from protocols.wire.packets import (
    AdjustClock,
    Announcement,
    AnsweringControl,
    Control,
    Instruction,
    Packet,
    SendAnnouncement,
)
from protocols.wire.programs import SECOND_US
from proxy.motes.mote_clock import MoteClock
from proxy.motes.mote_events import MoteInstruction, PacketReceived, ProgramNotTakenUp, SendControl
from proxy.motes.program_handover import ProgramHandover

ASK_AGAIN_US = 60 * SECOND_US
"""Between two requests of a mote whose announcement is in doubt, and after the first one that was rejected."""
MOST_WAIT_US = 600 * SECOND_US
"""A mote whose announcements are rejected is asked more and more seldom, but at least after so long."""


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

    # One for each mote
    __slots__ = (
        "_answering", "_ask_us", "_asked", "_clock", "_doubted", "_handover", "_mote", "_rejected_boot", "_wait_us",
    )  # fmt: skip

    def __init__(self, mote: str, clock: MoteClock, handover: ProgramHandover, *, answering: bool = False) -> None:
        self._mote = mote
        self._answering = answering
        self._clock = clock
        self._handover = handover
        self._rejected_boot: int | None = None
        self._doubted = self._asked = False
        self._ask_us, self._wait_us = 0, ASK_AGAIN_US

    def announced(self, known: Announcement | None, announcement: Announcement) -> None:
        """Note that an announcement was accepted, and the one before.

        Within a boot a mote says the same of itself each time: one of two that differ is not its own. It is in doubt
        until the mote, which is asked, says it again.
        """
        self._rejected_boot, self._wait_us = None, ASK_AGAIN_US
        if known is None:
            pass  # the first one, or the first after one that was rejected
        elif known.boot != announcement.boot:
            self._doubted = False
        elif known != announcement:
            self._doubted = True
        elif self._asked:
            self._doubted = False
        self._asked = False

    def announcement_rejected(self, boot: int, radio_us: int) -> None:
        """Note that the announcement of a boot was rejected: the next one would be, too, unless this one was forged."""
        self._rejected_boot, self._doubted = boot, True
        self._ask_us = radio_us + self._wait_us
        self._wait_us = min(2 * self._wait_us, MOST_WAIT_US)

    def next(self, event: PacketReceived, *, announced: bool, other_boot: bool = False) -> list[MoteInstruction]:
        """Return what to send in the listen window of a packet, unless the packet was held back until it had closed.

        The last announcement may be of an `other_boot` than the packet.
        """
        packet, received_us = event.packet, event.received_us
        if packet.listen_us <= 0:
            return []
        if not announced:
            return self.request_announcement(packet, event.radio_us, received_us)
        if not self._clock.listens(packet, received_us):
            return []
        instructions = self.confirm(event, other_boot=other_boot)
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

    def request_announcement(self, packet: Packet, radio_us: int, received_us: int) -> list[MoteInstruction]:
        """Return the request to announce itself; nothing if one of the same boot was rejected not long ago."""
        if self._rejected_boot == packet.boot and radio_us < self._ask_us:
            return []
        if not self._clock.listens(packet, received_us):
            return []
        return [self._control(SendAnnouncement(), packet)]

    def confirm(self, event: PacketReceived, *, other_boot: bool) -> list[MoteInstruction]:
        """Return the request to announce itself again if its announcement is in doubt: it may be another's."""
        packet, radio_us = event.packet, event.radio_us
        if not (self._doubted or other_boot) or self._answering or radio_us < self._ask_us:
            return []
        if not self._clock.listens(packet, event.received_us):
            return []
        self._ask_us, self._asked = radio_us + ASK_AGAIN_US, True
        return [self._control(SendAnnouncement(), packet)]

    def _control(self, instruction: Instruction, packet: Packet) -> SendControl:
        control = Control(VERSION, self._mote, (instruction,))
        if self._answering:
            control = AnsweringControl(VERSION, self._mote, (instruction,), packet.boot, packet.sequence)
        return SendControl(control, packet.listen_us)

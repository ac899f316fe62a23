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
    RunProgram,
    SendAnnouncement,
)
from protocols.wire.programs import SECOND_US, SLEEP, SamplingProgram
from proxy.motes.mote_clock import MoteClock
from proxy.motes.mote_events import MoteInstruction, PacketReceived, ProgramNotTakenUp, SendControl
from proxy.records.waiting_tuples import LOWEST_US, MoteWatermark


class ProgramHandover:
    """The handover of programs to one mote.

    Parameters
    ----------
    patience_us
        How long the stream's low watermark waits for a mote that should sample and has not begun.
    attempts
        After so many controls without effect the mote is reported.
    """

    __slots__ = (  # one for each mote
        *("_attempts", "_awaited_since_us", "_patience_us"),
        *("desired", "most_attempts", "not_before_us", "number"),
    )

    def __init__(self, patience_us: int, attempts: int) -> None:
        self.desired: SamplingProgram = SLEEP
        self.number = 0
        """Of the desired program."""
        self.not_before_us: int | None = None
        """No sample of the desired program is stamped before this; None if the mote was sent no such bound."""
        self._patience_us = patience_us
        self.most_attempts = attempts
        self._attempts = 0
        self._awaited_since_us: int | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the stream's low watermark waits for the mote to begin."""
        return self._awaited_since_us is not None

    def demand(self, program: SamplingProgram, number: int, running: int | None, radio_us: int) -> None:
        """Take the program that the mote should run from now on."""
        self.desired, self.number = program, number
        self._attempts = 0
        self._await(running, radio_us)

    def settle(self, program: SamplingProgram, number: int) -> None:
        """Take a program that the mote runs whatever it is sent: it is sent none."""
        self.desired, self.number = program, number
        self._attempts, self._awaited_since_us, self.not_before_us = 0, None, None

    def program_changed(self, running: int, radio_us: int) -> None:
        """Note that a packet names another program than the one before."""
        if running == self.number:
            self._attempts = 0
        self._await(running, radio_us)

    def rebooted(self, radio_us: int) -> None:
        """Note that the mote has booted, and sleeps."""
        self._await(0, radio_us)

    def time_passed(self, radio_us: int) -> None:
        """Stop waiting for a mote that takes too long to begin."""
        if self._awaited_since_us is not None and radio_us - self._awaited_since_us >= self._patience_us:
            self._awaited_since_us = None

    def watermark(self, low_watermark_us: int | None, *, is_new: bool) -> MoteWatermark | None:
        """Return how a mote that does not sample bounds the stream's low watermark; None if it does not.

        Parameters
        ----------
        low_watermark_us
            Of the mote; None if it is not known.
        is_new
            Whether no packet of the mote was ever accepted.
        """
        if self._awaited_since_us is None:
            return None
        if low_watermark_us is None:
            # Of a new mote the clock is not known yet. A reboot ended what a mote had guaranteed before.
            return MoteWatermark(None) if is_new else None
        return MoteWatermark(max(low_watermark_us, self.not_before_us or LOWEST_US))

    def next_control(self, not_before_us: int) -> RunProgram:
        """Return what to send to a mote that runs another program; no sample may be stamped before an instant."""
        self.not_before_us = max(not_before_us, self.not_before_us or LOWEST_US)
        self._attempts += 1
        return RunProgram(self.desired, self.not_before_us)

    @property
    def newly_failed(self) -> bool:
        """Whether the last control was the first beyond the attempts that a mote has."""
        return self._attempts == self.most_attempts + 1

    def _await(self, running: int | None, radio_us: int) -> None:
        """Begin, or stop, to wait for the mote to take up its program."""
        if running == self.number or self.desired.sleeping:
            self._awaited_since_us = None
            self.not_before_us = None
        elif self._awaited_since_us is None:
            self._awaited_since_us = radio_us


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

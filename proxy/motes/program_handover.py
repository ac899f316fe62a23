"""The program that a mote should run, and how the mote is brought to run it. Pure."""

from __future__ import annotations

from protocols.wire.packets import RunProgram
from protocols.wire.programs import SLEEP, SamplingProgram
from proxy.records.watermarks import LOWEST_US, MoteWatermark


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

"""Samples a mote did not send because they had not changed are filled in: nothing is lost but on the air. Pure.

A mote that sends only changes reports with every packet how far it has come: whatever it did not send up to there was
within the dead band of what it sent last. Where a packet is missing nobody knows, and nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocols.wire.frames import Value
from protocols.wire.programs import SamplingProgram, SendOnChange


class ChangeFilling:
    """The last sample of one mote under one program.

    Parameters
    ----------
    part
        What it runs; its report is send-on-change.
    """

    def __init__(self, part: SamplingProgram) -> None:
        assert isinstance(part.report, SendOnChange)  # noqa: S101 - who calls has looked
        self._period_us = part.period_us
        self._most = part.report.maximum_silence_us // part.period_us
        self._last: tuple[int, tuple[Value, ...]] | None = None

    def lost(self) -> None:
        """A packet is missing: what was sent last is not known any more."""
        self._last = None

    def before(self, instant_us: int) -> Iterator[tuple[int, tuple[Value, ...]]]:
        """Yield the samples that were not sent before an instant, with their values."""
        if self._last is None:
            return
        last_us, values = self._last
        if instant_us - last_us > self._most * self._period_us + self._period_us:
            return  # nobody is silent for so long: it does not sample any more
        for _ in range(self._most):
            last_us += self._period_us
            if last_us >= instant_us:
                return
            self._last = (last_us, values)
            yield last_us, values

    def sent(self, instant_us: int, values: tuple[Value, ...]) -> None:
        """Take note of a sample that was sent."""
        self._last = (instant_us, values)

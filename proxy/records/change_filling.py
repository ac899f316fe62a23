"""Fills in the samples that a mote did not send because they had not changed. Pure.

A mote that sends only changes gives its low watermark with every packet: all samples before it that were not sent were
within the dead band of the last one sent. Where a packet is missing the last one sent is not known, and nothing is
filled in.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocols.wire.frames import Value
from protocols.wire.programs import SamplingProgram, SendOnChange


class ChangeFilling:
    """The last sample of one mote under one program.

    Parameters
    ----------
    alone
        The report that sends changes, as a program of its own.
    """

    def __init__(self, alone: SamplingProgram) -> None:
        assert isinstance(alone.report, SendOnChange)  # noqa: S101 - the caller has checked
        self._period_us = alone.period_us
        self._most = alone.report.maximum_silence_us // alone.period_us
        self._last: tuple[int, tuple[Value, ...]] | None = None

    def lost(self) -> None:
        """Note that a packet is missing: the last sample sent is not known any more."""
        self._last = None

    def before(self, instant_us: int) -> Iterator[tuple[int, tuple[Value, ...]]]:
        """Yield the unsent samples before an instant, with their values."""
        if self._last is None:
            return
        last_us, values = self._last
        if instant_us - last_us > self._most * self._period_us + self._period_us:
            return  # longer than the longest silence: the mote does not sample any more
        for _ in range(self._most):
            last_us += self._period_us
            if last_us >= instant_us:
                return
            self._last = (last_us, values)
            yield last_us, values

    def sent(self, instant_us: int, values: tuple[Value, ...]) -> None:
        """Note a sample that was sent."""
        self._last = (instant_us, values)

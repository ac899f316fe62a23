"""Fills in the samples that a mote did not send because they had not changed. Pure.

A mote that sends only changes gives its low watermark with every packet: all samples before it that were not sent were
within the dead band of the last one sent. Where a packet is missing the last one sent is not known: the samples from
the low watermark before the loss up to the next one sent are not known either.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocols.wire.frames import Value
from protocols.wire.programs import SamplingProgram, SendOnChange, first_sample_at_or_after

MOST_UNKNOWN = 1_000
"""The most samples after a loss of which it is reported that they are not known; the first ones matter most."""


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
        self._unknown_us: int | None = None
        """The next sample that is not known, since something was lost; None if nothing was."""
        self._unknown_left = 0

    def lost(self, known_until_us: int | None) -> None:
        """Note that a packet is missing: the last sample sent is not known any more.

        Parameters
        ----------
        known_until_us
            All samples before it were sent or have been filled in; None if that is not known.
        """
        if known_until_us is not None and self._unknown_us is None:
            self._unknown_us = first_sample_at_or_after(known_until_us, self._period_us)
        self._last, self._unknown_left = None, min(self._most, MOST_UNKNOWN)

    def before(self, instant_us: int) -> Iterator[tuple[int, tuple[Value, ...] | None]]:
        """Yield the unsent samples before an instant, with their values; None for values that are not known."""
        if self._last is None:
            yield from self._unknown_before(instant_us)
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
        self._last, self._unknown_us = (instant_us, values), None

    def passed(self, watermark_us: int) -> None:
        """Note that the stream has passed an instant: nothing stamped before it is wanted any more."""
        if self._unknown_us is not None and self._unknown_us < watermark_us:
            self._unknown_us = first_sample_at_or_after(watermark_us, self._period_us)

    def _unknown_before(self, instant_us: int) -> Iterator[tuple[int, None]]:
        while self._unknown_us is not None and self._unknown_us < instant_us and self._unknown_left > 0:
            unknown_us = self._unknown_us
            self._unknown_us += self._period_us
            self._unknown_left -= 1
            yield unknown_us, None

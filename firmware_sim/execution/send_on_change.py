"""Send-on-delta: a sample is sent when a field has left its dead band, or after the longest allowed silence."""

from __future__ import annotations

from firmware_sim.execution.reporter import Stamped, Values
from protocols.wire.packets import Sample, SampleValue
from protocols.wire.programs import SamplingProgram, SendOnChange


class ChangeReporter:
    """Sends samples that differ from the last one sent, and finally the last one, which stands for all before it."""

    open_us: int | None = None
    suppressed = 0

    def __init__(self, program: SamplingProgram, report: SendOnChange) -> None:
        widths = {each.field: each.width for each in report.dead_bands}
        self._widths = [widths.get(name, 0.0) for name in program.fields]
        self._period_us = program.period_us
        self._silence_us = report.maximum_silence_us
        self._sent: tuple[int, Values] | None = None
        self._latest: tuple[int, Values] | None = None

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the sample if it differs enough, or if the longest silence ends."""
        self._latest = (instant_us, values)
        if self._sent is not None:
            sent_us, before = self._sent
            changed = any(map(_left, before, values, self._widths))
            if not changed and instant_us + self._period_us - sent_us <= self._silence_us:
                return []
        self._sent = (instant_us, values)
        return [(instant_us, Sample(0, values))]

    def close(self, until_us: int) -> list[Stamped]:
        """Return the last sample, if it was not sent."""
        _ = until_us
        latest, self._latest = self._latest, None
        return [] if latest is None or latest == self._sent else [(latest[0], Sample(0, latest[1]))]


def _left(before: SampleValue, now: SampleValue, width: float) -> bool:
    """Return whether a value has left the dead band around the previous one."""
    if isinstance(before, int | float) and isinstance(now, int | float):
        return not abs(now - before) <= width  # of NaN, too
    return before != now

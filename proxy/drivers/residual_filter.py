"""The residual filter of a device: bands and dead bands that it does not apply itself.

Pure. The rules are those of a mote: NULL lies in no band, and a sample is sent when a field left its dead band.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from protocols.wire.packets import SampleValue
from protocols.wire.programs import Band, SamplingProgram, SendOnChange

Values = tuple[SampleValue, ...]


class ResidualFilter:
    """Decides which samples of a device pass.

    Parameters
    ----------
    program
        The program of the device.
    on_device
        Fields whose dead band the device applies. The proxy does not apply it again: the value could then deviate by
        the sum of both.
    """

    def __init__(self, program: SamplingProgram, on_device: Collection[str] = ()) -> None:
        self._bands: dict[int, list[Band]] = {}
        for band in program.bands:
            self._bands.setdefault(program.fields.index(band.field), []).append(band)
        self._period_us = program.period_us
        self._silence_us: int | None = None
        self._widths: list[float] = []
        if isinstance(program.report, SendOnChange):
            widths: Mapping[str, float] = {each.field: each.width for each in program.report.dead_bands}
            self._silence_us = program.report.maximum_silence_us
            self._widths = [0.0 if name in on_device else widths.get(name, 0.0) for name in program.fields]
        self._sent: tuple[int, Values] | None = None

    def passes(self, instant_us: int, values: Values) -> bool:
        """Return whether a sample passes."""
        if not all(any(_within(band, values[place]) for band in bands) for place, bands in self._bands.items()):
            return False
        if self._silence_us is None:
            return True
        if self._sent is not None:
            sent_us, before = self._sent
            changed = any(map(_left, before, values, self._widths))
            if not changed and instant_us + self._period_us - sent_us <= self._silence_us:
                return False
        self._sent = (instant_us, values)
        return True


def _within(band: Band, value: SampleValue) -> bool:
    if value is None or isinstance(value, str):
        return False
    return (band.low is None or band.low <= value) and (band.high is None or value <= band.high)


def _left(before: SampleValue, now: SampleValue, width: float) -> bool:
    if isinstance(before, int | float) and isinstance(now, int | float):
        return abs(now - before) > width
    return before != now

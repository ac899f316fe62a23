"""Control for every bucket in each micro-batch, beside the rows: the epoch, and the positions of all streams."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace


class MicroBatchControl(msgspec.Struct, frozen=True):
    """Control information for every bucket in each micro-batch.

    Parameters
    ----------
    epoch
        The plan to run.
    previous_epoch
        The plan of the micro-batch before; if it is another one, state of dropped queries is removed.
    watermarks_us
        By exchange: no later row starts before this instant.
    failures
        By query: why its upstream operators failed, if they did.
    relations
        By identity of a relation: the newest version that counts.
    reached_us
        The position of the streams; 0 if it is not known.
    begun_us
        By stream: the instant at which it begins, if that may be known since this micro-batch. What has begun before
        stays as it is.
    passed_us
        By stream: its low watermark behind the rows of this micro-batch.
    """

    epoch: int
    previous_epoch: int
    watermarks_us: dict[str, int]
    failures: dict[str, str] = {}
    relations: dict[str, int] = {}
    reached_us: int = 0
    begun_us: dict[str, int] = {}
    passed_us: dict[str, int] = {}


def merged_control(controls: Iterable[MicroBatchControl]) -> MicroBatchControl:
    """Return one control merged from those of all parts: watermarks and failures of all, the rest of the first."""
    first, *others = controls
    watermarks = dict(first.watermarks_us)
    failures = dict(first.failures)
    for control in others:
        watermarks.update(control.watermarks_us)
        failures.update(control.failures)
    return replace(first, watermarks_us=watermarks, failures=failures)

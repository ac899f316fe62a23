"""Control for every bucket in each micro-batch, beside the rows: the epoch, and the positions of all streams."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from cluster.fjord.lacking_answers import united


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
    micro_batch
        The micro-batch, by a text that is the same whenever it is run; empty if overruns are not watched.
    lost_us
        By fragment or query whose upstream operators failed: the first and last stamp of what they were given.
    """

    epoch: int
    previous_epoch: int
    watermarks_us: dict[str, int]
    failures: dict[str, str] = {}
    relations: dict[str, int] = {}
    reached_us: int = 0
    begun_us: dict[str, int] = {}
    passed_us: dict[str, int] = {}
    micro_batch: str = ""
    lost_us: dict[str, tuple[int, int]] = {}


def merged_control(controls: Iterable[MicroBatchControl]) -> MicroBatchControl:
    """Return one control merged from those of all parts: watermarks, failures, losses of all, the rest of the first."""
    first, *others = controls
    watermarks = dict(first.watermarks_us)
    failures = dict(first.failures)
    lost_us = dict(first.lost_us)
    for control in others:
        watermarks.update(control.watermarks_us)
        failures.update(control.failures)
        for owner, span in control.lost_us.items():
            lost_us[owner] = united([lost_us.get(owner), span]) or span
    return replace(first, watermarks_us=watermarks, failures=failures, lost_us=lost_us)

"""Extents of windows over a stream, and which samples belong to them (papers/coalescing.md section 1.2). Pure.

time window of 10:  samples with a stamp in [newest - 10, newest]; both ends belong to it
count window of 4:  the 4 samples with the largest stamps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from cluster.errors import ClusterError

Key: TypeAlias = tuple[Any, ...]
"""Values of grouping attributes."""
Position: TypeAlias = tuple[int, Key]
"""Where a sample stands in the order of its stream: its stamp, then the rank of its key."""


class ExtentError(ClusterError):
    """An extent, a coalescing query or a sample that makes no sense."""


@dataclass(frozen=True)
class CountWindow:
    """The `samples` samples with the largest stamps, at least 1."""

    samples: int

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ExtentError(f"a window of {self.samples} samples", hint="keep at least 1")


@dataclass(frozen=True)
class TimeWindow:
    """Samples that are at most `length_us` microseconds older than the newest; 0 keeps those of the newest stamp."""

    length_us: int

    def __post_init__(self) -> None:
        if self.length_us < 0:
            raise ExtentError(f"a window of {self.length_us} us", hint="write a length of 0 or more")


Window: TypeAlias = CountWindow | TimeWindow


def rank(key: Key) -> Key:
    """Return what sorts as the key does, with NULLs last."""
    return tuple((each is None, each) for each in key)

"""The low watermark of a stream at a proxy: before which instant no further tuple will be forwarded.

Pure. It is the minimum of the low watermarks of all motes that may still deliver, and never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

LOWEST_US = -(2**62)
"""The watermark that guarantees nothing."""


class MoteWatermark(msgspec.Struct, frozen=True, gc=False):
    """How one mote bounds the watermark. Each cut needs those of all motes, so it has to be quick to make.

    Parameters
    ----------
    instant_us
        No sample that the mote has still to send is stamped before it; None if the proxy does not know yet, and then
        the watermark does not move.
    """

    instant_us: int | None


def advance(watermark_us: int | None, mote_watermarks: Iterable[MoteWatermark]) -> int | None:
    """Return the new low watermark, once no accepted tuple waits any more.

    Parameters
    ----------
    watermark_us
        The present one; None before the first.
    mote_watermarks
        Of the motes that hold it; without any it does not move.
    """
    lowest: int | None = None
    for each in mote_watermarks:
        if each.instant_us is None:
            return watermark_us
        if lowest is None or each.instant_us < lowest:
            lowest = each.instant_us
    if lowest is None:
        return watermark_us
    return lowest if watermark_us is None else max(lowest, watermark_us)

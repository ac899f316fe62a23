"""The low watermark of a stream at a proxy: before which instant no further tuple will be forwarded.

Pure. It is the minimum of the mote_watermarks of all motes that may still deliver, and never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

LOWEST_US = -(2**62)
"""The watermark that mote_watermarks nothing."""


class MoteWatermark(msgspec.Struct, frozen=True, gc=False):
    """How one mote bounds the watermark. Each cut looks at those of all motes, so it has to be quick to make.

    Parameters
    ----------
    instant_us
        No sample of the mote that is still to come is stamped before it; None if the proxy does not know yet, and then
        the watermark stands.
    """

    instant_us: int | None


def advance(watermark_us: int | None, mote_watermarks: Iterable[MoteWatermark]) -> int | None:
    """Return the new low watermark, once no accepted tuple waits any more.

    Parameters
    ----------
    watermark_us
        What it was; None before the first.
    mote_watermarks
        Of the motes that hold it; without any it stands.
    """
    lowest: int | None = None
    for promise in mote_watermarks:
        if promise.instant_us is None:
            return watermark_us
        if lowest is None or promise.instant_us < lowest:
            lowest = promise.instant_us
    if lowest is None:
        return watermark_us
    return lowest if watermark_us is None else max(lowest, watermark_us)

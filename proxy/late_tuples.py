"""Tuples stamped too early to be taken over: before the watermark of their stream, or by a wrong clock. Pure."""

from __future__ import annotations

from protocols.programs import SECOND_US
from proxy.mote_events import Refusal, Refused
from proxy.waiting_tuples import PacketTuples


def drop_late(tuples: PacketTuples, watermark_us: int) -> tuple[PacketTuples | None, Refused | None]:
    """Return the tuples that are on time, and what is said about the others; None for none of either kind."""
    oldest_us = min(tuples.starts_us)
    if oldest_us >= watermark_us:
        return tuples, None
    on_time = tuples.since(watermark_us)
    late = len(tuples) - (0 if on_time is None else len(on_time))
    detail = f"stamped up to {(watermark_us - oldest_us) / SECOND_US:.3f} s before the stream's watermark"
    return on_time, Refused(Refusal.LATE, detail, late)


def drop_older(tuples: PacketTuples, oldest_us: int) -> tuple[PacketTuples | None, Refused | None]:
    """Return the tuples that a right clock may have stamped, and what is said about older ones."""
    first_us = min(tuples.starts_us)
    if first_us >= oldest_us:
        return tuples, None
    kept = tuples.since(oldest_us)
    older = len(tuples) - (0 if kept is None else len(kept))
    detail = f"stamped up to {(oldest_us - first_us) / SECOND_US:.3f} s before the oldest a right clock gives"
    return kept, Refused(Refusal.CLOCK_BEHIND, detail, older)

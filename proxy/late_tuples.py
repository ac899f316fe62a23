"""Tuples stamped before the watermark their stream has promised already cannot be taken over any more. Pure."""

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

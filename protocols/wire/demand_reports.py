"""A proxy's report of the demands that it cannot answer, retained: the cluster shows it to their authors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.wire.demands import RefusedDemand
from protocols.wire.frames import MEBIBYTE, VERSION, Counter, Frame, FrameDecoder, Name

MAX_REPORT_BYTES = MEBIBYTE
MOST_REFUSALS = 1_000
LONGEST_REASON = 300


class DemandRefusal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A query whose demand is not answered, and why; ``*`` is every query."""

    query: Annotated[str, Meta(min_length=1, max_length=64)]
    reason: Annotated[str, Meta(max_length=LONGEST_REASON)]


class DemandReport(Frame, frozen=True):
    """The demands on a stream that a proxy leaves out; it answers all others.

    Parameters
    ----------
    proxy
        The sender.
    stream
        The stream that is demanded.
    epoch
        The epoch of the demand that it answers.
    refused
        The demands that it leaves out.
    more
        How many further ones it leaves out.
    """

    proxy: Name
    stream: Name
    epoch: Counter
    refused: Annotated[tuple[DemandRefusal, ...], Meta(max_length=MOST_REFUSALS)] = ()
    more: Counter = 0


decode_demand_report = FrameDecoder(DemandReport, max_bytes=MAX_REPORT_BYTES)


def demand_report(proxy: str, stream: str, epoch: int, refused: Iterable[RefusedDemand]) -> DemandReport:
    """Return the report of the demands that a proxy leaves out; of several reasons for one query the first."""
    reasons: dict[str, str] = {}
    for each in refused:
        reasons.setdefault(each.query, each.reason)
    listed = tuple(
        DemandRefusal(query, reason[:LONGEST_REASON]) for query, reason in list(reasons.items())[:MOST_REFUSALS]
    )
    return DemandReport(VERSION, proxy, stream, epoch, listed, len(reasons) - len(listed))

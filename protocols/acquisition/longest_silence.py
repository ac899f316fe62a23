"""The need of packets from motes that have nothing to report, so that answers do not wait long for them.

A stream is complete up to an instant when each of its motes has promised to send nothing earlier, and a mote promises
with its packets. One whose samples are in no band sends none until it polls, seconds later, and all answers wait for
it. A count of its samples in short panes, which no query reads, is the least that it can send earlier.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocols.acquisition.needs import Need, NeedKind
from protocols.acquisition.program_reports import ProgramStyle
from protocols.wire.streams import FieldName


def need_of_reports(
    needs: Iterable[Need], style: ProgramStyle, order: tuple[FieldName, ...], minimum_period_us: int
) -> tuple[Need, ...]:
    """Return the need of a packet from a sensor at least as often as its deployer chose; none without such a choice.

    It samples nothing that others do not need, and its period grows with theirs to save the battery.

    Parameters
    ----------
    needs
        All others.
    style
        How often, and how many records may wait for a packet. A sensor that samples less often reports every sample.
    order
        The sampled fields, at least one.
    minimum_period_us
        The fastest that the sensor can sample.
    """
    known = tuple(needs)
    if not known or not style.longest_silence_us:
        return ()
    fastest = min(known, key=lambda each: (each.period_us, repr(each)))
    period_us = -(-minimum_period_us // fastest.period_us) * fastest.period_us
    periods = max(1, style.longest_silence_us // period_us)
    # A pane that waits for a full packet is as old as both together.
    waiting = min(style.samples_per_packet, periods // 2) if style.samples_per_packet > 1 else 0
    read = (*fastest.fields, *(name for name, _ in fastest.bands), *order)
    return (
        Need(
            NeedKind.PANES,
            read[:1],
            period_us,
            tolerances=tuple(each for each in fastest.tolerances if each[0] == read[0]),
            pane_us=(periods - waiting) * period_us,
            patience_us=waiting * period_us,
            slowest_us=min(max(each.slowest_us, each.period_us) for each in known),
        ),
    )

"""Panes that are open when needs change: their samples and their aggregates stay together. Pure.

A sample that a proxy has passed on says which aggregates contain it. When needs change in the middle of a pane, the
aggregate of that pane, which comes later, must still go where its first samples say; and one that contains samples
which were passed on as samples must not begin to count for the same queries. So routes change at the end of a pane.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocols.wire.programs import Panes, SamplingProgram
from proxy.records.program_routes import Routes

MOST_CHANGES = 4
"""For so many former routes it is known until when they held: an aggregate may arrive behind samples of later panes."""


class OpenPanes:
    """The panes of one program of one mote.

    Parameters
    ----------
    reports
        Of the program.
    """

    def __init__(self, reports: Sequence[SamplingProgram]) -> None:
        self._widths_us = {
            number: alone.report.pane_us for number, alone in enumerate(reports) if isinstance(alone.report, Panes)
        }
        self._kept: dict[int, list[tuple[int, tuple[str, ...]]]] = {number: [] for number in self._widths_us}
        self._latest_us: int | None = None

    def note(self, clock_us: int) -> None:
        """Note what the mote's clock showed in a packet: none of its records so far is stamped later."""
        if self._latest_us is None or clock_us > self._latest_us:
            self._latest_us = clock_us

    def change(self, former: Routes, routes: Routes, demanded: frozenset[str]) -> None:
        """Let routes change with the next pane of each report.

        Parameters
        ----------
        former, routes
            Until now, and from now on.
        demanded
            The fingerprints that are still demanded; nothing more goes to others.
        """
        latest_us = self._latest_us
        if latest_us is None:
            return
        for number, width_us in self._widths_us.items():
            kept, names = self._kept[number], former.fingerprints[number][1]
            is_open = bool(kept) and latest_us < kept[-1][0]
            if set(names) != set(routes.fingerprints[number][1]) and not is_open:
                kept.append(((latest_us // width_us + 1) * width_us, names))
                del kept[:-MOST_CHANGES]
            kept[:] = [(until_us, tuple(each for each in under if each in demanded)) for until_us, under in kept]

    def names(self, number: int, stamp_us: int, routes: Routes) -> tuple[str, ...]:
        """Return the fingerprints under which an aggregate of a report is passed on."""
        for until_us, names in self._kept.get(number, ()):
            if stamp_us < until_us:
                return names
        return routes.fingerprints[number][1]

    def covered_by(self, stamp_us: int, routes: Routes) -> str | None:
        """Return the fingerprints of the aggregates that contain a sample; None for none."""
        if not any(kept and stamp_us < kept[-1][0] for kept in self._kept.values()):
            return routes.covered_by
        found = {name for number in self._kept for name in self.names(number, stamp_us, routes)}
        return " ".join(sorted(found)) or None

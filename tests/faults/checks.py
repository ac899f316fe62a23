"""Checks of Fjord's guarantees after faults: each takes what was found, and returns the violations.

Pure. `Window` is the interval of application time that is checked; everything in it is final.
"""

from __future__ import annotations

import bisect
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from tests.faults.device import Acknowledged
    from tests.faults.samples import Answer, MissingSamples, Sample

SHOWN = 3


class Window(NamedTuple):
    """Application time from `begin_us` to before `end_us`."""

    begin_us: int
    end_us: int

    def __contains__(self, instant_us: object) -> bool:
        return isinstance(instant_us, int) and self.begin_us <= instant_us < self.end_us


def shown(what: str, found: Iterable[object]) -> list[str]:
    """Return violations as a sentence with the first examples; empty if there are none."""
    examples = list(found)
    if not examples:
        return []
    more = f" and {len(examples) - SHOWN} more" if len(examples) > SHOWN else ""
    return [f"{len(examples)} {what}: {', '.join(map(str, examples[:SHOWN]))}{more}"]


def doubled(stored: Iterable[Sample]) -> list[str]:
    """No sample is stored twice."""
    times = Counter((sample.mote, sample.start_us) for sample in stored)
    return shown("samples stored more than once", [key for key, count in times.items() if count > 1])


def falsified(stored: Iterable[Sample], sensed: Callable[[str, int], tuple[float, float]]) -> list[str]:
    """Every stored sample is one that its mote has sensed."""
    wrong = [each for each in stored if (each.speed, each.flow) != sensed(each.mote, each.start_us)]
    return shown("samples stored that no mote has taken", wrong)


def missing_acknowledged(
    stored: Iterable[Sample], batches: Mapping[int, Sequence[Sample]], through: int, window: Window
) -> list[str]:
    """Every sample of a batch that was acknowledged is stored."""
    there = set(stored)
    lost = [
        sample
        for number, samples in sorted(batches.items())
        if number <= through
        for sample in samples
        if sample.start_us in window and sample not in there
    ]
    return shown("samples acknowledged and not stored", lost)


def uncounted(
    stored: Iterable[Sample],
    counts: Iterable[MissingSamples],
    *,
    period_us: int,
    pane_us: int,
    window: Window,
    exact: bool,
    motes: Iterable[str],
) -> list[str]:
    """Samples that are not stored are counted as missing.

    Parameters
    ----------
    stored
        Samples.
    counts
        Counts of missing samples that proxies have reported.
    period_us
        Of samples.
    pane_us
        Width of panes.
    window
        Panes that end in it are checked.
    exact
        Whether each pane must have an exact count. Otherwise, as after the restart of a proxy or of motes, counts may
        be too high, and those of some panes partial or absent.
    motes
        All motes.
    """
    there = Counter((sample.mote, sample.start_us // pane_us * pane_us + pane_us) for sample in stored)
    found = {(each.mote, each.end_us): each for each in counts if each.end_us in window}
    wrong: list[str] = []
    for (mote, end_us), each in found.items():
        have = there[mote, end_us]
        if each.expected - each.missing > have:
            wrong.append(f"{each} though only {have} are stored")
        elif exact and (each.expected, each.missing) != (pane_us // period_us, pane_us // period_us - have):
            wrong.append(f"{each} though {have} are stored")
    if exact:
        ends = range(-(-window.begin_us // pane_us) * pane_us, window.end_us, pane_us)
        wrong += [f"nothing of {mote} up to {end}" for mote in motes for end in ends if (mote, end) not in found]
    return shown("panes with wrong counts", wrong)


def gaps(numbers: Sequence[int], first: int = 1) -> list[str]:
    """Rows are numbered from `first`, without gaps, none twice."""
    expected = [first - 1, *numbers]
    return shown("gaps in numbers", [f"{b} after {a}" for a, b in pairwise(expected) if b != a + 1])


def disordered(starts_us: Sequence[int]) -> list[str]:
    """Rows come in order."""
    return shown("rows out of order", [f"{b} after {a}" for a, b in pairwise(starts_us) if b < a])


def wrong_answers(found: Iterable[Answer], expected: Iterable[Answer]) -> list[str]:
    """Answers are the expected ones, with their multiplicity."""
    have, want = Counter(found), Counter(expected)
    return [
        *shown("answers missing", (want - have).elements()),
        *shown("answers that should not be, or not so often", (have - want).elements()),
    ]


def undelivered(stored: Sequence[Mapping[str, Any]], received: Sequence[Mapping[str, Any]]) -> list[str]:
    """A subscriber has every stored result once, in order, and unchanged."""
    wrong = gaps([row["sequence"] for row in received])
    last = received[-1]["sequence"] if received else 0
    if stored and stored[-1]["sequence"] > last:
        wrong.append(f"the subscriber has rows up to {last} of {stored[-1]['sequence']}")
    by_number = {row["sequence"]: row for row in stored}
    other = [
        row["sequence"]
        for row in received
        if row["sequence"] in by_number and _compared(row) != _compared(by_number[row["sequence"]])
    ]
    return [*wrong, *shown("rows that are stored otherwise than received", other)]


def unpublished(numbers: Iterable[int], published: Container[int]) -> list[str]:
    """Every result was published at least once."""
    return shown("results never published", [number for number in numbers if number not in published])


def _compared(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row["start"], row.get("end"), row.get("row"), row.get("error")


def lost_messages(
    acknowledged: Iterable[Acknowledged], rows: Iterable[int], *, counted: int, excused: Callable[[float], bool]
) -> list[str]:
    """Every message of a device that the broker has is a row, once, or counted.

    Parameters
    ----------
    acknowledged
        Messages that the broker has acknowledged.
    rows
        Their numbers, of all rows of a query.
    counted
        How many are counted as lost.
    excused
        Whether a broker that was killed may have lost what it acknowledged at an instant.
    """
    times = Counter(rows)
    there = {each.number: each for each in acknowledged}
    lost = [each.number for each in there.values() if not times[each.number] and not excused(each.at)]
    twice = [n for n, count in times.items() if count > 1 + (n not in there or there[n].perhaps_twice)]
    found = shown(f"messages that are no rows, {counted} counted", lost) if len(lost) > counted else []
    return found + shown("messages that are several rows", twice)


def uncounted_loss(counted: Mapping[str, float], allowed: Iterable[str]) -> list[str]:
    """Nothing is counted as lost except what a setting allows."""
    return [f"{name} is {value:g}" for name, value in counted.items() if value and name not in set(allowed)]


class Outage(NamedTuple):
    """The length of an outage of results.

    Parameters
    ----------
    longest
        The longest time between two arrivals, in seconds.
    recovery
        Seconds from the end of the last fault to the first row that was sampled after it; None if there is none.
    """

    longest: float
    recovery: float | None


def outage(arrivals: Sequence[tuple[float, float]], began: float, ended: float, until: float) -> Outage:
    """Measure an outage.

    Parameters
    ----------
    arrivals
        When rows arrived, and when they had been sampled, in seconds, in the order of arrival.
    began, ended
        When the first fault began, and the last one ended.
    until
        When the measurement ended.
    """
    instants = [at for at, _ in arrivals]
    first = max(0, bisect.bisect_left(instants, began) - 1)
    seen = [*instants[first : bisect.bisect_right(instants, until)], until]
    longest = max((b - a for a, b in pairwise(seen)), default=0.0)
    recovered = next((at for at, sampled in arrivals if sampled >= ended and at >= ended), None)
    return Outage(longest, None if recovered is None else recovered - ended)

"""What must hold after whatever went wrong: each check takes what was found, and returns what is wrong with it.

Pure. `Window` is the stretch of application time that is looked at; everything in it is final.
"""

from __future__ import annotations

import bisect
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from tests.faults.samples import Answer, Sample, Told

SHOWN = 3


class Window(NamedTuple):
    """Application time from `begin_us` to before `end_us`."""

    begin_us: int
    end_us: int

    def __contains__(self, instant_us: object) -> bool:
        return isinstance(instant_us, int) and self.begin_us <= instant_us < self.end_us


def shown(what: str, found: Iterable[object]) -> list[str]:
    """Return what is wrong as a sentence, with the first examples; nothing if nothing was found."""
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
    """Every sample stored is what its mote has sensed."""
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
    told: Iterable[Told],
    *,
    period_us: int,
    pane_us: int,
    window: Window,
    exact: bool,
    motes: Iterable[str],
) -> list[str]:
    """What is not stored is counted as missing.

    Parameters
    ----------
    stored
        Samples.
    told
        What proxies say of panes.
    period_us
        Of samples.
    pane_us
        Width of panes.
    window
        Panes that end in it are looked at.
    exact
        Whether each pane must be told of, and to the sample. Else, as after the restart of a proxy or of motes, more
        may count as missing than is, and of a pane may be told only in part, or not at all.
    motes
        All there are.
    """
    there = Counter((sample.mote, sample.start_us // pane_us * pane_us + pane_us) for sample in stored)
    found = {(each.mote, each.end_us): each for each in told if each.end_us in window}
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
    return shown("panes of which wrong counts are told", wrong)


def gaps(numbers: Sequence[int], first: int = 1) -> list[str]:
    """Rows are numbered from `first`, without gaps, none twice."""
    expected = [first - 1, *numbers]
    return shown("gaps in numbers", [f"{b} after {a}" for a, b in pairwise(expected) if b != a + 1])


def disordered(starts_us: Sequence[int]) -> list[str]:
    """Rows come in order."""
    return shown("rows out of order", [f"{b} after {a}" for a, b in pairwise(starts_us) if b < a])


def wrong_answers(found: Iterable[Answer], expected: Iterable[Answer]) -> list[str]:
    """Answers are those that are expected, as often as they are."""
    have, want = Counter(found), Counter(expected)
    return [
        *shown("answers missing", (want - have).elements()),
        *shown("answers that should not be, or not so often", (have - want).elements()),
    ]


def undelivered(stored: Sequence[Mapping[str, Any]], received: Sequence[Mapping[str, Any]]) -> list[str]:
    """A subscriber has every result that is stored, once, in order, as it is stored."""
    wrong = gaps([row["sequence"] for row in received])
    last = received[-1]["sequence"] if received else 0
    if stored and stored[-1]["sequence"] > last:
        wrong.append(f"the subscriber has rows up to {last} of {stored[-1]['sequence']}")
    by_number = {row["sequence"]: row for row in stored}
    other = [
        row["sequence"]
        for row in received
        if row["sequence"] in by_number and _told(row) != _told(by_number[row["sequence"]])
    ]
    return [*wrong, *shown("rows that are stored otherwise than received", other)]


def unpublished(numbers: Iterable[int], heard: Container[int]) -> list[str]:
    """Every result was published at least once."""
    return shown("results never published", [number for number in numbers if number not in heard])


def _told(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row["start"], row.get("end"), row.get("row"), row.get("error")


def uncounted_loss(counted: Mapping[str, float], allowed: Iterable[str]) -> list[str]:
    """Nothing is counted as lost, but what a setting allows to be."""
    return [f"{name} is {value:g}" for name, value in counted.items() if value and name not in set(allowed)]


class Outage(NamedTuple):
    """How long results stayed away.

    Parameters
    ----------
    longest
        Seconds between two arrivals, at most.
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
        When nobody looked any more.
    """
    instants = [at for at, _ in arrivals]
    first = max(0, bisect.bisect_left(instants, began) - 1)
    seen = [*instants[first : bisect.bisect_right(instants, until)], until]
    longest = max((b - a for a, b in pairwise(seen)), default=0.0)
    recovered = next((at for at, sampled in arrivals if sampled >= ended and at >= ended), None)
    return Outage(longest, None if recovered is None else recovered - ended)

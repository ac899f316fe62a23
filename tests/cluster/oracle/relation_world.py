"""Random histories for queries that join streams with relations: when tuples come, what changes, which queries run.

step            1              2          3
tuples       ------------   --------   -------     stamped at or after the watermark of the step before: disordered,
changes          |  |           |                  and late as far as versions of relations are concerned
queries      q1 =================================
             q2 ============ dropped
                            q3 ==================
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.language.catalog import Catalog, StaticRelation
from cluster.operators.columns import Column
from protocols.wire.streams import Field, FieldType, StreamSchema

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT

Columns = Mapping[str, FieldType]
Row = tuple[Any, ...]

STREAMS: Mapping[str, Columns] = {
    "traffic": {"sensor": TEXT, "segment": INTEGER, "speed": INTEGER},
    "weather": {"sensor": TEXT, "wind": INTEGER, "gust": REAL},
}
RELATIONS: Mapping[str, Columns] = {
    "places": {"sensor": TEXT, "segment": INTEGER, "name": TEXT},
    "limits": {"segment": INTEGER, "fastest": INTEGER, "factor": REAL},
    "notes": {"name": TEXT, "grade": INTEGER, "open": BOOLEAN},
}
PAPER_RELATIONS: Mapping[str, Columns] = {
    "known_segments": {"user": TEXT, "segment": INTEGER},
    "incidents": {"segment": INTEGER, "time": INTEGER, "description": TEXT},
}
"""Those of Fjording the Stream's Q1 and Q2 (papers/fjords.md section 4)."""
ALL_RELATIONS = {**RELATIONS, **PAPER_RELATIONS}
VALUES: Mapping[FieldType, tuple[Any, ...]] = {
    BOOLEAN: (True, False, None),
    INTEGER: (0, 1, 1, 2, 2, 3, None),
    REAL: (0.0, 1.0, 1.0, 1.5, 2.0, 2.0, None),
    TEXT: ("a", "a", "b", "b", "ab", "c", None),
}
SENSORS = ("a", "b", "ab", "c")
STEP_US = 12
"""How far a step's watermark is from that of the step before."""
AHEAD_US = 7
"""How far tuples may be beyond their step's watermark."""
END_US = 10_000
"""The last watermark: everything has been answered."""

SCHEMAS = {
    name: StreamSchema(name, tuple(Field(each, kind, fixed=each == "sensor") for each, kind in columns.items()))
    for name, columns in STREAMS.items()
}
STATIC = {
    name: StaticRelation(name, f"{name}@1", tuple(Column(each, kind) for each, kind in columns.items()))
    for name, columns in ALL_RELATIONS.items()
}
CATALOG = Catalog.of([*SCHEMAS.values(), *STATIC.values()])


@dataclass(frozen=True)
class Arrival:
    """Tuples of a stream, stored together."""

    stream: str
    rows: tuple[tuple[int, Row], ...]


@dataclass(frozen=True)
class Change:
    """A relation's new rows; None if it cannot be read from now on."""

    relation: str
    rows: tuple[Row, ...] | None


@dataclass(frozen=True)
class Step:
    """One micro-batch: what comes before it, in order, and how it runs.

    Parameters
    ----------
    events
        What comes.
    watermarks
        By stream, after all that.
    parts
        In how many parts it is read.
    forget
        True if all workers are new.
    crash
        True if it runs twice: what it did the first time is lost.
    """

    events: tuple[Arrival | Change, ...]
    watermarks: Mapping[str, int]
    parts: int = 1
    forget: bool = False
    crash: bool = False


@dataclass(frozen=True)
class History:
    """Everything that happens.

    Parameters
    ----------
    steps
        In order; changes of the first one are those with which the relations begin.
    large
        Relations that are too large for the memory of every worker.
    """

    steps: tuple[Step, ...]
    large: frozenset[str] = frozenset()

    def tuples(self, stream: str) -> list[tuple[int, int, Row]]:
        """Return all tuples of a stream: step, stamp, values."""
        return [
            (number, stamp, row)
            for number, step in enumerate(self.steps)
            for event in step.events
            if isinstance(event, Arrival) and event.stream == stream
            for stamp, row in event.rows
        ]


@dataclass
class Version:
    """A relation's rows, active from an instant of each stream on."""

    rows: tuple[Row, ...] | None
    begins: dict[str, int] = field(default_factory=dict)


def versions_of(history: History) -> dict[str, list[Version]]:
    """Return every relation's versions, oldest first: each begins after all that is stored by then, and settled."""
    found: dict[str, list[Version]] = {name: [] for name in ALL_RELATIONS}
    after = dict.fromkeys(STREAMS, 0)
    for step in history.steps:
        for event in step.events:
            if isinstance(event, Arrival):
                stored = max((stamp + 1 for stamp, _ in event.rows), default=0)
                after[event.stream] = max(after[event.stream], stored)
            else:
                found[event.relation].append(Version(event.rows, dict(after)))
        for stream, watermark in step.watermarks.items():
            after[stream] = max(after[stream], watermark)
    return found


def random_history(
    dice: random.Random, relations: Sequence[str] = tuple(RELATIONS), *, failing: bool = False
) -> History:
    """Return a history in which some relations change; if it is `failing`, one cannot be read for a while."""
    count = dice.randint(2, 4)
    watermarks = dict.fromkeys(STREAMS, 0)
    unreadable: str | None = None
    steps = []
    for number in range(count):
        arrivals = []
        after = {name: mark + dice.choice((STEP_US, STEP_US, STEP_US // 2, 0)) for name, mark in watermarks.items()}
        for name in STREAMS:
            rows = _tuples(dice, name, watermarks[name], after[name] + AHEAD_US)
            cuts = sorted(dice.randint(0, len(rows)) for _ in range(dice.choice((0, 0, 1, 2))))
            cut = [rows[low:high] for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
            arrivals += [Arrival(name, tuple(each)) for each in cut if each]
        dice.shuffle(arrivals)
        events: list[Arrival | Change] = list(arrivals)
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            place = dice.randint(0, len(events))
            events.insert(place, random_change(dice, dice.choice([name for name in relations if name != unreadable])))
        if number == 0:
            events = [*(random_change(dice, name) for name in relations), *events]
        elif failing and unreadable is None:
            unreadable = dice.choice(relations)
            events.insert(dice.randint(0, len(events)), Change(unreadable, None))
        elif unreadable is not None and dice.random() < 0.5:
            events.insert(dice.randint(0, len(events)), random_change(dice, unreadable))
            unreadable = None
        steps.append(
            Step(tuple(events), after, dice.choice((1, 1, 2, 3)), dice.random() < 0.3, dice.random() < 0.15)
        )  # fmt: skip
        watermarks = after
    large = frozenset(dice.sample(relations, dice.choice((0, 0, 0, 1, len(relations)))))
    return History((*steps, Step((), dict.fromkeys(STREAMS, END_US))), large)


def _tuples(dice: random.Random, stream: str, low: int, high: int) -> list[tuple[int, Row]]:
    kinds = list(STREAMS[stream].values())[1:]
    stamps = [dice.randint(low, high - 1) for _ in range(dice.choice((0, 2, 4, 6, 8, 10)))]
    rows = [(stamp, (dice.choice(SENSORS), *(dice.choice(VALUES[kind]) for kind in kinds))) for stamp in stamps]
    rows += [dice.choice(rows) for _ in range(dice.choice((0, 0, 1))) if rows]
    return sorted(rows, key=lambda each: each[0]) if dice.random() < 0.3 else rows


def random_change(dice: random.Random, relation: str) -> Change:
    """Return new rows for a relation, with NULLs and duplicates among them; or none."""
    kinds = ALL_RELATIONS[relation].values()
    rows = [tuple(dice.choice(VALUES[kind]) for kind in kinds) for _ in range(dice.choice((0, 2, 4, 6, 8)))]
    rows += [dice.choice(rows) for _ in range(dice.choice((0, 0, 1))) if rows]
    return Change(relation, tuple(rows))


def smaller_histories(history: History) -> Sequence[History]:
    """Return histories with one thing less: a tuple, a change, a row of a change, or trouble."""
    found = [replace(history, large=frozenset())] if history.large else []
    for number, step in enumerate(history.steps):
        others = [replace(step, parts=1)] if step.parts > 1 else []
        others += [replace(step, forget=False)] if step.forget else []
        others += [replace(step, crash=False)] if step.crash else []
        for place, event in enumerate(step.events):
            before, after = step.events[:place], step.events[place + 1 :]
            first = number == 0 and not any(
                isinstance(each, Change) and isinstance(event, Change) and each.relation == event.relation
                for each in before
            )
            if not (isinstance(event, Change) and first):
                others.append(replace(step, events=before + after))
            rows = event.rows or ()
            for gone in range(len(rows)):
                fewer = replace(event, rows=rows[:gone] + rows[gone + 1 :])
                others.append(replace(step, events=(*before, fewer, *after)))
        before, after = history.steps[:number], history.steps[number + 1 :]
        found += [replace(history, steps=(*before, other, *after)) for other in others]
    return found

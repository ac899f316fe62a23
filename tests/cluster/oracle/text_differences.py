"""What one text answers against what it means."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from cluster.operators import Node
from cluster.plan.pane_query import pane_query_of
from protocols.errors import FjordError
from protocols.wire.streams import FieldType
from tests.cluster.oracle.comparison import difference_of_rows, in_the_first_hour
from tests.cluster.oracle.definition import Row, Snapshots
from tests.cluster.oracle.early_running import compare_early, random_buckets
from tests.cluster.oracle.proving import delivered
from tests.cluster.oracle.text_coverage import Drawn
from tests.cluster.oracle.text_definition import TextDefinition, TooDeepError
from tests.cluster.oracle.text_forms import Text, outputs_of, types_of
from tests.cluster.oracle.text_running import Planned, planned, run_text, runnable, streams_of, tables_of
from tests.cluster.oracle.text_world import World
from tests.cluster.oracle.text_writing import written
from tests.cluster.oracle.time_texts import SHOWN

EARLY_IN = 2
"""One of so many runs is made with EMIT EARLY, too."""


@dataclass
class TextTally:
    """What has been proven."""

    texts: int = 0
    pairs: int = 0
    answering: int = 0
    """Pairs with an answer at some instant."""
    paned: int = 0
    """Those of them that were answered from panes."""
    rewritten: int = 0
    ambiguous: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Texts that are refused, by reason."""
    drawn: Drawn = field(default_factory=Drawn)
    """What is in texts that ran."""

    def __iadd__(self, other: Self) -> Self:
        """Add what another search has proven."""
        self.texts += other.texts
        self.pairs += other.pairs
        self.answering += other.answering
        self.paned += other.paned
        self.rewritten += other.rewritten
        self.ambiguous += other.ambiguous
        self.refused.update(other.refused)
        self.drawn += other.drawn
        return self


@dataclass(frozen=True)
class Wrong:
    """A text that does not answer what it means; `kind` is the same for what may be the same defect."""

    kind: str
    difference: str
    plan: Node | None = None
    seed: int = 0


def differences(
    text: Text, worlds: Sequence[World], definition: TextDefinition, dice: random.Random, tally: TextTally
) -> Iterator[tuple[int, Wrong]]:
    """Yield what is wrong, with the number of the stream set."""
    derived, query = written(text)
    try:
        plans = planned(derived, query)
    except FjordError as error:
        tally.refused[reason_of(error)] += 1
        return
    except Exception as error:  # noqa: BLE001 - whatever leaves the language is a finding
        yield 0, Wrong(type(error).__name__, f"{type(error).__name__}: {error}")
        return
    tally.texts += 1
    if (found := _misnamed(text, plans)) is not None:
        yield 0, Wrong("columns", found, plans.node)
    usable = []
    for plan in dict.fromkeys((plans.node, plans.better)):
        try:
            reason = runnable(plan)
        except Exception as error:  # noqa: BLE001 - as above
            yield 0, Wrong(type(error).__name__, f"{type(error).__name__}: {error}", plan)
            return
        if reason is None:
            usable.append(plan)
        elif plan is plans.better:
            tally.refused[reason_of(reason)] += 1
    if not usable:
        return
    tally.rewritten += plans.better != plans.node
    try:
        meaning = definition.meaning(text)
    except TooDeepError:
        tally.refused["too deep for DuckDB"] += 1
        return
    tally.ambiguous += len(meaning.ambiguous)
    for run, world in enumerate(worlds):
        if run in meaning.ambiguous:
            continue
        plan, seed = dice.choice(usable), dice.getrandbits(32)
        expected = meaning.snapshots[run]
        found = answer_differs(plan, plans, world, seed, expected, meaning.granule)
        if found is not None:
            yield run, Wrong(kind_of(found), found, plan, seed)
        tally.pairs += 1
        tally.answering += any(expected)
        tally.paned += any(expected) and pane_query_of(plan) is not None
    tally.drawn.add(text, [*derived, query])


def answer_differs(
    plan: Node, plans: Planned, world: World, seed: int, expected: Snapshots, granule: int
) -> str | None:
    """Run a plan with a delivery that follows from a seed; return what is wrong, or None."""
    streams = streams_of(world, plans.streams)
    try:
        rows = run_text(plan, world, streams, seed)
    except Exception as error:  # noqa: BLE001 - whatever an operator raises is a finding
        return f"{type(error).__name__}: {error}"
    found = odd_value(rows) or difference_of_rows(in_the_first_hour(rows, plan), expected, granule)
    return early_differs(plan, world, plans, seed) if found is None and seed % EARLY_IN == 0 else found


def early_differs(plan: Node, world: World, plans: Planned, seed: int) -> str | None:
    """Run a plan with EMIT EARLY and EMIT FINAL side by side; return in what way the early rows differ, or None."""
    batches, restarts = delivered(streams_of(world, plans.streams), seed)
    dice = random.Random(seed)
    try:
        found = compare_early(
            plan,
            batches,
            restart_after=restarts,
            tables=lambda: tables_of(world.places),
            buckets=random_buckets(dice),
        )
    except Exception as error:  # noqa: BLE001 - whatever an operator raises is a finding
        return f"{type(error).__name__}: {error}"
    return None if found.wrong is None else f"early: {found.wrong}"


def kind_of(difference: str) -> str:
    """Return the first word of what is wrong: an exception's, or the difference of rows."""
    return difference.split(maxsplit=1)[0]


def odd_value(rows: Sequence[Row]) -> str | None:
    """Return the first real that no answer may have: infinite, no number, or a negative zero."""
    for row in rows:
        for value in row[2:]:
            if isinstance(value, float) and (not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0)):
                return f"{value} is in the row {row}"
    return None


def _misnamed(text: Text, plans: Planned) -> str | None:
    """Return in what way columns are not called, or not typed, as the text says."""
    expected = [
        (output.name.casefold(), FieldType.TEXT if kind in SHOWN else kind)
        for output, kind in zip(outputs_of(text.query), types_of(text.query), strict=True)
    ]
    for node in (plans.node, plans.better):
        found = [(column.name.casefold(), column.type) for column in node.schema]
        if found != expected:
            return f"columns are {_shown(found)}, not {_shown(expected)}"
    return None


def _shown(columns: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {kind.value}" for name, kind in columns)


def reason_of(error: FjordError) -> str:
    """Return why something is refused, without what it is about."""
    reason = str(getattr(error, "reason", None) or error).partition(", at line")[0]
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'|\b[A-Z_]{2,}\b", "...", reason))

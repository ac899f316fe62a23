"""Histories against the definition: what the hosts answer is what each query means, at every instant."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from cluster.errors import FjordError
from cluster.language.translation import translate
from cluster.operators import Node
from cluster.physical.nodes import host_of
from cluster.plan.explain import explain
from cluster.plan.names_read import RelationSize
from cluster.plan.rewrite import rewrite
from tests.cluster.oracle.comparison import _nearly, bags, snapshots_of
from tests.cluster.oracle.proving import MismatchError
from tests.cluster.oracle.relation_definition import INSTANTS, Definition
from tests.cluster.oracle.relation_forms import Query
from tests.cluster.oracle.relation_queries import random_query, variant
from tests.cluster.oracle.relation_running import FAILURE, Answers, Asked, run_history
from tests.cluster.oracle.relation_world import (
    ALL_RELATIONS,
    CATALOG,
    STATIC,
    Change,
    History,
    random_history,
    smaller_histories,
)

QUERIES_PER_HISTORY = 8
SHRINK_SECONDS = 60.0


@dataclass
class RelationTally:
    """What has been proven."""

    queries: int = 0
    histories: int = 0
    answering: int = 0
    """Queries that had an answer at some instant."""
    dropped: int = 0
    failed: int = 0
    """Queries that read a relation which could not be read for a while."""
    refused: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Self) -> Self:
        """Add what another search has proven."""
        self.queries += other.queries
        self.histories += other.histories
        self.answering += other.answering
        self.dropped += other.dropped
        self.failed += other.failed
        self.refused.update(other.refused)
        return self


def search_relations(seed: int, queries: int) -> RelationTally:
    """Prove so many random queries, several at once over each random history.

    Raises
    ------
    MismatchError
        With the smallest history found for which it happens.
    """
    dice = random.Random(seed)
    tally = RelationTally()
    while tally.queries < queries:
        history = random_history(dice, failing=dice.random() < 0.2)
        asked: list[Query] = []
        while len(asked) < QUERIES_PER_HISTORY:
            query = variant(dice, dice.choice(asked)) if asked and dice.random() < 0.2 else _fresh(dice, history)
            try:
                planned(query, history.large)
            except FjordError as error:
                tally.refused[str(error).partition(",")[0].partition("'")[0]] += 1
            else:
                asked.append(query)
        prove_history(history, asked, tally)
    return tally


def _fresh(dice: random.Random, history: History) -> Query:
    return random_query(dice, len(history.steps))


@lru_cache(maxsize=1024)
def planned(query: Query, large: frozenset[str] = frozenset()) -> Node:
    """Return the plan of a query; relations in `large` are spread over the buckets.

    It is made as if relations had sizes at random: lookups may come in any order.
    """
    dice = random.Random(query.fjord)
    sizes = {}
    for name, columns in ALL_RELATIONS.items():
        rows = dice.choice((None, 0, 1, 10, 1_000, 100_000))
        if rows is not None:
            known = {column: dice.randint(1, rows + 1) for column in columns if dice.random() < 0.8}
            sizes[STATIC[name].identity] = RelationSize(rows, 0, known)
    identities = frozenset(STATIC[name].identity for name in large)
    return rewrite(translate(query.fjord, CATALOG).node, large=identities, sizes=sizes).node


def prove_history(history: History, queries: Sequence[Query], tally: RelationTally) -> None:
    """Run a history, and compare what each query answers with what it means.

    Raises
    ------
    MismatchError
        With a report.
    """
    found = differences(history, queries, tally)
    if found:
        number = min(found)
        alone = [queries[number]]
        if not differences(history, alone):
            alone = list(queries)
        raise MismatchError(_report(*_smallest(history, alone)))
    tally.histories += 1
    tally.queries += len(queries)


def differences(
    history: History, queries: Sequence[Query], tally: RelationTally | None = None
) -> dict[int, str]:  # fmt: skip
    """Return what is wrong, by number of the query."""
    asked = [Asked(f"q{n}", planned(query, history.large), query.first, query.last) for n, query in enumerate(queries)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            answers = run_history(Path(folder), history, asked)
        except Exception as error:  # noqa: BLE001 - whatever the hosts raise is a finding
            return {0: f"{type(error).__name__}: {error}"}
    definition = Definition(history)
    try:
        found = {}
        for number, query in enumerate(queries):
            expected = definition.snapshots(query, host_of(asked[number].node))
            if tally is not None:
                tally.answering += any(expected)
                tally.dropped += query.last < len(history.steps) - 1
                tally.failed += _failing(history, query) is not None
            wrong = _wrong(history, query, expected, f"q{number}", answers)
            if wrong is not None:
                found[number] = wrong
    finally:
        definition.close()
    return found


def _wrong(
    history: History, query: Query, expected: list[Counter[Any]], name: str, answers: Answers
) -> str | None:  # fmt: skip
    rows = answers.rows.get(name, [])
    errors = answers.errors.get(name, [])
    for start, end, *_ in rows:
        if start >= end or end > INSTANTS:
            return f"a row is valid on [{start}, {end})"
    found = snapshots_of(rows, INSTANTS)
    failing = _failing(history, query)
    if any(FAILURE not in text for _, text in errors) or (errors and failing is None):
        return f"errors {errors}"
    # Before this instant, dropped queries have answered everything; and nothing that cannot be read was demanded.
    until = INSTANTS
    if query.last < len(history.steps) - 1:
        until = min(history.steps[query.last].watermarks.values()) - query.reach
    if failing is not None:
        until = min(until, failing - query.reach)
    for instant in range(INSTANTS):
        want, have = expected[instant], found[instant]
        if instant >= until and failing is not None:
            continue
        if want != have and not _nearly(want, have) and not (instant >= until and _within(have, want)):
            return bags(instant, want, have)
    return None


def _within(have: Counter[Any], want: Counter[Any]) -> bool:
    rest = want - (want - have)
    return have == rest or _nearly(Counter(have - want), Counter())


def _failing(history: History, query: Query) -> int | None:
    """Return since when the query may have lost tuples: the watermark before a relation of its could not be read."""
    before = 0
    for number, step in enumerate(history.steps):
        failed = {each.relation for each in step.events if isinstance(each, Change) and each.rows is None}
        if failed & query.relations and number <= query.last:
            return before
        before = min(step.watermarks.values())
    return None


def _smallest(history: History, queries: list[Query]) -> tuple[History, list[Query], str]:
    """Leave out one thing after the other while it still goes wrong."""
    wrong = next(iter(differences(history, queries).values()), "not seen again")
    shrinking, until = True, time.monotonic() + SHRINK_SECONDS
    while shrinking and time.monotonic() < until:
        shrinking = False
        fewer = [[*queries[:n], *queries[n + 1 :]] for n in range(len(queries)) if len(queries) > 1]
        fewer += [[simpler if each is query else each for each in queries] for query in queries
                  for simpler in _simpler(query)]  # fmt: skip
        attempts = [(history, each) for each in fewer] + [(each, queries) for each in smaller_histories(history)]
        for smaller, left in attempts:
            try:
                found = differences(smaller, left)
            except Exception:  # noqa: BLE001 - no query any more
                continue
            if found:
                history, queries, wrong, shrinking = smaller, left, next(iter(found.values())), True
                break
    return history, queries, wrong


def _simpler(query: Query) -> list[Query]:
    found = [replace(query, selects=(each,)) for each in query.selects if len(query.selects) > 1]
    for place, select in enumerate(query.selects):
        fewer = [replace(select, **{part: each}) for part in ("where", "tests", "having", "having_tests", "items")
                 for each in _one_less(getattr(select, part))]  # fmt: skip
        fewer += [replace(select, distinct=False)] if select.distinct else []
        if len(query.selects) == 1 and len(select.outputs) > 1:
            fewer += [replace(select, outputs=each) for each in _one_less(select.outputs)]
        found += [replace(query, selects=(*query.selects[:place], each, *query.selects[place + 1 :])) for each in fewer]
    return found


def _one_less(things: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [(*things[:place], *things[place + 1 :]) for place in range(len(things))]


def _report(history: History, queries: Sequence[Query], wrong: str) -> str:
    lines = []
    for number, query in enumerate(queries):
        lines.append(
            f"q{number}, steps {query.first} to {query.last}: {query.fjord}\n{explain(planned(query, history.large))}"
        )
    for number, step in enumerate(history.steps):
        lines.append(
            f"step {number}, parts {step.parts}, forget {step.forget}, crash {step.crash}, then {step.watermarks}"
        )
        lines += [f"  {event}" for event in step.events]
    return "\n" + "\n".join(lines) + f"\n{wrong}"

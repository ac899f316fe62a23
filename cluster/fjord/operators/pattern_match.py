"""Matches of a pattern in the rows of each partition (docs/reference/sql/patterns.md; MATCH_RECOGNIZE).

    rows of a        60  25  20  70  30        PATTERN (A B+), A: speed > 50, B: speed < LAST(A.speed) / 2
    match            A   B   B                 valid at its last row, whose end the row of 70 shows
    search                       A   B ...     goes on: it may hold back the watermark, up to its last B

In each partition one search goes on at a time, from the first row that may begin the next match. Its outcome is certain
once no run of it can be preferred to the best match (:mod:`cluster.fjord.row_automaton`), or when the watermark has
passed the time of the pattern. One whose rows lack what every match needs (:mod:`cluster.fjord.pattern_rows`) takes
no steps, and those of all together are bounded (:mod:`cluster.fjord.row_automaton`). Only rows before the watermark
are read, so answers depend on neither order nor cuts.

Conditions on the row alone are evaluated for all new rows at once. Those that read other rows are evaluated step by
step, for all partitions at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, INTERVAL, NEVER, START, Batch, empty_rows, instant_text
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, StartOrdered, table_of
from cluster.fjord.pattern_rows import Partition, PatternOutlook, PatternRows
from cluster.fjord.pattern_values import PatternValues
from cluster.fjord.row_automaton import (
    EAGER_STEPS,
    MOST_RUNS,
    MOST_STEPS,
    STEPS_OF_ROW,
    Automaton,
    Bounds,
    Match,
    Search,
    free_steps,
)
from cluster.fjord.running_kind import Alone, MakesInstants, PassesNoOrigins, StateEstimate
from cluster.fjord.scalars import POLARS_TYPES
from cluster.fjord.state_rows import StateRows
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import QUERY_GROUP
from cluster.operators.pattern_match import RowPattern
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode

Held = tuple[Partition, Bounds, int]
Asked = list[tuple[str, Held]]
"""Variables whose conditions are asked for, each with the rows it would have."""
Answers = Iterator[bool]


class PatternMatch(StartOrdered):
    """Keeps the rows of searches that go on, and those that PREV of later rows may read.

    Parameters
    ----------
    columns
        No rows, with the columns of the input. Rows are valid at one instant.
    keys
        The columns of partitions.
    pattern
        The pattern.
    """

    def __init__(self, columns: pl.DataFrame, keys: tuple[str, ...], pattern: RowPattern) -> None:
        super().__init__(columns)
        self._columns, self._keys, self._pattern = columns, keys, pattern
        self._automaton = Automaton(pattern)
        self._outlook = PatternOutlook(pattern, self._automaton.variables)
        self._values = PatternValues(pattern)
        self._variables = [element.variable for element in pattern.elements]
        self._rows = self._no_rows()
        self._open: dict[int, Partition] = {}
        """Partitions whose search goes on."""
        self._restored: list[Partition] = []
        measures = {each.name: POLARS_TYPES[each.scalar.type] for each in pattern.measures}
        keyed = {key: columns.schema[key] for key in keys}
        self._output = OrderedOutput(pl.DataFrame(schema={**INTERVAL, **keyed, **measures}))

    def _no_rows(self) -> PatternRows:
        return PatternRows(self._columns, self._keys, self._pattern, self._automaton.variables)

    def _take(self, batch: Batch) -> Batch:
        """Read rows before the watermark; answer the matches that are certain now."""
        self.warning = None
        watermark_us = batch.watermark_us
        touched, self._restored = {each.number: each for each in self._restored}, []
        if batch.rows.height:
            touched |= {each.number: each for each in self._rows.add(batch.rows)}
        touched |= {number: each for number, each in self._open.items() if self._due(each, watermark_us)}
        self._answer(self._found(touched.values(), watermark_us))
        for number, each in touched.items():
            if each.search is None:
                self._open.pop(number, None)
            else:
                self._open[number] = each
        self._rows.compact(watermark_us)
        return self._output.release(min([watermark_us, *map(self._earliest, self._open.values())]))

    def _deadline(self, partition: Partition, row: int) -> int:
        """Return the first instant that is too late for a match that begins with a row."""
        within_us = self._pattern.within_us
        return NEVER if within_us is None else partition.stamp(row) + within_us

    def _due(self, partition: Partition, watermark_us: int) -> bool:
        return watermark_us >= self._deadline(partition, partition.begin)

    def _earliest(self, partition: Partition) -> int:
        """Return an instant before which no match will be found that is not certain yet."""
        search, pattern = partition.search, self._pattern
        if search is not None and search.best is not None and pattern.skip.kind == "past last row":
            return partition.stamp(search.best.end - 1)  # only longer ones are preferred to it
        last = partition.begin + pattern.least_rows - 1
        return partition.stamp(last) if last < partition.end else NEVER

    def _found(self, partitions: Iterable[Partition], watermark_us: int) -> list[tuple[Partition, Match]]:
        """Let searches go on as far as rows are known; return the matches."""
        found: list[tuple[Partition, Match]] = []
        waiting: list[tuple[Generator[Asked, Answers, None], Asked]] = []
        for partition in partitions:
            searching = self._searches(partition, watermark_us, found)
            if (asked := next(searching, None)) is not None:
                waiting.append((searching, asked))
        while waiting:
            answers = self._answers([each for _, asked in waiting for each in asked])
            further = []
            for searching, asked in waiting:
                own = [next(answers) for _ in asked]
                try:
                    further.append((searching, searching.send(iter(own))))
                except StopIteration:
                    continue
            waiting = further
        return found

    def _answers(self, asked: Asked) -> Answers:
        """Return whether the conditions are true, evaluated for all runs of all partitions at once."""
        by_variable: dict[str, list[int]] = {}
        for place, (variable, _) in enumerate(asked):
            by_variable.setdefault(variable, []).append(place)
        answers = [False] * len(asked)
        for variable, places in by_variable.items():
            met = self._values.met(variable, self._rows.table, [asked[place][1] for place in places])
            for place, answer in zip(places, met, strict=True):
                answers[place] = answer
        return iter(answers)

    def _searches(
        self, partition: Partition, watermark_us: int, found: list[tuple[Partition, Match]]
    ) -> Generator[Asked, Answers, None]:
        """Search in one partition, match after match; yield the conditions whose answers are needed."""
        automaton = self._automaton
        while True:
            if partition.search is None:
                self._begin(partition)
            search = partition.search
            if search is None:
                return
            deadline = self._deadline(partition, search.start)
            complete = self._outlook.complete(partition, search.start, deadline, watermark_us)
            while complete is not False and not search.certain and not search.exceeded:
                if complete is None and _waits(partition, search):
                    return
                if search.place == partition.end and watermark_us < deadline:
                    return
                if search.place == partition.end or partition.stamp(search.place) >= deadline:
                    search.end()
                    break
                fits = partition.fits[search.place - partition.first]
                asked = [
                    (self._variables[element], (partition, begins, search.place + 1))
                    for element, begins in automaton.asked(search, fits)
                ]
                automaton.count(
                    search, fits, sum(self._values.rows_read(each, begins, end) for each, (_, begins, end) in asked)
                )
                if not search.exceeded:
                    automaton.step(search, fits, (yield asked) if asked else iter(()))
            if complete is None and (search.exceeded or not search.free):
                return
            if complete and search.exceeded:
                search.give_up()
            self._pass(partition, search, charged=complete is True)
            if search.best is not None:
                found.append((partition, search.best))

    def _pass(self, partition: Partition, search: Search, *, charged: bool) -> None:
        """Let the next search begin behind one that is over."""
        following = self._next(partition, search)
        if charged:
            partition.reserve.take(search.steps, max(search.alone, following - search.start))
        partition.advance(following, self._pattern.within_us)
        partition.read = max(partition.read, search.place)
        partition.search = None

    def _begin(self, partition: Partition) -> None:
        """Begin a search with the next row that can be the first of a match, if there is one."""
        first, fits = self._automaton.first, partition.fits
        place = partition.begin - partition.first
        while place < len(fits) and not fits[place] & first:
            place += 1
        partition.advance(partition.first + place, self._pattern.within_us)
        if place < len(fits):
            partition.reserve.begin(partition.stamp(partition.begin), self._pattern.within_us)
            partition.search = self._automaton.search(partition.begin, partition.reserve)

    def _next(self, partition: Partition, search: Search) -> int:
        """Return the number of the row with which the next match may begin."""
        if search.gave_up:
            self.warning = PlanError(
                f"a search for a match that begins at {instant_text(partition.stamp(search.start))} was given up: it "
                f"took more than {MOST_STEPS:,} steps, or than those before it left ({STEPS_OF_ROW:,} come back with "
                f"each row), or {MOST_RUNS:,} ways to distribute rows at once",
                hint="let conditions in DEFINE exclude each other, or give WITHIN a shorter time",
            )
            return search.place
        best, skip = search.best, self._pattern.skip
        if best is None or skip.kind == "to next row":
            return search.start + 1
        if skip.kind == "past last row":
            return best.end
        ends = (*best.begins[1:], best.end)
        spans = [
            span
            for variable, *span in zip(self._variables, best.begins, ends, strict=True)
            if variable == skip.variable and span[0] < span[1]
        ]
        return spans[0][0] if skip.kind == "to first" else spans[-1][1] - 1

    def _answer(self, found: Sequence[tuple[Partition, Match]]) -> None:
        if not found:
            return
        table = self._rows.table
        held = [(partition, match.begins, match.end) for partition, match in found]
        last = table[[partition.rows[end - 1 - partition.first] for partition, _, end in held]]
        measures = self._values.measured(self._pattern, table, held)
        self._output.add(
            last.select(START, (pl.col(START) + 1).alias(END), *dict.fromkeys(self._keys)).hstack(measures)
        )

    def save(self) -> State:
        """Return the rows that are needed, and matches that wait for the watermark; searches begin anew from rows."""
        return {**super().save(), **self._rows.save(self._output.watermark_us), **self._output.save()}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        self._output.restore(state)
        self._rows, self._open = self._no_rows(), {}
        # States of earlier versions lack reserves: theirs are full.
        reserves = table_of(state, "reserves") if "reserves" in state else None
        self._restored = self._rows.restore(table_of(state, "rows"), reserves)


def _waits(partition: Partition, search: Search) -> bool:
    """Return whether a search waits until it is known if it can find a match at all: it would read rows once more."""
    first_read = search.place - max(partition.read, search.start)
    return search.steps > EAGER_STEPS + free_steps(max(0, first_read))


@final
class RunningPatternMatch(MakesInstants, PassesNoOrigins, Alone[kinds.PatternMatch]):
    """Matches of a pattern of rows."""

    def operator(self, operation: kinds.PatternMatch) -> Operator:
        """Return the operator."""
        return PatternMatch(empty_rows(operation.columns), operation.keys, operation.pattern)

    def kept(self, operation: kinds.PatternMatch, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return the rows within the pattern's time, or the last few of each key."""
        pattern = operation.pattern
        if pattern.within_us is not None:
            rows = estimate.flow(node.inputs[0]).per_second * pattern.within_us / 1e6
            return StateRows(rows, operation.columns)
        partitioned = set(operation.keys) - {QUERY_GROUP.name}
        last = max((pattern.most_rows or 0) - 1, *(lag.rows for lag in pattern.lags), 0)
        return StateRows(float(last * (KEYS_ASSUMED if partitioned else 1)), operation.columns)

"""Patterns of rows: how much work searches do, and that where they are given up depends on rows alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord import pattern_rows, row_automaton
from cluster.fjord.batch import NEVER, START, Batch
from cluster.fjord.operators import pattern_match
from cluster.fjord.operators.pattern_match import PatternMatch
from cluster.fjord.pattern_rows import Partition, PatternOutlook
from cluster.fjord.pattern_values import PatternValues
from cluster.fjord.row_automaton import Automaton, Reserve, Search
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators.columns import AggregateCall
from cluster.operators.pattern_match import Definition, PatternElement, Reach, RowPattern, Skip, SkipKind
from cluster.plan.scalar_texts import read_scalar
from tests.cluster.fjord.operators.test_pattern_match import COUNT, FIRST, INTEGER, LAST, MEASURES, defined, frame

X = read_scalar('"x"', INTEGER)
COUNT_OF_A = Reach("n", "aggregate", "A", call=AggregateCall("n", "count", None, INTEGER))
LAST_OF_A = Reach("l", "last", "A", X)
Given = tuple[int, str | None, int | None]


class Recorded(PatternMatch):
    """Notes which searches are given up, by key and stamp of their first row."""

    given_up: list[tuple[Any, int]]

    def _next(self, partition: Partition, search: Search) -> int:
        if search.gave_up:
            place = partition.rows[search.start - partition.first]
            self.given_up.append((self._rows.table["k"][place], partition.stamp(search.start)))
        return super()._next(partition, search)


def made(pattern: RowPattern) -> Recorded:
    subject = Recorded(frame(), ("k",), pattern)
    subject.given_up = []
    return subject


def pattern_of(
    *elements: PatternElement,
    definitions: tuple[Definition, ...],
    within_us: int | None,
    skip: SkipKind = "past last row",
) -> RowPattern:
    reaches = (FIRST, LAST, COUNT, COUNT_OF_A, LAST_OF_A)
    return RowPattern(elements, definitions, MEASURES, (), reaches, ("k", "x"), within_us, Skip(skip))


@dataclass
class Work:
    """What has been done, by all operators together."""

    steps: int = 0
    conditions: int = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    done, count, met = Work(), Automaton.count, PatternValues.met

    def counted(self: Automaton, search: Search, fits: int, rows_read: int) -> None:
        before = search.steps
        count(self, search, fits, rows_read)
        done.steps += search.steps - before

    def evaluated(self: PatternValues, variable: str, table: pl.DataFrame, asked: Sequence[Any]) -> list[bool]:
        done.conditions += len(asked)
        return met(self, variable, table, asked)

    monkeypatch.setattr(Automaton, "count", counted)
    monkeypatch.setattr(PatternValues, "met", evaluated)
    return done


SEVERAL = [PatternElement(name, 1, None) for name in "ABCD"]
Z = PatternElement("Z")


def fed(subject: PatternMatch, rows: Sequence[Given], each: int) -> tuple[list[Any], list[str]]:
    """Return the answers and the warnings for rows that come in batches of some size."""
    answers, warnings = [], []
    for first in range(0, len(rows), each):
        batch = rows[first : first + each]
        found = subject.transition(0, Batch(frame(*batch), batch[-1][0] + 1))
        answers += found.rows.rows()
        warnings += [str(subject.warning)] if subject.warning else []
    answers += subject.transition(0, Batch(frame(), NEVER)).rows.rows()
    return answers, warnings + ([str(subject.warning)] if subject.warning else [])


@pytest.mark.parametrize("each", [50, 3_000])
@pytest.mark.parametrize("within_us", [500, 10_000])
def test_a_pattern_whose_last_row_never_comes_takes_work_that_grows_with_rows(
    each: int, within_us: int, work: Work
) -> None:
    spent = []
    for count in (1_500, 3_000):
        work.steps = 0
        subject = made(pattern_of(*SEVERAL, Z, definitions=(defined("Z", '"x" = 0'),), within_us=within_us))
        assert fed(subject, [(at, "a", 1) for at in range(count)], each) == ([], [])
        assert work.steps <= 400 * count, "at most what is eager, and 4 runs a row once"
        spent.append(work.steps)
    assert spent[1] <= 2.3 * spent[0]


def test_what_every_match_needs_is_counted_in_rows(work: Work) -> None:
    """Two As before a Z are needed, and only one comes."""
    elements = (PatternElement("B", 0, None), PatternElement("A", 2, None), Z)
    definitions = (defined("A", '"x" = 1'), defined("Z", '"x" = 0'))
    subject = made(pattern_of(*elements, definitions=definitions, within_us=1_000))
    rows: list[Given] = [(at, key, 2) for at in range(400) for key in "ab"]
    rows += [(400, "a", 1), (400, "b", 1), (401, "a", 0), (401, "b", 1), (402, "b", 0)]
    found = subject.transition(0, Batch(frame(*rows), NEVER)).rows
    assert [(row[2], row[-1]) for row in found.rows()] == [("b", 403)]
    assert 403 < work.steps < 450, "those of the match, and of runs that might be preferred at its end"


@pytest.mark.parametrize("each", [50, 600])
@pytest.mark.parametrize("reaching", ['"n" < 0', '"l" < 0'])
def test_a_condition_on_other_rows_that_is_never_met_takes_work_that_grows_with_rows(
    each: int, reaching: str, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_automaton, "MOST_STEPS", 4_000)
    monkeypatch.setattr(row_automaton, "STEPS_OF_ROW", 40)
    spent = []
    for count in (300, 600):
        work.steps = work.conditions = 0
        subject = made(pattern_of(*SEVERAL, Z, definitions=(defined("Z", '"x" = 0', reaching),), within_us=10_000))
        found, warnings = fed(subject, [(at, "a", int(at % 20 > 0)) for at in range(count)], each)
        assert not found
        assert warnings
        assert work.steps <= 4_000 + 2 * 40 * count + len(subject.given_up) * count
        assert work.conditions <= work.steps
        spent.append(work.steps)
    assert spent[1] <= 2.3 * spent[0]


def test_a_search_that_keeps_up_is_decided_at_once_although_it_is_long(work: Work) -> None:
    elements = (PatternElement("A", 1, None), PatternElement("B", 1, None), Z)
    definitions = (defined("A", '"x" > 0'), defined("B", '"x" > 0'), defined("Z", '"x" = 0'))
    subject = made(pattern_of(*elements, definitions=definitions, within_us=100_000))
    subject.transition(0, Batch(frame(*((at, "a", 1) for at in range(400))), 400))
    assert work.steps > row_automaton.EAGER_STEPS
    assert subject.transition(0, Batch(frame((400, "a", None)), 401)).watermark_us < 401  # those behind read again
    assert work.steps < 800 + 5 * row_automaton.EAGER_STEPS


def test_a_search_that_reads_rows_again_waits_until_the_match_may_be_complete(work: Work) -> None:
    elements = (PatternElement("A"), PatternElement("B", 1, None), Z)
    definitions = (defined("A", '"x" > 0'), defined("B", '"x" > 0'), defined("Z", '"x" = 0', '"l" = 2'))
    subject = made(pattern_of(*elements, definitions=definitions, within_us=2_000))
    rows: list[Given] = [(at, "a", 1 + (at == 1)) for at in range(1_500)]
    subject.transition(0, Batch(frame(*rows), 1_500))
    subject.transition(0, Batch(frame(), 2_000))  # the first search has read all
    read = work.steps
    assert read < 1_500 + 2 * row_automaton.EAGER_STEPS
    found = subject.transition(0, Batch(frame((2_000, "a", 0)), 2_001)).rows
    assert [row[3:] for row in found.rows()] == [(2, 0, 1_500)]
    assert work.steps < read + 1_500


def test_a_search_that_dies_early_holds_nothing_back() -> None:
    elements = (PatternElement("A"), PatternElement("B"), Z)
    definitions = (defined("A", '"x" > 0'), defined("B", '"x" > 1'), defined("Z", '"x" = 0'))
    subject = made(pattern_of(*elements, definitions=definitions, within_us=2_000))
    assert subject.transition(0, Batch(frame(*((at, "a", 1) for at in range(500))), 500)).watermark_us == 500


# A definition of what is found and given up, row by row, without looking ahead for what is needed


class Limits:
    """Small limits, which make searches of a few rows be given up."""

    def __init__(self, dice: random.Random) -> None:
        self.steps, self.per_row = dice.choice(((20, 3), (12, 2), (30, 8), (30, 1), (60, 1), (60, 2), (100_000, 1_000)))
        self.runs, self.eager = dice.choice((2, 4, 1_000)), dice.choice((0, 3, 300))

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(row_automaton, "MOST_STEPS", self.steps)
        monkeypatch.setattr(row_automaton, "STEPS_OF_ROW", self.per_row)
        monkeypatch.setattr(row_automaton, "MOST_RUNS", self.runs)
        monkeypatch.setattr(pattern_match, "EAGER_STEPS", self.eager)


@dataclass
class Definitely:
    """The rows of one partition in order, and what searches in them find, from the words of the reference alone."""

    pattern: RowPattern
    limits: Limits
    rows: list[tuple[int, int]]
    found: list[tuple[int, int, int, int]] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    spent: int = 0

    def __post_init__(self) -> None:
        self.automaton = Automaton(self.pattern)
        start = 0
        while start < len(self.rows):
            following = self.search(start) if self.fits(start) & self.automaton.first else start + 1
            for row in range(start, following):
                self.spent = max(0, self.spent - self.limits.per_row)
                if row + 1 < len(self.rows) and self.apart(row + 1, row):
                    self.spent = 0
            start = following

    def apart(self, row: int, start: int) -> bool:
        within = self.pattern.within_us
        return within is not None and self.rows[row][0] - self.rows[start][0] >= within

    def fits(self, row: int) -> int:
        bits = 0
        for bit, variable in enumerate(self.automaton.variables):
            texts = [ROW_CONDITIONS[each] for each in ROW_CONDITIONS if self.conditions[variable][0] == each]
            bits |= (1 << bit) if texts[0](self.rows[row][1]) else 0
        return bits

    @property
    def conditions(self) -> dict[str, tuple[str | None, str | None]]:
        return CONDITIONS_OF[id(self.pattern)]

    def complete(self, start: int) -> bool:
        """Whether what every match needs is there, row by row."""
        most = self.pattern.most_rows
        rows = [row for row in range(start, len(self.rows)) if not self.apart(row, start)][:most]
        for element in self.pattern.elements:
            bit = 1 << self.automaton.variables.index(element.variable)
            for _ in range(element.least):
                while rows and not self.fits(rows[0]) & bit:
                    del rows[0]
                if not rows:
                    return False
                del rows[0]
        return True

    def search(self, start: int) -> int:
        """Search from a row; return where the next search may begin."""
        search, limits = self.automaton.search(start, Reserve()), self.limits
        alone, exceeded, alike = 0, False, True
        while search.runs and search.place < len(self.rows) and not self.apart(search.place, start):
            place, fits = search.place, self.fits(search.place)
            alike = alike and (place == start or not fits & self.automaton.first)
            alone += alike
            asked = self.automaton.asked(search, fits)
            read = [place + 1 - begins[0] for element, begins in asked if '"n"' in self.reaching(element)]
            search.steps += len(search.runs) + sum(read)
            most = min(limits.steps, limits.steps - self.spent + limits.per_row * alone)
            verdicts = [self.verdict(element, begins, place) for element, begins in asked]
            self.automaton.step(search, fits, iter(verdicts))
            exceeded = search.steps > most or len(search.runs) > limits.runs
            if exceeded:
                break
        needed = self.complete(start)
        following = start + 1
        if exceeded and needed:
            self.given_up.append(self.rows[start][0])
            following = search.place
        elif search.best is not None:
            assert needed
            end = search.best.end
            self.found.append((self.rows[end - 1][0], self.rows[start][1], self.rows[end - 1][1], end - start))
            following = end if self.pattern.skip.kind == "past last row" else start + 1
        if needed:
            charge = search.steps - limits.per_row * max(alone, following - start)
            self.spent = min(limits.steps, self.spent + max(0, charge))
        return following

    def reaching(self, element: int) -> str:
        return self.conditions[self.pattern.elements[element].variable][1] or ""

    def verdict(self, element: int, begins: tuple[int, ...], place: int) -> bool:
        """Whether a condition that reads the rows of A holds; only the first element is an A."""
        variable = self.pattern.elements[element].variable
        end = begins[1] if len(begins) > 1 else place + 1
        rows = [self.rows[row][1] for row in range(begins[0], end)] if element or variable == "A" else []
        return REACHING[self.reaching(element)](rows)


ROW_CONDITIONS: dict[str | None, Any] = {
    None: lambda x: True,
    '"x" > 0': lambda x: x > 0,
    '"x" = 0': lambda x: x == 0,
    '"x" < 2': lambda x: x < 2,
}
REACHING: dict[str, Any] = {
    '"n" > 2': lambda rows: len(rows) > 2,
    '"l" = 1': lambda rows: bool(rows) and rows[-1] == 1,
}
CONDITIONS_OF: dict[int, dict[str, tuple[str | None, str | None]]] = {}


def drawn(dice: random.Random) -> RowPattern:
    """Return a pattern, and note its conditions."""
    within_us = dice.choice((None, 4, 9, 15, 30))
    bounds = ((1, 1), (2, 2)) if within_us is None else ((1, 1), (1, None), (1, None), (0, None), (2, None), (0, 1))
    elements = []
    for name in ("A", *dice.choices("BCD", k=dice.randint(1, 3))):
        least, most = dice.choice(bounds)
        elements.append(PatternElement(name, least, most, dice.random() < 0.2))
    if all(element.least == 0 for element in elements) or dice.random() < 0.5:
        elements.append(PatternElement("Z"))
    often = dice.random() < 0.5
    conditions = {
        element.variable: (
            '"x" < 2' if often and element.variable in "BCD" else dice.choice(list(ROW_CONDITIONS)),
            dice.choice(list(REACHING)) if element.variable != "A" and dice.random() < 0.3 else None,
        )
        for element in elements
    }
    definitions = tuple(defined(name, *texts) for name, texts in conditions.items() if any(texts))
    skip: SkipKind = dice.choice(("past last row", "to next row"))
    pattern = pattern_of(*elements, definitions=definitions, within_us=within_us, skip=skip)
    CONDITIONS_OF[id(pattern)] = conditions
    return pattern


def streams(dice: random.Random) -> dict[str, list[tuple[int, int]]]:
    """Return the rows of two partitions, in order."""
    found = {}
    for key in "ab":
        steps = dice.choices((0, 1, 1, 1, 2, 9), k=dice.randint(5, 40))
        common = dice.choice(((1,), (0, 1, 2), (1, 1, 1, 1, 1, 0), (1, 2), (*(1,) * 12, 0, 2)))
        rows = [(sum(steps[: place + 1]), dice.choice(common)) for place in range(len(steps))]
        found[key] = sorted(rows)
    return found


def cut(pattern: RowPattern, rows: list[Given], dice: random.Random) -> Iterator[tuple[Recorded, list[Any], int]]:
    """Yield an operator after each of some batches, with their answers; it may be another one with its state."""
    subject = made(pattern)
    ends = sorted(dice.sample(range(len(rows)), min(len(rows), dice.choice((0, 3, 12, 80)))))
    for first, end in pairwise((0, *ends, len(rows))):
        batch = rows[first:end]
        watermark_us = rows[end][0] if end < len(rows) else dice.choice((NEVER, rows[-1][0] + 1))
        warned = len(subject.given_up)
        answer = subject.transition(0, Batch(frame(*batch), watermark_us))
        assert (subject.warning is not None) == (len(subject.given_up) > warned)
        yield subject, answer.rows.rows(), answer.watermark_us
        if dice.random() < 0.3:
            state = unpack_state(pack_state(subject.save()))
            again = made(pattern)
            again.restore(state)
            again.given_up = subject.given_up
            subject = again
    answer = subject.transition(0, Batch(frame(), NEVER))
    yield subject, answer.rows.rows(), NEVER


def compared(seed: int) -> tuple[int, int]:
    """Compare an operator with the definition; return how many matches there are, and searches given up."""
    dice = random.Random(seed)
    limits, pattern, parts = Limits(dice), drawn(dice), streams(dice)
    with pytest.MonkeyPatch.context() as monkeypatch:
        limits.put(monkeypatch)
        monkeypatch.setattr(pattern_rows, "_COMPACTED_AT", dice.choice((1, 4_096)))
        expected = {key: Definitely(pattern, limits, rows) for key, rows in parts.items()}
        rows = sorted((stamp, key, x) for key, own in parts.items() for stamp, x in own)
        answers: list[Any] = []
        for after, found, _ in cut(pattern, list(rows), dice):
            answers += [(each[0], *each[-4:]) for each in found]
            subject = after
    matches = sorted((found[0], key, *found[1:]) for key, each in expected.items() for found in each.found)
    assert sorted(answers) == matches
    given_up = sorted((key, stamp) for key, each in expected.items() for stamp in each.given_up)
    assert sorted(subject.given_up) == given_up
    return len(matches), len(given_up)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**40))
def test_matches_and_what_is_given_up_depend_on_rows_alone(seed: int) -> None:
    compared(seed)


def test_drawn_searches_match_and_are_given_up() -> None:
    found = [compared(seed) for seed in range(60)]
    assert sum(matches > 0 for matches, _ in found) > 20
    assert sum(given_up > 0 for _, given_up in found) > 10


def test_a_state_of_an_earlier_version_has_full_reserves() -> None:
    pattern = pattern_of(PatternElement("A"), Z, definitions=(), within_us=10)
    subject = made(pattern)
    subject.transition(0, Batch(frame((1, "a", 1)), 2))
    state = {name: value for name, value in subject.save().items() if name != "reserves"}
    restored = made(pattern)
    restored.restore(state)
    assert [row[0] for row in restored.transition(0, Batch(frame((2, "a", 1)), NEVER)).rows.select(START).rows()] == [2]


def test_a_partition_without_rows_keeps_its_reserve_only_as_long_as_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_automaton, "MOST_STEPS", 30)
    monkeypatch.setattr(row_automaton, "STEPS_OF_ROW", 0)
    elements = (PatternElement("A"), PatternElement("B", 0, None), PatternElement("C", 0, None), Z)
    never = (defined("A", '"x" = 1'), defined("Z", '"x" = 0', '"l" > 5'))
    subject = made(pattern_of(*elements, definitions=never, within_us=100))
    subject.transition(0, Batch(frame((1, "a", 1), (2, "a", 2), (3, "a", 0), (4, "a", 1), (5, "a", 0)), 6))
    subject.transition(0, Batch(frame(), 104))
    sizes = []
    for watermark_us in (104, 105):
        subject.transition(0, Batch(frame(), watermark_us))
        state = subject.save()
        assert isinstance(state["reserves"], pl.DataFrame)
        sizes.append((state["rows"].height, state["reserves"].height))  # type: ignore[union-attr]
        again = made(subject._pattern)
        again.restore(unpack_state(pack_state(state)))
        subject = again
    assert sizes == [(0, 1), (0, 0)]


def reserves(subject: PatternMatch) -> list[Any]:
    found = subject.save()["reserves"]
    assert isinstance(found, pl.DataFrame)
    return found.rows()


@pytest.mark.parametrize("each", [1, 15])
def test_a_search_without_what_every_match_needs_costs_nothing(each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_automaton, "STEPS_OF_ROW", 0)
    subject = made(pattern_of(*SEVERAL, Z, definitions=(defined("Z", '"x" = 0'),), within_us=20))
    for first in range(0, 15, each):
        subject.transition(0, Batch(frame(*((at, "a", 1) for at in range(first, first + each))), first + each))
    subject.transition(0, Batch(frame(), 20))  # the first search is over
    assert subject.save()["output_watermark_us"] == 1 + 4
    assert reserves(subject) == []


def test_a_costly_search_that_fails_is_charged_alike_whenever_the_rest_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_automaton, "STEPS_OF_ROW", 1)
    elements = (PatternElement("A"), PatternElement("B", 1, None), PatternElement("C", 1, None), Z)
    definitions = (defined("A", '"x" = 5'), *(defined(name, '"x" = 1') for name in "BC"), defined("Z", '"x" = 0'))
    rows: list[Given] = [(at, "a", x) for at, x in enumerate((5, *(1,) * 10, 9, 0))]
    taken: list[tuple[int, int]] = []
    take = Reserve.take

    def noted(self: Reserve, steps: int, rows: int) -> None:
        taken.append((steps, rows))
        take(self, steps, rows)

    monkeypatch.setattr(Reserve, "take", noted)
    found = []
    for each in (1, 13):
        subject = made(pattern_of(*elements, definitions=definitions, within_us=100))
        fed(subject, rows, each)
        found += [reserves(subject)]
    assert found[0] == found[1]
    assert taken[0] == taken[1]
    assert taken[0][0] > 12, "more than is free"
    assert taken[0][1] == 12, "no other search begins with one of the rows it read"


def test_what_every_match_needs_is_sought_among_as_many_rows_as_it_has() -> None:
    outlook = PatternOutlook(pattern_of(PatternElement("A", 2, 2), Z, definitions=(), within_us=None), ("A", "Z"))
    found = []
    for fits in ([1, 1], [1, 1, 2], [1, 1, 0], [1, 1, 0, 2]):
        partition = Partition(0, fitting={1: [], 2: []})
        partition.add(list(range(len(fits))), list(range(len(fits))), fits)
        found.append(outlook.complete(partition, 0, NEVER, len(fits)))
    assert found == [None, True, False, False]
    partition.forget(1)
    assert partition.fitting == {1: [1], 2: [3]}

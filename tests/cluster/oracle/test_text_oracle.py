"""Random texts against their definition, in a short run that is always the same; and proof that it can say no."""

from __future__ import annotations

import random
from collections import Counter

import polars as pl
import pytest
from sqlglot import exp

from cluster.expressions import called_functions
from cluster.fjord.operators import pane_aggregation
from cluster.language import accepted_syntax
from cluster.language.quantities import DURATION_UNITS
from cluster.scalars.scalar_function import Family, ScalarFunction
from protocols.errors import FjordError
from protocols.wire.streams import FieldType
from tests.cluster.oracle import text_differences, text_shrinking
from tests.cluster.oracle.aimed_drawing import Aim, Sought
from tests.cluster.oracle.definition import Row
from tests.cluster.oracle.proving import MismatchError
from tests.cluster.oracle.text_coverage import Drawn
from tests.cluster.oracle.text_differences import reason_of
from tests.cluster.oracle.text_leaves import Turns
from tests.cluster.oracle.text_proving import search_texts
from tests.cluster.oracle.text_queries import random_text
from tests.cluster.oracle.text_running import accepted
from tests.cluster.oracle.text_writing import written

SEED = 20_261_201
TEXTS = 10_000
"""So many have everything in them, or nearly: this seed has, at 8,750."""
UNAIMED = 750
"""Texts before any is aimed at what they have not: each of them is translated."""
AT_ONCE = 250

REFUSALS = (
    "a text that is computed has N,N characters at most",  # a length of LPAD or RPAD that is written out
    "parts are counted from N",  # SPLIT_PART with a number of 0 that is written out
    "... is a condition on places",  # EXISTS (SELECT 1 ... QUALIFY place): the named place is not selected any more
    "how far this may be off is not known",  # ERROR_BOUND where the values of a condition or a key may be off
)
"""Why a text without a mistake may be refused."""


def test_random_texts_answer_what_they_mean() -> None:
    tally = search_texts(SEED, 60, worlds=5)
    assert tally.pairs >= 200
    assert tally.answering >= tally.pairs // 4
    assert tally.rewritten > 0
    assert tally.paned > 0


@pytest.mark.timeout(1_500)  # minutes on a busy machine
def test_all_that_the_language_accepts_is_drawn_and_all_that_is_drawn_is_accepted() -> None:
    """What comes once in thousands of texts is drawn on purpose."""
    drawn, refused, aim = Drawn(), Counter[str](), Aim()
    missing, sought, is_new = drawn.missing(), Sought(()), True
    for number in range(TEXTS):
        if number == UNAIMED:
            assert refused.total() < number // 50
        if number >= UNAIMED and is_new:
            missing = drawn.missing()
            if not missing:
                break
            aim.seek(missing)
            sought = Sought(missing)
            is_new = False
        text = random_text(random.Random(f"{SEED}/{number}"), aim, plain=False)
        if number >= UNAIMED and not sought.may_be_in(text):
            continue
        derived, query = written(text)
        one = Drawn()
        one.add(text, [*derived, query])
        if number >= UNAIMED and not sought.is_in(one):
            continue
        try:
            accepted(derived, query)
        except FjordError as error:
            refused[reason_of(error)] += 1
            continue
        drawn += one
        is_new = True
    assert missing == []
    assert not _unexpected(refused)


@pytest.mark.proof
@pytest.mark.timeout(1_500)  # several minutes on a busy machine
def test_all_that_the_language_accepts_comes_by_itself_in_thousands_of_texts() -> None:
    drawn, refused, turns = Drawn(), Counter[str](), Turns()
    missing = drawn.missing()
    for number in range(TEXTS):
        text = random_text(random.Random(f"{SEED}/{number}"), turns, plain=False)
        derived, query = written(text)
        try:
            accepted(derived, query)
        except FjordError as error:
            refused[reason_of(error)] += 1
        else:
            drawn.add(text, [*derived, query])
        if number % AT_ONCE == 0 and not (missing := drawn.missing()):
            break
    assert missing == []
    assert not _unexpected(refused)
    assert refused.total() < number // 50


def _unexpected(refused: Counter[str]) -> dict[str, int]:
    return {reason: count for reason, count in refused.items() if not reason.startswith(REFUSALS)}


def test_a_function_that_nobody_draws_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    soundex = ScalarFunction("SOUNDEX", str, (Family.TEXT,), FieldType.TEXT)
    monkeypatch.setitem(called_functions.FUNCTIONS, exp.Soundex, soundex)
    assert "SOUNDEX with text at 1" in Drawn().missing()


def test_a_unit_that_nobody_draws_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DURATION_UNITS, "FORTNIGHTS", 1_209_600_000_000)
    assert "word FORTNIGHTS" in Drawn().missing()


def test_syntax_that_nobody_draws_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(accepted_syntax.QUERY_SYNTAX, exp.Limit, {"expression": frozenset({"number"})})  # type: ignore[arg-type] # a dictionary is behind it
    assert "Limit expression number" in Drawn().missing()


def test_the_same_seed_draws_the_same() -> None:
    one, other = ([written(random_text(random.Random(f"3/{n}"))) for n in range(20)] for _ in range(2))
    assert one == other


def _found(texts: int = 60, *, shrink: bool = False, seed: int = SEED) -> str:
    with pytest.raises(MismatchError) as mismatch:
        search_texts(seed, texts, worlds=2, shrink=shrink)
    return str(mismatch.value)


def test_a_row_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = text_differences.run_text

    def forgetful(*arguments: object) -> list[Row]:
        return run(*arguments)[1:]  # type: ignore[arg-type]

    monkeypatch.setattr(text_differences, "run_text", forgetful)
    monkeypatch.setattr(text_shrinking, "SECONDS", 5.0)
    assert "missing" in _found(shrink=True)


def test_a_window_that_is_merged_wrongly_from_panes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows = pane_aggregation._Windows._by_rows

    def short(
        self: pane_aggregation._Windows, pending: pl.DataFrame, *arguments: object, **others: bool
    ) -> pl.DataFrame:
        return by_rows(self, pending[1:], *arguments, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(pane_aggregation._Windows, "_by_rows", short)
    assert "SLIDE" in _found(seed=SEED + 1).upper()


def test_a_word_that_is_not_heard_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = text_differences.planned
    monkeypatch.setattr(text_differences, "planned", lambda derived, query: plan(derived, _deaf(query)))
    report = _found(200)
    assert "DISTINCT" in report.upper().split()


def _deaf(query: str) -> str:
    import re

    return re.sub(r"\bSELECT\s+DISTINCT\b", "SELECT", query, flags=re.IGNORECASE)

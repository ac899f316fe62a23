"""Results that a run continues from, arguments that hold, and the score."""

from __future__ import annotations

import pytest

from tests.mutants.changes import mutants_of
from tests.mutants.results import ArgumentError, Results, Score, entry_for, equivalent_among
from tests.mutants.running import Run

SOURCE = b"def f(a, b):\n    return a < b\n"
ARGUMENT = "a and b are never equal here, because the caller has compared them before"


@pytest.fixture
def mutant(tmp_path):
    (tmp_path / "m.py").write_bytes(SOURCE)
    (found,) = mutants_of("m.py", SOURCE)
    return found


def results(tmp_path, suite="suite"):
    return Results(tmp_path / "kept" / "results.json", tmp_path, suite)


@pytest.mark.parametrize(("outcome", "after_other_tests", "after_other_source"), [
    ("survived", None, None), ("killed", "killed", None), ("timeout", "timeout", None),
])  # fmt: skip
def test_a_run_continues_from_known_outcomes(tmp_path, mutant, outcome, after_other_tests, after_other_source):
    first = results(tmp_path)
    assert first.outcome(mutant) is None
    first.add(mutant, Run(outcome, 1.5, "tests/x.py::test"))
    assert results(tmp_path).outcome(mutant) == outcome
    assert results(tmp_path, "more tests").outcome(mutant) == after_other_tests
    (tmp_path / "m.py").write_bytes(b"x = 1\n" + SOURCE)
    assert results(tmp_path).outcome(mutant) == after_other_source


def test_an_argument_is_found_again(tmp_path, mutant):
    path = tmp_path / "equivalent.toml"
    assert equivalent_among([mutant], path) == {}
    path.write_text(entry_for(mutant).replace('argument = ""', f'argument = "{ARGUMENT}"'), encoding="utf-8")
    assert equivalent_among([mutant], path) == {mutant.identity: ARGUMENT}
    with pytest.raises(ArgumentError, match=r"no such mutant any more: m\.py, f: 'a < b'"):
        equivalent_among([], path)
    path.write_text(entry_for(mutant), encoding="utf-8")
    with pytest.raises(ArgumentError, match="not argued"):
        equivalent_among([mutant], path)


@pytest.mark.parametrize(("killed", "timeout", "survived", "argued", "share", "good"), [
    (190, 5, 5, 5, 1.0, True),
    (185, 5, 10, 0, 0.95, True),
    (184, 5, 11, 0, 0.945, False),
    (180, 0, 20, 11, 180 / 189, False),  # found are 95 %, but too many are argued to be equivalent
    (180, 0, 20, 10, 180 / 190, False),
    (0, 0, 0, 0, 1.0, True),
])  # fmt: skip
def test_score(killed, timeout, survived, argued, share, good):
    outcomes = ["survived"] * survived + ["killed"] * killed + ["timeout"] * timeout
    # One that is argued to be equivalent but was killed counts as killed.
    arguments = [*map(str, range(argued)), *(["199"] if killed else [])]
    score = Score.of({str(number): outcome for number, outcome in enumerate(outcomes)}, arguments)
    assert score.share_killed == pytest.approx(share)
    assert score.good is good

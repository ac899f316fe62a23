"""Drawing mutants: by seed and area, and the same ones while they exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.areas import AREAS, files_of
from tests.mutants.results import equivalent_among
from tests.mutants.sampling import all_mutants, drawn, drawn_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants():
    """All mutants: every file is parsed to find them."""
    return all_mutants(ROOT)


def test_each_area_has_its_share_and_a_seed_decides(mutants):
    first, other = (drawn_of(mutants, ROOT, seed, 50) for seed in (1, 2))
    again = drawn(ROOT, 1, 50)
    assert [len(mutants) for mutants in first.values()] == [16, 17, 17]
    assert list(first) == list(AREAS)
    assert first == again
    assert first != other
    more = drawn_of(mutants, ROOT, 1, 100)
    assert all(first[area] == more[area][: len(first[area])] for area in AREAS)


def test_a_change_elsewhere_moves_no_mutant(tmp_path):
    for file in files_of(ROOT)["operators"]:
        copy = tmp_path / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / file).read_bytes())
    before = [each.identity for each in drawn(tmp_path, 1, 30)["operators"]]
    changed = tmp_path / "cluster/fjord/operators/set_operations.py"
    changed.write_text(f"x = a < b\n{changed.read_text(encoding='utf-8')}", encoding="utf-8")
    after = [each.identity for each in drawn(tmp_path, 1, 30)["operators"]]
    assert len(set(before) - set(after)) <= 1


def test_every_argument_is_about_an_existing_mutant(mutants):
    every = (mutant for area in mutants.values() for mutant in area)
    equivalent_among(every, Path(__file__).parent / "equivalent.toml")

"""The choice of mutants: drawn by a seed, as many of each area, and stable while their statements stay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from tests.mutants.areas import files_of
from tests.mutants.changes import differs, mutants_of
from tests.mutants.mutant import Mutant


def all_mutants(root: Path) -> dict[str, list[Mutant]]:
    """Return all mutants, by area."""
    return {
        area: [mutant for file in files for mutant in mutants_of(file, (root / file).read_bytes())]
        for area, files in files_of(root).items()
    }


def drawn(root: Path, seed: int, count: int) -> dict[str, list[Mutant]]:
    """Return `count` mutants, as many of each area."""
    return drawn_of(all_mutants(root), root, seed, count)


def drawn_of(mutants: Mapping[str, Sequence[Mutant]], root: Path, seed: int, count: int) -> dict[str, list[Mutant]]:
    """Return `count` of these mutants, as many of each area.

    Each mutant has a place in a queue that depends on the seed and on itself only: a change elsewhere moves none.
    """
    shares = [count * (number + 1) // len(mutants) - count * number // len(mutants) for number in range(len(mutants))]
    return {
        area: list(islice((each for each in _queue(found, seed) if differs(each, _source(root, each))), share))
        for (area, found), share in zip(mutants.items(), shares, strict=True)
    }


def _queue(mutants: Sequence[Mutant], seed: int) -> list[Mutant]:
    return sorted(mutants, key=lambda each: _place(seed, each))


def _source(root: Path, mutant: Mutant) -> bytes:
    return (root / mutant.file).read_bytes()


def _place(seed: int, mutant: Mutant) -> bytes:
    return hashlib.blake2b(f"{seed} {mutant.identity}".encode(), digest_size=8).digest()

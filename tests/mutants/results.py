"""Outcomes of mutants, in a file so that a run can be continued; and the arguments for equivalent ones."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.mutant import Mutant
from tests.mutants.running import Run

LEAST_SCORE = 0.95
MOST_EQUIVALENT = 0.05
SHORTEST_ARGUMENT = 40
"""Characters of the shortest argument that is accepted."""


class ArgumentError(Exception):
    """An invalid entry among the equivalent mutants."""


class Results:
    """Outcomes, by identity of the mutant.

    A killed mutant stays killed while its file is unchanged, even if the suite changes: tests are rarely removed. A
    survivor is run again when the suite changes.

    Parameters
    ----------
    path
        The file; written after each mutant.
    root
        The repository.
    suite
        A digest of the suite.
    """

    def __init__(self, path: Path, root: Path, suite: str) -> None:
        self._path, self._root, self._suite = path, root, suite
        self._found: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._found = json.loads(path.read_text(encoding="utf-8"))["mutants"]

    def outcome(self, mutant: Mutant) -> str | None:
        """Return the outcome of a mutant; None if it is not known, or not valid any more."""
        found = self._found.get(mutant.identity)
        if found is None or found["file_digest"] != self._digest(mutant):
            return None
        if found["outcome"] == "survived" and found["suite_digest"] != self._suite:
            return None
        return str(found["outcome"])

    def add(self, mutant: Mutant, run: Run) -> None:
        """Record the outcome of a mutant."""
        self._found[mutant.identity] = {
            **mutant.described,
            "outcome": run.outcome,
            "seconds": round(run.seconds, 1),
            "killed_by": run.killed_by,
            "file_digest": self._digest(mutant),
            "suite_digest": self._suite,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"mutants": self._found}, indent=1), encoding="utf-8")
        new.replace(self._path)

    def _digest(self, mutant: Mutant) -> str:
        return digest_of([self._root / mutant.file])


def digest_of(files: Iterable[Path]) -> str:
    """Return a digest of the contents of files."""
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        content = file.read_bytes()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def equivalent_among(mutants: Iterable[Mutant], path: Path) -> dict[str, str]:
    """Return the arguments of a file, by identity of the mutant.

    Raises
    ------
    ArgumentError
        If an entry has no argument, or there is no such mutant.
    """
    known = {json.dumps(mutant.described, sort_keys=True): mutant for mutant in mutants}
    found: dict[str, str] = {}
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []) if path.exists() else []
    for entry in entries:
        argument = " ".join(str(entry.pop("argument", "")).split())
        place = f"{entry.get('file')}, {entry.get('where') or 'top'}: {entry.get('before')!r} -> {entry.get('after')!r}"
        mutant = known.get(json.dumps({"occurrence": 0, **entry}, sort_keys=True))
        if mutant is None:
            raise ArgumentError(f"there is no such mutant any more: {place}")
        if len(argument) < SHORTEST_ARGUMENT:
            raise ArgumentError(f"it is not argued why this changes nothing: {place}")
        found[mutant.identity] = argument
    return found


@dataclass(frozen=True, slots=True)
class Score:
    """Numbers of mutants by outcome; one argued to be equivalent counts as that only if it survived."""

    counts: Mapping[str, int]

    @classmethod
    def of(cls, outcomes: Mapping[str, str], equivalent: Iterable[str]) -> Score:
        """Return the score of outcomes by identity."""
        argued = set(equivalent)
        named = ("equivalent" if each == "survived" and one in argued else each for one, each in outcomes.items())
        return cls(Counter(named))

    @property
    def share_killed(self) -> float:
        """The share of those that are not equivalent; a timeout counts as killed."""
        rest = self.counts.get("killed", 0) + self.counts.get("timeout", 0) + self.counts.get("survived", 0)
        return 1.0 if rest == 0 else 1 - self.counts.get("survived", 0) / rest

    @property
    def share_equivalent(self) -> float:
        """The share of all."""
        return self.counts.get("equivalent", 0) / max(sum(self.counts.values()), 1)

    @property
    def good(self) -> bool:
        """Whether enough are killed, and few enough argued to be equivalent."""
        return self.share_killed >= LEAST_SCORE and self.share_equivalent <= MOST_EQUIVALENT


def entry_for(mutant: Mutant) -> str:
    """Return the entry of a mutant in the file of equivalent ones, without the argument."""
    described = {key: value for key, value in mutant.described.items() if key != "occurrence" or value}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in described.items()]
    return "\n".join(["[[equivalent]]", *lines, 'argument = ""'])

"""What has been proven at which commit: notes to continue from, and the last full run, which is checked in."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
NOTES = ROOT / ".proof"
"""Ignored by git: outcomes at this commit, and the output of each part."""
LAST_RUN = ROOT / "tests" / "proof" / "last_run.json"
NO_FULL_RUN = "no full run recorded"


class Outcome(msgspec.Struct, frozen=True):
    """What came of a part."""

    command: str
    passed: bool
    seconds: float
    figures: str
    """The last line that it printed."""


class Proof(msgspec.Struct, frozen=True):
    """What came of the parts at a commit."""

    commit: str
    date: str
    parts: dict[str, Outcome] = {}

    def having(self, name: str, outcome: Outcome) -> Proof:
        """Return this with the outcome of one more part."""
        return Proof(self.commit, today(), {**self.parts, name: outcome})


@dataclass(frozen=True)
class Record:
    """The two files.

    Parameters
    ----------
    notes
        What has been done so far, at one commit.
    last_run
        The last run of all parts.
    """

    notes: Path = NOTES / "outcomes.json"
    last_run: Path = LAST_RUN

    def known(self, commit: str) -> Proof:
        """Return what is known of a commit."""
        found = read(self.notes)
        return found if found is not None and found.commit == commit else Proof(commit, today())

    def keep(self, proof: Proof, names: Collection[str]) -> bool:
        """Write what is known; return whether these were all parts, so that this is the last full run."""
        write(self.notes, proof)
        full = set(names) <= proof.parts.keys()
        if full:
            write(self.last_run, proof)
        return full

    def last(self) -> str:
        """Return a line about the last full run."""
        found = read(self.last_run)
        if found is None:
            return NO_FULL_RUN
        passed = sum(each.passed for each in found.parts.values())
        return f"last full run: {found.date} at {found.commit[:12]}, {passed} of {len(found.parts)} parts passed"


def read(path: Path) -> Proof | None:
    """Return what a file holds; None if there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Proof) if path.exists() else None


def write(path: Path, proof: Proof) -> None:
    """Replace a file at once, so that none is half written after a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=2) + b"\n")
    new.replace(path)


def today() -> str:
    """Return the day."""
    return datetime.now(UTC).date().isoformat()


def git(*arguments: str, root: Path = ROOT) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def commit(root: Path = ROOT) -> str:
    """Return the commit that is checked out."""
    return git("rev-parse", "HEAD", root=root).strip()


def uncommitted(root: Path = ROOT) -> list[str]:
    """Return the files that are not as in the commit; the last full run is about one, and not part of it."""
    exclusion = f":(exclude){LAST_RUN.relative_to(ROOT)}"
    return [line[3:] for line in git("status", "--porcelain", "--", ".", exclusion, root=root).splitlines()]

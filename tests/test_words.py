"""One word for one thing, in plain English: code and documents hold no word of banned_words.txt.

Names on the wire, on disk and in FjordSQL are not meant; what the patterns would find of those is excepted there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "Makefile", "pyproject.toml"),
    *(
        ".ci",
        ".github",
        "benchmarks",
        "cluster",
        "docker",
        "docs",
        "examples",
        "firmware_sim",
        "protocols",
        "proxy",
        "tests",
    ),
)
"""All that is written in this repository."""
FIXED = frozenset({'"MemberFilter"', '"ToldAggregates"', '"ToldCounts"', '"WithoutTold"', ' the Fjord"'})
"""Names of state in data folders and a label of metrics, as they stand in the code: they never change."""
SUFFIXES = frozenset({".py", ".md", ".toml", ".sql", ".yml", ".yaml", ".sh"})


def banned() -> list[tuple[re.Pattern[str], str]]:
    """Return the patterns and what to write instead."""
    lines = (ROOT / "tests" / "banned_words.txt").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return [(re.compile(pattern), instead) for pattern, instead in rows]


def files_in(place: str) -> Iterator[Path]:
    path = ROOT / place
    found = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES)
    yield from (each for each in found if each != Path(__file__))


@pytest.mark.parametrize("place", PLACES)
def test_no_banned_word_is_left(place: str) -> None:
    texts = {file: file.read_text("utf-8") for file in files_in(place)}
    found = [
        f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()!r}: write {instead}"
        for pattern, instead in banned()
        for file, text in texts.items()
        for match in pattern.finditer(text)
        if text[match.start() - 1 : match.end() + 1] not in FIXED
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("line", ["whoever asks is told", "class MemberFilter", "def take_apart(", "the Fjord stopped"])
def test_banned_words_are_found(line: str) -> None:
    assert any(pattern.search(line) for pattern, _ in banned())


@pytest.mark.parametrize("line", ["the whole", "fjord_member", "folder", "Fjord runs", "a windowed join"])
def test_other_words_are_not(line: str) -> None:
    assert not any(pattern.search(line) for pattern, _ in banned())

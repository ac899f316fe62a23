"""Every file that CONTRIBUTING.md names is there, and has the name that stands in parentheses behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PATHS = sorted(set(re.findall(r"`((?:cluster|proxy|protocols|firmware_sim|tests)/[\w./]+)`", PAGE)))
NAMED = [
    (path, name)
    for path, parenthesis in re.findall(r"`([\w/]+\.py)` \(([^)]*)\)", PAGE)
    for name in re.findall(r"`(\w+)`", parenthesis)
    if name.isidentifier()
]


def test_the_page_names_many_places() -> None:
    assert len(PATHS) > 50
    assert len(NAMED) > 20


@pytest.mark.parametrize("path", PATHS)
def test_every_file_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_name_is_in_its_file(path: str, name: str) -> None:
    assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8"))

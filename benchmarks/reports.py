"""What a benchmark leaves behind: figures as JSON, a plot, and on standard output one object, or a line for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def agrees(holds: bool) -> str:  # noqa: FBT001 - its only argument
    """Return whether a finding of a paper holds here, as reports have it."""
    return "AGREE" if holds else "DISAGREE"


def keep_figures(figures: Mapping[str, Any], name: str) -> Path:
    """Write figures, those of a benchmark that goes on, too; return the file in :data:`RESULTS`."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}.json"
    file.write_text(json.dumps(figures, indent=2) + "\n")
    return file


def write_report(
    figures: Mapping[str, Any], name: str, draw: Callable[[Path], None] | None = None, *, as_json: bool
) -> None:
    """Write figures and their plot to :data:`RESULTS`, and print the figures.

    Parameters
    ----------
    figures
        What was measured, by name.
    name
        Of the benchmark.
    draw
        Draws the plot to a path; None if there is none.
    as_json
        Whether one JSON object is printed and nothing else.
    """
    files = [keep_figures(figures, name)]
    if draw is not None:
        files.append(files[0].with_suffix(".png"))
        draw(files[1])
    if as_json:
        print(json.dumps(figures))
        return
    width = max(map(len, figures), default=0)
    for key, value in figures.items():
        print(f"{key:{width}} {value}")
    print(f"written: {', '.join(map(str, files))}")

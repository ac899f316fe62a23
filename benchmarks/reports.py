"""What a benchmark leaves behind: figures as JSON, a plot, and on standard output one object, or a line for each.

Beside them :func:`machine`, on which they depend.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

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


def machine() -> dict[str, Any]:
    """Return the machine and versions on which the figures depend."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("pyspark", "polars", "deltalake")},
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())

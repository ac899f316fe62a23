"""Measurements as tables: for terminals, Markdown, JSON and plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from cluster.errors import MissingLibraryError
from cluster.sizing.measuring import PARTS, Measurement
from protocols.text.quantities import format_byte_size

HEADINGS = (
    "motes",
    "samples/s",
    "queries",
    "answers/s",
    *(f"{part}, cores" for part in PARTS),
    "memory",
    "disk per day",
    "median delay",
    "of it for motes",
    "limit",
)
DAY_SECONDS = 86_400


def table_rows(measurements: Sequence[Measurement]) -> list[tuple[str, ...]]:
    """Return the cells of each measurement, in the order of :data:`HEADINGS`."""
    return [
        (
            f"{each.load.motes:,}",
            f"{each.samples_per_second:,.0f}",
            f"{each.load.queries:,}",
            f"{each.answers_per_second:,.0f}",
            *(f"{each.cores[part]:.2f}" for part in PARTS),
            format_byte_size(sum(each.memory_bytes.values()) >> 20 << 20),
            format_byte_size(round(each.disk_bytes_per_second * DAY_SECONDS) >> 20 << 20),
            "" if each.delays is None else f"{each.delays.median:.2f} s",
            "" if each.delays is None else f"{each.delays.median_for_motes:.2f} s",
            each.limit or "",
        )
        for each in measurements
    ]


def rich_table(measurements: Sequence[Measurement]) -> Table:
    """Return the table for a terminal."""
    table = Table(*HEADINGS, box=None)
    for cells in table_rows(measurements):
        table.add_row(*cells)
    return table


def markdown(measurements: Sequence[Measurement]) -> str:
    """Return the table in Markdown."""
    lines = [HEADINGS, tuple("---:" for _ in HEADINGS), *table_rows(measurements)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def as_json(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Return the measurements as one JSON object."""
    return {"loads": [{**msgspec.to_builtins(each), "load": each.load.text} for each in measurements]}


def plot(measurements: Sequence[Measurement], path: Path) -> None:
    """Draw cores and memory against the load into a file.

    Raises
    ------
    MissingLibraryError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - optional
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise MissingLibraryError("plots need matplotlib", hint="pip install 'fjord[plots]'") from error
    figure = Figure(figsize=(11, 4.5))
    FigureCanvasAgg(figure)
    cores, memory = figure.subplots(1, 2)
    places, names = range(len(measurements)), [each.load.text for each in measurements]
    for axes, label, values in (
        (cores, "cores in use", [[each.cores[part] for part in PARTS] for each in measurements]),
        (memory, "memory (GiB)", [[each.memory_bytes[part] / 2**30 for part in PARTS] for each in measurements]),
    ):
        below = [0.0] * len(measurements)
        for number, part in enumerate(PARTS):
            heights = [row[number] for row in values]
            axes.bar(places, heights, bottom=below, label=part)
            below = [low + height for low, height in zip(below, heights, strict=True)]
        axes.set_xticks(list(places), names, rotation=30, ha="right")
        axes.set(ylabel=label, xlabel="motes x queries")
    cores.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)

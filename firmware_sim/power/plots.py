"""Plots of draw and of battery curves. The plotting library is optional and imported when it is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from firmware_sim.errors import MissingLibraryError
from firmware_sim.power.power_report import PowerReport, curve
from firmware_sim.power.program_file import PAPER_PROGRAMS
from protocols.errors import SettingsError
from protocols.power.costs import COMPONENTS, Component

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

COLOURS = {
    Component.PROCESSOR_ACTIVE: "#d95f02",
    Component.PROCESSOR_IDLE: "#e6ab02",
    Component.PROCESSOR_SLEEP: "#f2d16b",
    Component.ADC: "#66a61e",
    Component.SENSOR: "#a6d854",
    Component.RADIO_START_UP: "#9ecae1",
    Component.RADIO_TRANSMIT: "#1f78b4",
    Component.RADIO_RECEIVE: "#6a51a3",
    Component.RADIO_LISTEN: "#e7298a",
    Component.RADIO_SLEEP: "#c6dbef",
    Component.TIME_SYNC: "#a6761d",
    Component.BOARD: "#666666",
}
"""One colour per component, the same in every plot."""


def new_figure(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side, drawn without a screen.

    Raises
    ------
    MissingLibraryError
        If matplotlib is not installed.
    """
    new_figure, new_canvas = _library()
    figure = new_figure(figsize=(width, height), layout="constrained")
    new_canvas(figure)
    return figure, [figure.add_subplot(1, panels, place + 1) for place in range(panels)]


def _library() -> tuple[type[Figure], type[FigureCanvasAgg]]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingLibraryError("plots need matplotlib", hint="pip install 'fjord[plots]'") from error
    return Figure, FigureCanvasAgg


def check_plot_file(path: Path) -> None:
    """Refuse a file that no plot can be written to, before time is spent on what it would show.

    Raises
    ------
    SettingsError
        If there is no such folder, or its name ends with a format that is not known.
    MissingLibraryError
        If matplotlib is not installed.
    """
    _, canvas = _library()
    if path.suffix and path.suffix[1:].lower() not in canvas.get_supported_filetypes():
        raise SettingsError(
            f"a plot cannot be written as {path.suffix}: {path}", hint="name a file that ends with .png, .svg or .pdf"
        )
    if not path.absolute().parent.is_dir():
        raise SettingsError(f"there is no folder {path.parent} for the plot {path.name}")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a file.

    Raises
    ------
    SettingsError
        If it cannot be written.
    """
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror or error}") from error


def plot_power(report: PowerReport, path: Path) -> None:
    """Plot the draw of a program against its rate, split by component; for a program of the paper, all three.

    The band around the total is the uncertainty of the profile; the dot is the program at the rate that was asked for.
    """
    names = PAPER_PROGRAMS if report.question.program in PAPER_PROGRAMS else (report.question.program,)
    figure, panels = new_figure(4.6 * len(names) + 2.2, 4.2, len(names))
    handles: dict[str, Artist] = {}
    for name, axes in zip(names, panels, strict=True):
        hertz, draws = curve(replace(report.question, program=name), report.profile)
        if hertz:
            handles |= _draw_curve(axes, np.array(hertz), np.array(draws), report.profile.uncertainty)
        if name == report.question.program:
            handles |= _draw_point(axes, report)
        drawn = [float(report.draw_mw.sum()), *(float(each.sum()) for each in draws)]
        axes.set(xscale="log", yscale="log" if min(drawn) > 0 else "linear")
        axes.set(title=name, xlabel="samples per second", ylabel="draw (mW)")
        axes.grid(visible=True, alpha=0.3)
    figure.legend(list(handles.values()), list(handles), loc="outside right center", fontsize="small")
    figure.suptitle(report.profile.title)
    save_figure(figure, path)


def _draw_curve(axes: Axes, hertz: np.ndarray, draws: np.ndarray, uncertainty: float) -> dict[str, Artist]:
    """Draw the components that matter, their total and its band; return what the legend names."""
    handles: dict[str, Artist] = {}
    total = draws.sum(axis=1)
    for component, colour in COLOURS.items():
        values = draws[:, COMPONENTS.index(component)]
        if values.max() > total.max() * 1e-4:
            (handles[_words(component)],) = axes.plot(hertz, values, color=colour, label=_words(component))
    (handles["total"],) = axes.plot(hertz, total, color="black", linewidth=2, label="total")
    if uncertainty:
        band = axes.fill_between(
            hertz, total / (1 + uncertainty), total * (1 + uncertainty), color="black", alpha=0.12, linewidth=0
        )
        handles[f"total, off by {uncertainty:.0%}"] = band
    if total.min() > 0:
        axes.set_ylim(bottom=total.min() * 1e-2)
    return handles


def _draw_point(axes: Axes, report: PowerReport) -> dict[str, Artist]:
    total = float(report.draw_mw.sum())
    (point,) = axes.plot([report.rate_hz], [total], "o", color="#d7191c", zorder=5)
    return {f"{report.rate_hz:g} Hz: {total:.3g} mW": point}


def _words(component: Component) -> str:
    return component.value.replace("_", " ")

"""Plots of the lifetime report."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from firmware_sim.lifetime.report import LifetimeReport
from firmware_sim.power.plots import COLOURS, new_figure, save_figure
from protocols.power.costs import COMPONENTS


def plot_lifetime(report: LifetimeReport, path: Path) -> None:
    """Draw every battery over time, the energy of the groups, and the cost of each query."""
    figure, (batteries, components, queries) = new_figure(15.0, 4.6, 3)
    outcome = report.outcome
    groups = list(dict.fromkeys(mote.group for mote in report.fleet.motes))
    for number, group in enumerate(groups):
        members = [place for place, mote in enumerate(report.fleet.motes) if mote.group == group]
        lines = batteries.plot(
            outcome.curve_days, np.clip(outcome.curve[:, members], 0, 1) * 100, color=f"C{number}", linewidth=0.8
        )
        lines[0].set_label(group)
    name = outcome.motes[report.first].name
    batteries.set(xlabel="days", ylabel="usable charge left (%)", ylim=(0, 102), title=f"first to die: {name}")
    batteries.legend(fontsize="small")
    batteries.grid(visible=True, alpha=0.3)
    bottom = np.zeros(len(groups))
    draws = np.array([_mean_draw(report, group) for group in groups])
    for component, colour in COLOURS.items():
        values = draws[:, COMPONENTS.index(component)]
        if values.max() > draws.sum(axis=1).max() * 1e-3:
            components.bar(groups, values, bottom=bottom, color=colour, label=component.value.replace("_", " "))
            bottom += values
    components.set(ylabel="mean draw (mW)", title="what the groups spend it on")
    if bottom.any():
        components.legend(fontsize="small")
    names = [query.name for query in report.queries]
    queries.barh(names, [query.days_of_first for query in report.queries], color="#1f78b4")
    queries.set(xlabel="days of the first mote's life", title="what each query costs")
    queries.grid(visible=True, axis="x", alpha=0.3)
    figure.suptitle(report.fleet.name)
    save_figure(figure, path)


def _mean_draw(report: LifetimeReport, group: str) -> np.ndarray:
    members = [place for place, mote in enumerate(report.fleet.motes) if mote.group == group]
    return np.asarray(np.mean([report.outcome.draw_mw(place) for place in members], axis=0))

"""The demonstration's screen: pure rendering of what has been received."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cluster.demo.mission import Mission, mission_of
from cluster.demo.scenario import DemoQuery
from protocols.text.durations import format_duration
from protocols.wire.catalog import MoteEntry

ROWS_SHOWN = 4
FIELDS = ("speed", "flow")
"""What the simulated motes measure."""


@dataclass(slots=True)
class QueryView:
    """One query: whether it runs, how many rows came, and the last of them."""

    query: DemoQuery
    running: bool = False
    rows: int = 0
    last: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=ROWS_SHOWN))


@dataclass(slots=True)
class DemoState:
    """Everything the view shows."""

    queries: dict[str, QueryView]
    motes: dict[str, MoteEntry] = field(default_factory=dict)
    rows_per_second: float = 0.0
    packets_per_second: float = 0.0
    seconds_left: float = 0.0
    note: str = ""

    @property
    def mission(self) -> Mission:
        """What the motes do and draw."""
        return mission_of(self.motes.values(), FIELDS)

    def taken(self, mission: Mission) -> str:
        """Return how much of what the motes see leaves them, in words."""
        return f"{mission.samples_per_second:,.0f} samples/s taken, {self.packets_per_second:,.1f} packets/s sent"

    def rates(self) -> list[tuple[str, int]]:
        """Return how motes are sampling, and how many of them do so each way, most first."""
        counted = Counter(_sampling(entry) for entry in self.motes.values())
        return counted.most_common()


def render(state: DemoState) -> RenderableType:
    """Return the live view."""
    mission = state.mission
    motes = Table("motes", "sampling", box=None, expand=False)
    for sampling, count in state.rates():
        motes.add_row(str(count), sampling)
    parts: list[RenderableType] = [
        Text(
            f"{state.taken(mission)} by {len(state.motes)} motes, {state.rows_per_second:,.1f} result rows/s, "
            f"{state.seconds_left:.0f} s left   {state.note}"
        ),
        Text(mission.words),
        motes,
    ]
    for view in state.queries.values():
        body = "\n".join(row_text(row) for row in view.last) or "no rows yet"
        title = f"{view.query.name}: {view.query.about} ({view.rows:,} rows{'' if view.running else ', dropped'})"
        parts.append(Panel(Text(body), title=Text(title), title_align="left"))
    return Group(*parts)


def row_text(message: dict[str, Any]) -> str:
    """Return one result message as a line."""
    values = "  ".join(f"{name}={_short(value)}" for name, value in message.get("row", {}).items())
    return f"#{message['sequence']:<6} {message.get('start', '')}  {values}"


def summary_line(state: DemoState) -> str:
    """Return the state in one line, for output that is not a terminal."""
    rates = ", ".join(f"{count} {sampling}" for sampling, count in state.rates())
    mission, rows = state.mission, f"{state.rows_per_second:,.1f} rows/s"
    return f"{state.taken(mission)}, {rows} | motes: {rates or 'none yet'} | {mission.words}"


def _sampling(entry: MoteEntry) -> str:
    if entry.period_us:
        return f"{entry.state.value} every {format_duration(entry.period_us)}"
    return entry.state.value


def _short(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)

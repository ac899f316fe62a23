"""The demonstration's screen, which queries it shows, and when one of them is dropped."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from protocols.errors import FjordError
from protocols.power.estimate import Workload, draw_mw
from protocols.power.profiles import find_profile
from protocols.text.quantities import format_duration
from protocols.wire.catalog import MoteEntry, MoteState
from protocols.wire.programs import SamplingProgram


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query of the demonstration."""

    name: str
    about: str
    sql: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """Three queries, and which are dropped when (share of the duration)."""

    queries: tuple[DemoQuery, ...]
    drops: tuple[tuple[float, str], ...]


GENERATED = Scenario(
    (
        DemoQuery(
            "segments",
            "average speed per road segment over the last 10 s, every 2 s",
            "SELECT segment, AVG(speed) AS speed, SUM(flow) AS flow, COUNT(*) AS samples"
            " FROM traffic WINDOW(RANGE 10 SECONDS SLIDE 2 SECONDS) GROUP BY segment",
        ),
        DemoQuery(
            "slow",
            "every sample below 30 mph",
            "SELECT sensor, segment, lane, speed FROM traffic WHERE speed < 30",
        ),
        DemoQuery(
            "quick",
            "four samples a second, counted per lane every 5 s",
            "SELECT lane, COUNT(*) AS samples, MIN(speed) AS slowest"
            " FROM traffic WINDOW(RANGE 5 SECONDS SLIDE 5 SECONDS) SAMPLE EVERY 250 MILLISECONDS GROUP BY lane",
        ),
    ),
    ((0.6, "quick"), (0.8, "slow"), (0.8, "segments")),
)
"""Over the traffic generator: dropping "quick" lets the motes go from 4 Hz to 1 Hz; at the end they fall asleep."""

TRACE = Scenario(
    (
        DemoQuery(
            "half_hours",
            "average speed per sensor, every 30 minutes",
            "SELECT sensor, AVG(speed) AS speed FROM traffic WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES) GROUP BY sensor",
        ),
        DemoQuery("slow", "every reading below 20 mph", "SELECT sensor, speed FROM traffic WHERE speed < 20"),
        DemoQuery(
            "whole_road",
            "all sensors over the last hour, every 15 minutes",
            "SELECT AVG(speed) AS speed, MIN(speed) AS slowest, COUNT(*) AS samples"
            " FROM traffic WINDOW(RANGE 1 HOUR SLIDE 15 MINUTES)",
        ),
    ),
    ((0.6, "slow"), (0.8, "half_hours"), (0.8, "whole_road")),
)
"""Over a recorded trace with the columns time, sensor and speed."""


JOULES_A_DAY = 86.4
"""Of a milliwatt."""
_LEAST_DAYS = 0.1


@dataclass(frozen=True, slots=True)
class Mission:
    """The figures of a fleet: of its motes as they are, and as they would be if they sent everything.

    Parameters
    ----------
    samples_per_second
        How many samples all of them take.
    packets
        How many packets the proxy has received from them.
    draw_mw, all_mw
        Mean draw of a mote, by the energy model.
    days, all_days
        How long the battery of the mote in the middle lasts; None if that is not known.
    """

    samples_per_second: float
    packets: int
    draw_mw: float
    all_mw: float
    days: float | None
    all_days: float | None

    @property
    def words(self) -> str:
        """The draw and the life of a battery, beside those of motes that send every sample."""
        if not self.samples_per_second:
            return "no query demands anything: motes sleep"
        if not self.draw_mw:
            return "what they draw is not known yet"
        drawn = f"{self.draw_mw:.3g} mW a mote, {_days_text(self.days)}"
        return f"{drawn}; sending every sample {self.all_mw:.3g} mW, {_days_text(self.all_days)}"


def mission_of(entries: Iterable[MoteEntry], fields: tuple[str, ...]) -> Mission:
    """Return the figures of some motes; `fields` are those that each samples, of its stream."""
    known = list(entries)
    drawn, days = [], []
    for each in known:
        pair = _draws_mw(each, fields)
        if pair is None:
            continue
        drawn.append(pair)
        if each.battery_joules:
            days.append(tuple(each.battery_joules / (milliwatts * JOULES_A_DAY) for milliwatts in pair))
    sampling = [each for each in known if each.period_us and each.state is not MoteState.SILENT]
    return Mission(
        samples_per_second=sum(1e6 / each.period_us for each in sampling),
        packets=sum(each.packets_received for each in known),
        draw_mw=statistics.mean(own for own, _ in drawn) if drawn else 0.0,
        all_mw=statistics.mean(other for _, other in drawn) if drawn else 0.0,
        days=statistics.median(own for own, _ in days) if days else None,
        all_days=statistics.median(other for _, other in days) if days else None,
    )


def _draws_mw(entry: MoteEntry, fields: tuple[str, ...]) -> tuple[float, float] | None:
    """Return what a mote draws, and what it would if it sent every sample; None if its device is not known."""
    wanted = entry.wanted or SamplingProgram()
    period_us = wanted.period_us or entry.period_us or entry.default_period_us
    try:
        profile = find_profile(entry.device)
        own = entry.milliwatts or float(draw_mw(profile, wanted, Workload()).sum())
        program = SamplingProgram(wanted.fields or fields, period_us, listen=wanted.listen)
        return own, float(draw_mw(profile, program, Workload()).sum())
    except FjordError:
        return None


def _days_text(days: float | None) -> str:
    if days is None:
        return "without a limit"
    return f"{days:.0f} days" if days >= 10 else f"{max(days, _LEAST_DAYS):.1f} days"  # noqa: PLR2004 - two digits


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

"""How much push-down prolongs the life of motes at the same answers, and how well that is predicted.

The highway example: magnetometers at 180 Hz whose users count vehicles, or want each passage; and loops with all mixes
of five standing queries. The proxy's search chooses the programs. Draws are simulated sample by sample, once motes have
taken up their programs, and predicted in closed form from a few observed values. tests/system/test_push_down.py shows
that both kinds of program give the same answers.

`life_gain_count`, `life_gain_events`: life with push-down over life without. `predicted_error`: the largest relative
difference between predicted and simulated draw. `worst_over_optimum`: the dearest program chosen for random demands,
over the cheapest of all programs that serve them (1 is the optimum). `keyed_over_plain_raw`, `_events`, `_count`: the
simulated draw of motes with keys over that of motes without, with the programs of magnetometers that send every sample,
each passage, or counts.

    python benchmarks/energy.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from firmware_sim.lifetime.fleet_file import FleetPlan, load_fleet, observe
from firmware_sim.lifetime.query_file import AskingQuery, load_queries
from firmware_sim.lifetime.report import FleetFolding
from firmware_sim.phenomena.road import Road, RoadSettings
from firmware_sim.phenomena.traffic import Traffic
from firmware_sim.virtual_time.fleet import VirtualFleet, VirtualSettings
from protocols.acquisition.merging import workload_for
from protocols.acquisition.needs import Need, NeedKind
from protocols.acquisition.observed import Observed
from protocols.acquisition.pricing import Sensor
from protocols.acquisition.program_reports import ProgramStyle
from protocols.acquisition.search import Search
from protocols.event_log import configure_logging
from protocols.power.estimate import draw_mw
from protocols.power.profiles import find_profile, preset_names
from protocols.wire.packets import Packet, VehicleEvent
from protocols.wire.programs import ListenSchedule, Measure, SamplingProgram, Threshold
from tests.protocols.acquisition.brute_force import least_milliwatts

RESULTS = Path(__file__).parent / "results"
HIGHWAY = Path(__file__).parents[1] / "examples" / "highway"
SECOND = 1_000_000
MINUTE = 60 * SECOND
NOON_US = 20_000 * 86_400 * SECOND + 12 * 3600 * SECOND
KEYED = {"raw": ("count", "keyed_raw"), "events": ("passages", "keyed_pushed"), "count": ("count", "keyed_pushed")}
"""Where among the figures of vehicles those of motes with keys are."""
SETTLE_US = 6 * MINUTE
"""Motes take up their programs within a listen interval; energy is counted from here."""


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "--quick",
        action="store_true",
        help="shorter simulations of one lane, fewer mixes simulated and random demands: below 60 s of processor time",
    )
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    configure_logging("warning")
    vehicles = measure_vehicles(minutes=1, lanes=1) if options.quick else measure_vehicles()
    mixes = measure_mixes(hours=1 if options.quick else 24, simulated=1 if options.quick else 10)
    errors = [row["error"] for row in (*vehicles.values(), *mixes) if row["error"] is not None]
    report: dict[str, Any] = {
        "life_gain_count": vehicles["count"]["gain"],
        "life_gain_events": vehicles["passages"]["gain"],
        "predicted_error": max(errors),
        **{f"keyed_over_plain_{name}": vehicles[row][keyed] for name, (row, keyed) in KEYED.items()},
        "worst_over_optimum": worst_over_optimum(10 if options.quick else 300),
        "vehicles": vehicles,
        "median_gain_of_mixes": statistics.median(row["gain"] for row in mixes),
        "mixes": mixes,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "energy.json").write_text(json.dumps(report, indent=2) + "\n")
    plot(vehicles, mixes, RESULTS / "energy.png")
    if options.json:
        print(json.dumps(report))
        return
    print_report(report)
    print(f"written: {RESULTS / 'energy.json'}, {RESULTS / 'energy.png'}")


def measure_vehicles(minutes: float = 15, lanes: int = 2) -> dict[str, dict[str, Any]]:
    """Return life gains for a query that counts vehicles, one for each passage, and both.

    Several of these have one program: it is simulated once, as the road is the same each time.
    """

    @cache
    def simulated(program: SamplingProgram, *, with_keys: bool = False) -> tuple[float, float]:
        road = Road(RoadSettings(stations=1, lanes=lanes), origin_us=NOON_US)
        return _simulated(road, keyed if with_keys else fleet, program, minutes)

    fleet = load_fleet(HIGHWAY / "vehicles.toml")
    keyed = fleet.with_keys()
    count, passages = load_queries(HIGHWAY / "vehicles.sql", fleet.motes[0].description.stream)
    found = {}
    for name, queries in {"count": [count], "passages": [passages], "both": [count, passages]}.items():
        pushed, raw = (_program(fleet, queries, pushed_down=pushed_down) for pushed_down in (True, False))
        pushed_mw, events = simulated(pushed)
        raw_mw, _ = simulated(raw)
        # Those that pass are known of a program that reports each of them.
        fleet.observed.vehicles_per_second = events or simulated(_program(fleet, [passages]))[1]
        predicted = _predicted(fleet, pushed)
        found[name] = {
            "raw_mw": raw_mw,
            "pushed_mw": pushed_mw,
            "keyed_raw": simulated(raw, with_keys=True)[0] / raw_mw,
            "keyed_pushed": simulated(pushed, with_keys=True)[0] / pushed_mw,
            "gain": raw_mw / pushed_mw,
            "predicted_mw": predicted,
            "error": max(abs(predicted / pushed_mw - 1), abs(_predicted(fleet, raw) / raw_mw - 1)),
        }
    return found


def _program(fleet: FleetPlan, queries: Sequence[AskingQuery], *, pushed_down: bool = True) -> SamplingProgram:
    return FleetFolding(fleet, queries, pushed_down=pushed_down).merged(fleet.motes[0]).program


def _simulated(world: Any, fleet: FleetPlan, program: SamplingProgram, minutes: float) -> tuple[float, float]:
    """Return the mean draw of a mote in milliwatts, sample by sample, and vehicles per second and mote."""
    events = 0
    begins_us = NOON_US + SETTLE_US

    def listen(at_us: int, packet: Packet) -> None:
        nonlocal events
        if at_us >= begins_us:
            events += sum(isinstance(record, VehicleEvent) for record in packet.records)

    settings = VirtualSettings(fleet.motes[0].profile, begins_us=NOON_US)
    motes = VirtualFleet(world, dict.fromkeys((mote.name for mote in world.motes), program), settings, listen)
    motes.run(begins_us)
    before = sum(float(mote.meter.joules.sum()) for mote in motes.motes)
    until_us = begins_us + round(minutes * MINUTE)
    motes.run(until_us)
    after = sum(float(mote.meter.joules.sum()) for mote in motes.motes)
    seconds = minutes * 60
    return (after - before) / len(motes.motes) / seconds * 1e3, events / len(motes.motes) / seconds


def _predicted(fleet: FleetPlan, program: SamplingProgram) -> float:
    workload = workload_for(program, fleet.observed, loss=0.0)
    return float(draw_mw(fleet.motes[0].profile, program, workload).sum())


def measure_mixes(hours: float, simulated: int) -> list[dict[str, Any]]:
    """Return gains for every mix of the five standing queries; the last of each size are simulated, too."""
    fleet = load_fleet(HIGHWAY / "fleet.toml")
    queries = load_queries(HIGHWAY / "queries.sql", fleet.motes[0].description.stream)
    world = Traffic(2)
    fleet.observed.fields.clear()
    fleet.observed.spacing_us = world.motes[0].default_period_us
    fleet.observed.fields.update(observe(_Shifted(world), over_us=round(hours * 60) * MINUTE, looks=2_048).fields)
    mixes = [mix for size in range(1, len(queries) + 1) for mix in combinations(queries, size)]
    chosen = set(random.Random(1).sample(range(len(mixes)), simulated)) | {len(mixes) - 1}  # noqa: S311 - no secret
    found = []
    for number, mix in enumerate(mixes):
        pushed, raw = (_program(fleet, mix, pushed_down=pushed_down) for pushed_down in (True, False))
        pushed_mw, raw_mw = _predicted(fleet, pushed), _predicted(fleet, raw)
        row: dict[str, Any] = {
            "queries": _names(mix),
            "raw_mw": raw_mw,
            "pushed_mw": pushed_mw,
            "gain": raw_mw / pushed_mw,
            "simulated_mw": None,
            "error": None,
        }
        if number in chosen:
            row["simulated_mw"] = _simulated(world, fleet, pushed, hours * 60)[0]
            row["error"] = abs(pushed_mw / row["simulated_mw"] - 1)
        found.append(row)
    return found


class _Shifted:
    """A world in which time counts from the beginning of the simulation."""

    def __init__(self, world: Traffic) -> None:
        self.motes = world.motes
        self.sense = world.sense
        self.begins_us: int | None = NOON_US + SETTLE_US
        self.ends_us: int | None = None


def _names(mix: Sequence[AskingQuery]) -> list[str]:
    return [each.query.name for each in mix]


def worst_over_optimum(sets: int) -> float:
    """Return the worst ratio of the program found to the cheapest one, over random sets of needs."""
    dice = random.Random(7)  # noqa: S311 - no secret
    worst = 1.0
    for _ in range(sets):
        needs = [_random_need(dice) for _ in range(dice.randint(1, 6))]
        profile = find_profile(dice.choice(preset_names()))
        listen, most = ListenSchedule(MINUTE, 50_000), dice.choice([1, 7])
        observed = Observed(vehicles_per_second=dice.choice([0.02, 0.5]), loss=0.05)
        for _ in range(100):
            for name in _FIELDS:
                observed.see(name, dice.choice([5.0, 40.0, 41.0]), 40.0)
        found = Search(Sensor(_FIELDS, 1, profile), ProgramStyle(most, listen), observed).cheapest(needs)
        best = least_milliwatts(needs, _FIELDS, profile, most_per_packet=most, listen=listen, observed=observed)
        if math.isfinite(best):
            worst = max(worst, found.milliwatts / best)
    return worst


_FIELDS = ("speed", "flow", "level")


def _random_need(dice: random.Random) -> Need:
    period_us = dice.choice([SECOND // 2, SECOND, 2 * SECOND, 30 * SECOND])
    kind = dice.choice(list(NeedKind))
    pane_us = period_us * dice.choice([2, 10, 60])
    if kind in (NeedKind.EVENTS, NeedKind.TALLIES):
        told_us = pane_us if kind is NeedKind.TALLIES else 0
        over = Threshold("level", 0.6, 0.4)
        return Need(kind, ("level",), period_us, pane_us=told_us, threshold=over, patience_us=max(told_us, period_us))
    fields = tuple(name for name in _FIELDS if dice.random() < 0.5) or ("speed",)  # noqa: PLR2004 - a coin
    bands = ((fields[0], ((-math.inf, 10.0),)),) if dice.random() < 0.4 else ()  # noqa: PLR2004 - a share
    if kind is NeedKind.SAMPLES:
        return Need(kind, fields, period_us, bands, patience_us=period_us * 7)
    measures = (Measure.COUNT, Measure.SUM)
    return Need(kind, fields, period_us, bands, (), pane_us, measures, patience_us=max(pane_us, period_us * 7))


def print_report(report: dict[str, Any]) -> None:
    """Print the figures as tables."""
    console = Console(markup=False)
    keyed = [f"keyed_over_plain_{name}" for name in KEYED]
    for name in ("life_gain_count", "life_gain_events", "predicted_error", "worst_over_optimum", *keyed):
        console.print(f"{name:24} {report[name]:.4g}")
    table = Table("queries", "raw mW", "pushed mW", "life", "simulated mW", "error", box=None)
    for name, row in report["vehicles"].items():
        simulated = f"{row['pushed_mw']:.4g}"
        table.add_row(
            f"vehicles: {name}", f"{row['raw_mw']:.4g}", f"{row['predicted_mw']:.4g}", f"{row['gain']:.1f}x", simulated,
            f"{row['error']:.2%}",
        )  # fmt: skip
    for row in report["mixes"]:
        simulated = "" if row["simulated_mw"] is None else f"{row['simulated_mw']:.4g}"
        error = "" if row["error"] is None else f"{row['error']:.2%}"
        table.add_row(
            ", ".join(row["queries"]), f"{row['raw_mw']:.4g}", f"{row['pushed_mw']:.4g}", f"{row['gain']:.2f}x",
            simulated, error,
        )  # fmt: skip
    console.print(table)


def plot(vehicles: dict[str, dict[str, Any]], mixes: list[dict[str, Any]], path: Path) -> None:
    """Draw the gains."""
    import matplotlib as mpl  # noqa: PLC0415 - only plots need it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5))
    left.bar(list(vehicles), [row["gain"] for row in vehicles.values()])
    left.set_ylabel("life with push-down over life without")
    left.set_title("vehicles at 180 Hz")
    right.scatter([len(row["queries"]) for row in mixes], [row["gain"] for row in mixes])
    right.set_xlabel("standing queries")
    right.set_title("every mix of the highway's five queries")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()

"""How fast the simulation of motes is, and whether many live motes keep their schedule.

Virtual time: 1,000 motes with each of the paper's three programs through 30 days, energy only; then again for twice as
long, to see whether memory grows with time. Also whole motes, sample by sample, as a rate. Times are processor time,
so that the figures are for one core. Live: 10,000 motes at 0.1 Hz in one process over a broker, beside the same motes
in virtual time; a late tick is a sample taken more than a second after its instant. Also draws figure 11 of the paper.

    python benchmarks/motes.py [--quick] [--json] [--motes 1000] [--days 30] [--live-motes 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reports import write_report

from firmware_sim.phenomena.traffic import Traffic
from firmware_sim.power.battery import find_battery
from firmware_sim.power.many_motes import VirtualMote
from firmware_sim.power.plots import plot_power
from firmware_sim.power.power_report import PowerQuestion, answer
from firmware_sim.power.program_file import PAPER_PROGRAMS, VEHICLES_PER_SECOND, paper_program
from firmware_sim.power.virtual_run import run_motes
from firmware_sim.virtual_time.fleet import VirtualFleet, VirtualSettings
from protocols.event_log import configure_logging
from protocols.power.estimate import Workload
from protocols.power.profiles import find_profile
from protocols.wire.programs import ListenSchedule, SamplingProgram

RATE_HZ = 180.0
TENTH_HERTZ = SamplingProgram(("speed",), 10_000_000, 1, ListenSchedule(8_000_000, 50_000))
SETTLE_SECONDS = 15.0
"""Live motes run for this long with their programs before their schedule is looked at."""


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="a tenth of the motes, and a shorter live run")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--motes", type=int, default=1000)
    arguments.add_argument("--days", type=float, default=30.0)
    arguments.add_argument("--live-motes", type=int, default=10_000, help="0 for no live run, which needs a broker")
    arguments.add_argument("--live-seconds", type=float, default=60.0)
    options = arguments.parse_args()
    configure_logging("warning")
    if options.quick:
        options.motes, options.live_motes, options.live_seconds = options.motes // 10, options.live_motes // 10, 20.0
    report: dict[str, Any] = {**energy_only(options.motes, options.days), **sample_by_sample()}
    if options.live_motes:
        report |= asyncio.run(live(options.live_motes, options.live_seconds))
    question = PowerQuestion("atmel8515", "events", RATE_HZ, None, 20.0, Workload(VEHICLES_PER_SECOND))
    write_report(report, "motes", lambda path: plot_power(answer(question), path), as_json=options.json)


def energy_only(motes: int, days: float) -> dict[str, Any]:
    """Run the three programs in virtual time."""
    profile = find_profile("atmel8515")
    battery = find_battery(profile.battery)
    workload = Workload(VEHICLES_PER_SECOND)
    report: dict[str, Any] = {"motes": motes, "programs": len(PAPER_PROGRAMS), "days": days}

    def run(length: float) -> tuple[float, dict[str, float]]:
        began, draws = time.process_time(), {}
        for name in PAPER_PROGRAMS:
            program = paper_program(name, profile, RATE_HZ)
            fleet = [VirtualMote(f"m{place}", profile, program, battery, workload) for place in range(motes)]
            draws[name] = float(run_motes(fleet, days=length, seed=1).draw_mw(0).sum())
        return time.process_time() - began, draws

    seconds, draws = run(days)
    before = peak_mebibytes()
    run(days * 2)
    return {
        **report,
        "energy_only_s": round(seconds, 2),
        "mote_days_per_s": round(motes * days * len(PAPER_PROGRAMS) / seconds),
        "peak_mib": round(before, 1),
        "peak_mib_twice_as_long": round(peak_mebibytes(), 1),
        **{f"draw_mw_{name}": round(draw, 3) for name, draw in draws.items()},
    }


def sample_by_sample() -> dict[str, Any]:
    """Run whole motes in virtual time, packets and all."""
    world = Traffic(20)
    fleet = VirtualFleet(
        world, {each.name: TENTH_HERTZ for each in world.motes}, VirtualSettings(find_profile("telosb"))
    )
    began = time.process_time()
    fleet.run(2 * 3600 * 1_000_000)
    seconds = time.process_time() - began
    return {"samples_per_s": round(sum(mote.counters.samples for mote in fleet.motes) / seconds)}


async def live(motes: int, seconds: float) -> dict[str, Any]:
    """Run live motes over a broker, with a stand-in for their proxy that gives each its program."""
    from live_motes import run_live  # noqa: PLC0415 - needs a broker, which only this part does

    with tempfile.TemporaryDirectory(prefix="fjord-motes-") as folder:
        return await run_live(Path(folder), motes=motes, settle=SETTLE_SECONDS, seconds=seconds)


def peak_mebibytes() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

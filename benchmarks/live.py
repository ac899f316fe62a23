"""Live throughput to the knee: the load is doubled until some stage cannot keep up, and that stage is named.

Broker, proxy, cluster with Spark and simulated motes run as separate processes on this machine (``fjord bench``). One
query answers every sample, and nine others run beside it.

    python benchmarks/live.py [--quick] [--json] [--motes 250] [--seconds 20] [--most 64]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.sizing.loads import Load
from cluster.sizing.measuring import Measurement, measure
from cluster.sizing.sizing_table import as_json, markdown, plot
from protocols.event_log import configure_logging

RESULTS = Path(__file__).parent / "results"
PERIOD_US = 250_000
QUERIES = 10


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "--quick", action="store_true", help="one doubling only: within a minute, and not to the knee"
    )
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--motes", type=int, default=250, help="of the first load, at 4 Hz each")
    arguments.add_argument("--seconds", type=float, default=20.0, help="for which each load is measured")
    arguments.add_argument("--most", type=int, default=64, help="times the first load, at most")
    options = arguments.parse_args()
    seconds, settle, most = options.seconds, 12.0, options.most
    if options.quick:
        seconds, settle, most = 4.0, 4.0, 2
    configure_logging("error")
    found: list[Measurement] = []
    factor = 1
    while factor <= most and not (found and found[-1].limit):
        load = Load(options.motes * factor, QUERIES, PERIOD_US, every_sample=True)

        def show(what: str, load: Load = load) -> None:
            if not options.json:
                print(f"\r{load.text}: {what}\x1b[K", end="", file=sys.stderr, flush=True)

        found.append(measure(load, settle_seconds=settle, seconds=seconds, progress=show))
        factor *= 2
    report = describe(found)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "live.json").write_text(json.dumps(report, indent=2) + "\n")
    plot(found, RESULTS / "live.png")
    if options.json:
        print(json.dumps(report))
        return
    print(f"\n{markdown(found)}\nwritten: {RESULTS / 'live.json'}, {RESULTS / 'live.png'}")


def describe(found: list[Measurement]) -> dict[str, Any]:
    """Return the figures; ``knee_samples_per_s`` is the last load that was kept up with."""
    kept_up = [each for each in found if each.limit is None]
    return {
        "knee_samples_per_s": round(kept_up[-1].samples_per_second) if kept_up else 0,
        "knee_answers_per_s": round(kept_up[-1].answers_per_second) if kept_up else 0,
        "knee_median_delay_s": kept_up[-1].delays.median if kept_up and kept_up[-1].delays else None,
        "knee_found": found[-1].limit is not None,
        "limited_by": found[-1].limit,
        **as_json(found),
    }


if __name__ == "__main__":
    main()

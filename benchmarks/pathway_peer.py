"""Pathway as a peer: many filters in one dataflow, over the rows of a stream in CSV files.

Run by `benchmarks/peers.py` with the Python of an environment that has `pathway`, once for each measurement: a process
runs one dataflow. What it takes over an empty file is its start-up.

    python pathway_peer.py FOLDER SOURCE < conditions, one a line
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path


def main() -> None:
    """Measure one run, and print one JSON object: seconds, and rows answered."""
    import pathway as pw  # noqa: PLC0415 - in an environment of its own

    folder, source, conditions = Path(sys.argv[1]), sys.argv[2], sys.stdin.read().splitlines()
    schema = pw.schema_from_types(stamp=int, k=int, x=float)
    began = time.perf_counter()
    readings = pw.io.csv.read(str(folder / source), schema=schema, mode="static")
    answers = folder / "pathway" / source
    answers.mkdir(parents=True, exist_ok=True)
    for number, condition in enumerate(conditions):
        pw.io.csv.write(readings.filter(_condition(readings, condition)), str(answers / f"q{number}.csv"))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    took = time.perf_counter() - began
    rows = sum(len(file.read_text().splitlines()) - 1 for file in answers.glob("*.csv") if file.stat().st_size)
    print(json.dumps({"seconds": took, "answers": rows}))


def _condition(readings, text: str):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - types of Pathway's
    if (equal := re.fullmatch(r"k = (\d+)", text)) is not None:
        return readings.k == int(equal[1])
    between = re.fullmatch(r"x >= (\d+) AND x < (\d+)", text)
    if between is None:
        raise SystemExit(f"{text!r} is no condition of this benchmark")
    return (readings.x >= float(between[1])) & (readings.x < float(between[2]))


if __name__ == "__main__":
    main()

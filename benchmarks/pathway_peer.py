"""Pathway as a peer at its best: many filters in one dataflow, over rows in CSV files, answers thrown away.

It reads CSV four times as fast as it takes over a pandas table in memory. Run by `benchmarks/peers.py` with the Python
of an environment that has `pathway`, once for each measurement: a process runs one dataflow. What it takes over a file
without rows is its start-up.

    python pathway_peer.py FOLDER < conditions, one a line
"""

from __future__ import annotations

import json
import re
import sys
import time


def main() -> None:
    """Measure one run, and print one JSON object: the seconds."""
    import pathway as pw  # noqa: PLC0415 - in an environment of its own

    folder, conditions = sys.argv[1], sys.stdin.read().splitlines()
    began = time.perf_counter()
    schema = pw.schema_from_types(stamp=int, k=int, x=float)
    readings = pw.io.csv.read(folder, schema=schema, mode="static")
    for condition in conditions:
        pw.io.null.write(readings.filter(_condition(readings, condition)))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps({"seconds": time.perf_counter() - began}))


def _condition(readings, text: str):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - types of Pathway's
    if (equal := re.fullmatch(r"k = (\d+)", text)) is not None:
        return readings.k == int(equal[1])
    between = re.fullmatch(r"x >= (\d+) AND x < (\d+)", text)
    if between is None:
        raise SystemExit(f"{text!r} is no condition of this benchmark")
    return (readings.x >= float(between[1])) & (readings.x < float(between[2]))


if __name__ == "__main__":
    main()

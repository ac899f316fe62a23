"""The five figures of the README, from full runs of the benchmarks that measure them.

Runs each of them in turn, on a machine that should have nothing else to do, which takes about a quarter of an hour, and
writes `benchmarks/measured/headlines.json` and the README's table.

    python benchmarks/headlines.py [--only recovery] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports import machine

HERE = Path(__file__).parent
MEASURED = HERE / "measured" / "headlines.json"
README = HERE.parent / "README.md"
VICTIMS = ("cluster", "publisher", "proxy", "broker")
BEGINS, ENDS = "<!-- headlines -->", "<!-- end of headlines -->"


@dataclass(frozen=True, slots=True)
class Headline:
    """A row of the table: what was measured, by which benchmark, and which of its figures are kept."""

    title: str
    benchmark: str
    kept: tuple[str, ...]
    shown: Callable[[Mapping[str, Any]], str]

    @property
    def command(self) -> str:
        """What measures it."""
        return f"python benchmarks/{self.benchmark}.py"


HEADLINES = (
    Headline(
        "from a sample on a mote to its row at a subscriber",
        "latency",
        ("median_s", "p99_s", "rows", "motes", "seconds"),
        lambda found: f"{found['median_s']:.2f} s, 99th percentile {found['p99_s']:.2f} s",
    ),
    Headline(
        "answer rows a second that the publisher keeps up with",
        "publisher",
        ("published_rows_per_s", "published_rows_per_s_spread", "published_over_bare", "missing", "rounds"),
        lambda found: f"{found['published_rows_per_s']:,}, {found['published_over_bare']:.1f} times bare paho",
    ),
    Headline(
        "memory of an idle cluster, Spark included",
        "start",
        ("idle_pss_gib", "idle_pss_gib_spread", "ready_s", "rounds"),
        lambda found: f"{found['idle_pss_gib']:.2f} GiB",
    ),
    Headline(
        "life of a mote whose users count vehicles, over one that sends every sample",
        "energy",
        ("life_gain_count", "life_gain_events", "median_gain_of_mixes", "predicted_error"),
        lambda found: (
            f"{found['life_gain_count']:.1f} times; {found['median_gain_of_mixes']:.1f} times for mixes of queries"
        ),
    ),
    Headline(
        "from `kill -9` to the first row of a later sample",
        "recovery",
        (
            *(f"recovery_{victim}_s{end}" for victim in VICTIMS for end in ("", "_spread")),
            "rows",
            "rows_missing",
            "rounds",
        ),
        lambda found: (
            f"cluster {found['recovery_cluster_s']:.1f} s, publisher {found['recovery_publisher_s']:.1f} s, "
            f"proxy {found['recovery_proxy_s']:.1f} s; {found['rows_missing']} of {found['rows']:,} rows missing"
        ),
    ),
)


def main() -> None:
    """Run the benchmarks; keep their figures, and write the table."""
    names = [each.benchmark for each in HEADLINES]
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", choices=names, help="run one benchmark, and keep the other figures")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    kept: dict[str, Any] = json.loads(MEASURED.read_text()) if options.only and MEASURED.exists() else {}
    for each in HEADLINES:
        if options.only in (None, each.benchmark):
            if not options.json:
                print(f"{each.command} ...", file=sys.stderr)
            found = measured(each)
            kept[each.benchmark] = {"command": each.command, **{name: _rounded(found[name]) for name in each.kept}}
    kept = {"machine": machine(), **{name: kept[name] for name in names if name in kept}}
    MEASURED.write_text(json.dumps(kept, indent=2) + "\n")
    text = README.read_text()
    before, _, rest = text.partition(BEGINS)
    README.write_text(f"{before}{BEGINS}\n{table(kept)}\n{ENDS}{rest.partition(ENDS)[2]}")
    print(json.dumps(kept) if options.json else table(kept))


def measured(headline: Headline) -> dict[str, Any]:
    """Return the figures of a full run."""
    script = HERE / f"{headline.benchmark}.py"
    run = subprocess.run([sys.executable, str(script), "--json"], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def _rounded(figure: Any) -> Any:
    return round(figure, 4) if isinstance(figure, float) else figure


def table(kept: Mapping[str, Any]) -> str:
    """Return the README's table of what was measured."""
    rows = [
        f"| {each.title} | {each.shown(kept[each.benchmark])} | `{each.command}` |"
        for each in HEADLINES
        if each.benchmark in kept
    ]
    return "\n".join(["| measured | | command |", "|---|---|---|", *rows])


if __name__ == "__main__":
    main()

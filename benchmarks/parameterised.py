"""A thousand queries of two templates against the same thousand written out: one plan, and the time to plan them.

python benchmarks/parameterised.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from hosted_dataflow import KEYS, filter_queries, planned
from reports import write_report

from cluster.language.parameters import bind
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery

BY_KEY = "SELECT k, x FROM readings WHERE k = :k"
BY_RANGE = "SELECT k, x FROM readings WHERE x >= :low AND x < :high"


def template_queries(count: int, *, keys: int = KEYS) -> list[tuple[str, dict[str, int]]]:
    """Return the queries of :func:`hosted_dataflow.filter_queries` as templates and values."""
    return [
        (BY_KEY, {"k": number * 7 % keys})
        if number % 2
        else (BY_RANGE, {"low": number * 3 % keys, "high": number * 3 % keys + 1})
        for number in range(count)
    ]


def parameterised_over_texts(count: int = 1000, *, rounds: int = 7) -> dict[str, float]:
    """Return the fragments and operators of the plan of templates, and the time to plan it, over those of texts.

    Both are bound, translated and rewritten one by one, and lowered together, in turns.
    """
    texts, templates = filter_queries(count), template_queries(count)
    seconds: list[tuple[float, float]] = []
    for _ in range(rounds):
        begun = time.process_time()
        written = [planned(text, number) for number, text in enumerate(texts, 1)]
        between = time.process_time()
        bound = [planned(bind(text, values).text, number) for number, (text, values) in enumerate(templates, 1)]
        seconds.append((between - begun, time.process_time() - between))
    if bound != written:
        raise SystemExit("templates have other plans than texts")
    fragments, operators = _size(bound)
    of_texts = _size(written)
    return {
        f"parameterised_{count}_fragments": fragments,
        f"parameterised_{count}_operators": operators,
        f"parameterised_over_texts_{count}_operators": operators / of_texts[1],
        f"parameterised_over_texts_{count}_planning": round(statistics.median(b / a for a, b in seconds), 2),
    }


def _size(queries: list[PlannedQuery]) -> tuple[int, int]:
    plan = lower(Plan(len(queries), tuple(queries)))
    return len(plan.fragments), sum(len([*fragment.nodes]) for fragment in plan.fragments)


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    report: dict[str, Any] = parameterised_over_texts(rounds=3 if options.quick else 7)
    write_report(report, "parameterised", lambda path: plot(report, path), as_json=options.json)


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw operators and planning of templates over those of texts."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, bars = plt.subplots(figsize=(6, 4))
    over = {name.rsplit("_", 1)[1]: value for name, value in report.items() if "_over_texts_" in name}
    bars.bar([*over], [*over.values()], color="tab:blue")
    bars.axhline(1, color="tab:grey", linestyle="--")
    bars.set(ylabel="a thousand templates over as many texts")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()

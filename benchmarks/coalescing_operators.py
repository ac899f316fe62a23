"""A part of `coalescing.py`: extents as operators of queries over one window, all eager, all lazy, and as chosen.

On the local engine, over random samples; the choice is that of the cluster, by shipped prices. Answers are counted, and
are as many each way.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cluster.costs.choice import Candidate, changes
from cluster.costs.prices import SHIPPED
from cluster.fjord.batch import START
from cluster.fjord.stored_rows import RowsInMemory
from cluster.language.algebra import Node
from cluster.language.catalog import BaseStream, Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.plan.alternatives import alternatives
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.extent_keeping import with_keeping
from cluster.plan.rewrite import rewrite
from cluster.service.queries.plan_options import Figures, options_of
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND_US = 1_000_000
MEASURED_S = 8
ATTRIBUTES = ("h", "t", "v", "a", "b", "c")
CATALOG = Catalog.of(
    [BaseStream(StreamSchema("s", tuple(Field(name, FieldType.INTEGER) for name in ("k", *ATTRIBUTES))))]
)


@dataclass(frozen=True)
class Setting:
    """How many queries coalesce a window of 5 s, how it moves, how many samples come, and how often they are equal."""

    queries: int
    slide_s: int
    rate: int
    coalescing_probability: float


SETTINGS = (
    Setting(1, 0, 1_000, 0.8),
    Setting(6, 0, 1_000, 0.8),
    Setting(1, 1, 4_000, 0.8),
    Setting(3, 1, 4_000, 0.1),
    Setting(6, 1, 4_000, 0.1),
    Setting(6, 1, 4_000, 0.8),
    Setting(6, 5, 4_000, 0.1),
)


def over_engines(settings: Sequence[Setting] = SETTINGS) -> dict[str, Any]:
    """Return processor seconds for a second of samples each way, and the chosen over the better one, worst last."""
    found = {}
    for each in settings:
        plans = [rewrite(translate(text, CATALOG).node).node for text in _texts(each)]
        eager, lazy = ([with_keeping(plan, how) for plan in plans] for how in ("eager", "lazy"))
        chosen = _chosen(plans, each.rate)
        measured = {name: _measured(group, each) for name, group in (("eager", eager), ("lazy", lazy))}
        if chosen not in (eager, lazy):
            measured["chosen"] = _measured(chosen, each)
        if len({answers for _, answers in measured.values()}) > 1:
            raise SystemExit(f"answers depend on how extents are kept: {measured}")
        seconds = {name: value for name, (value, _) in measured.items()}
        seconds.setdefault("chosen", seconds["eager"] if chosen == eager else seconds["lazy"])
        name = f"{each.queries} queries, slide {each.slide_s} s, {each.rate}/s, cp {each.coalescing_probability}"
        lazily = sum(one == other for one, other in zip(chosen, lazy, strict=True))
        found[name] = {
            **{key: round(value, 4) for key, value in seconds.items()},
            "chosen_lazy": lazily,
            "chosen_over_better": round(seconds["chosen"] / min(seconds["eager"], seconds["lazy"]), 2),
        }
    worst = max(each["chosen_over_better"] for each in found.values())
    return {"operators": found, "operators_chosen_over_better_worst": worst}


def _texts(setting: Setting) -> list[str]:
    slide = f" SLIDE {setting.slide_s} SECONDS" if setting.slide_s else ""
    return [
        f"SELECT k, {name}, VALID(r) AS held FROM s WINDOW(RANGE 5 SECONDS{slide}) COALESCE({name} BY k) AS r"
        for name in ATTRIBUTES[: setting.queries]
    ]


def _chosen(plans: Sequence[Node], rate: int) -> list[Node]:
    """Return the plans that queries have once no change pays."""
    figures = Figures({"s": float(rate)}, {}, SHIPPED)
    known = {f"q{number}": alternatives(plan) for number, plan in enumerate(plans)}
    running = dict.fromkeys(known, 1)
    while True:
        candidates = []
        for number, (name, each) in enumerate(known.items()):
            options = options_of(PlannedQuery(name, number, each[0].node), each, figures)
            now = next(option for option in options if option.number == running[name])
            candidates.append(Candidate(name, now, tuple(option for option in options if option != now)))
        found = changes(candidates)
        if not found:
            return [known[name][number - 1].node for name, number in running.items()]
        for change in found:
            running.update(change.plans)


def _measured(plans: Sequence[Node], setting: Setting) -> tuple[float, int]:
    """Return processor seconds for a second of samples once the window is full, and how many rows were answered."""
    queries = tuple(PlannedQuery(f"q{number}", number, plan) for number, plan in enumerate(plans))
    engine = LocalEngine(Plan(len(queries), queries), buckets=1)
    dice = np.random.default_rng(1)
    seconds, answers = 0.0, 0
    for begin, end in itertools.pairwise(range(7 + MEASURED_S)):
        samples = Arrival((RowsInMemory(_samples(setting, begin, dice)),), end * SECOND_US)
        began = time.process_time()
        rows = engine.run({"s": samples}).rows.height
        if begin >= 6:  # noqa: PLR2004 - the window is full
            seconds += time.process_time() - began
            answers += rows
    return seconds / MEASURED_S, answers


def _samples(setting: Setting, second: int, dice: np.random.Generator) -> pl.DataFrame:
    rate = setting.rate
    keys = dice.integers(0, 100, rate)
    columns = {START: np.sort(dice.integers(second * SECOND_US, (second + 1) * SECOND_US, rate)), "k": keys}
    for name in ATTRIBUTES:
        stays = dice.random(rate) < setting.coalescing_probability
        columns[name] = np.where(stays, keys, dice.integers(1_000, 2_000, rate))
    return pl.DataFrame(columns).with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN))

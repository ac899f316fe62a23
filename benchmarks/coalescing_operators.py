"""A part of `coalescing.py`: extents as operators of queries over one window, all eager, all lazy, and as chosen.

On the local engine, over random samples. The choice is the cluster's, by shipped prices, of queries that all have been
eager for a while; but every change counts that saves anything. Answers are counted, and are as many each way.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean, median
from typing import Any

import numpy as np
import polars as pl

from cluster.costs.choice import Candidate, Least, changes
from cluster.costs.extents import Keys, place_of_keys
from cluster.costs.prices import SHIPPED
from cluster.fjord.batch import START
from cluster.fjord.stored_rows import RowsInMemory
from cluster.language.algebra import Node
from cluster.language.catalog import BaseStream, Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.physical.lowering import lower
from cluster.physical.operations import SharedExtents
from cluster.plan.alternatives import alternatives
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.extent_keeping import extent_of, with_keeping
from cluster.plan.rewrite import rewrite
from cluster.service.queries.plan_options import Figures, options_of
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND_US = 1_000_000
PERIODS = 3
"""Of the slide, at least so many are measured; and seconds at least :data:`MEASURED_S`."""
MEASURED_S = 8
ROUNDS = 3
"""The least of so many counts, way by way."""
KEYS_SEEN_S = 10
ANYTHING = Least(0.0, 1.0)
"""A change that saves a microsecond counts."""
MOST_PAIRS = 1_000_000
"""There are no more samples at the instants of a second at which something changes: lazy is hopeless then."""
ATTRIBUTES = ("h", "t", "v", "a", "b", "c")
WAYS = ("lazy", "chosen")
OFF = 1.05
CATALOG = Catalog.of(
    [BaseStream(StreamSchema("s", tuple(Field(name, FieldType.INTEGER) for name in ("k", *ATTRIBUTES))))]
)


@dataclass(frozen=True)
class Setting:
    """Queries on one window.

    Parameters
    ----------
    queries
        The attributes that each coalesces.
    window_s, slide_s
        The window; a slide of 0 for none.
    rate, keys
        Samples in a second, and of how many keys.
    coalescing_probability
        That a value is that of the key's sample before.
    skew
        The place of a key to this power says how rare it is.
    """

    queries: tuple[tuple[str, ...], ...]
    window_s: int
    slide_s: int
    rate: int
    keys: int
    coalescing_probability: float
    skew: float = 0.0

    @property
    def measured_s(self) -> int:
        """For how many seconds it is measured: a whole number of slides."""
        period = self.slide_s or 1
        return period * max(PERIODS, -(-MEASURED_S // period))

    @property
    def pairs(self) -> float:
        """How many samples there are at the instants of a second at which something changes, key by key, about."""
        kept = self.rate * self.window_s
        return kept / self.slide_s if self.slide_s else 2 * self.rate * kept * float((self.shares**2).sum())

    @property
    def shares(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The share of samples of each key."""
        weights = np.arange(1, self.keys + 1) ** -self.skew
        return weights / weights.sum()


def _plain(queries: int, slide_s: int, rate: int, coalescing_probability: float) -> Setting:
    return Setting(tuple((each,) for each in ATTRIBUTES[:queries]), 5, slide_s, rate, 100, coalescing_probability)


SETTINGS = (
    _plain(1, 0, 1_000, 0.8),
    _plain(6, 0, 1_000, 0.8),
    _plain(1, 1, 4_000, 0.8),
    _plain(3, 1, 4_000, 0.1),
    _plain(6, 1, 4_000, 0.1),
    _plain(6, 1, 4_000, 0.8),
    _plain(6, 5, 4_000, 0.1),
)


def random_setting(random: Random) -> Setting:
    """Draw a setting of up to eight queries, some of which may coalesce the same attributes."""
    while True:
        queries = tuple(
            tuple(sorted(random.sample(ATTRIBUTES, random.choice((1, 1, 2))))) for _ in range(random.randint(1, 8))
        )
        slide_s = random.choice((0, 0, 1, 2, 5))
        rate, keys = (round(10 ** random.uniform(low, high)) for low, high in ((2, 3.7), (1, 3.3)))
        found = Setting(
            queries, random.randint(max(slide_s, 2), 12), slide_s, rate, keys, random.random(),
            skew=random.choice((0.0, 0.0, 0.8)),
        )  # fmt: skip
        if found.pairs <= MOST_PAIRS:
            return found


@dataclass(frozen=True)
class Outcome:
    """Processor seconds for a second of samples, and how many queries were chosen to be lazy."""

    eager: float
    lazy: float
    chosen: float
    chosen_lazy: int

    @property
    def over_better(self) -> float:
        """The cost of the choice over that of the better of all eager and all lazy."""
        return self.chosen / min(self.eager, self.lazy)


def outcome(setting: Setting) -> Outcome:
    """Measure a setting in all ways, second by second in turn."""
    plans = [rewrite(translate(text, CATALOG).node).node for text in _texts(setting)]
    eager, lazy = ([with_keeping(plan, how) for plan in plans] for how in ("eager", "lazy"))
    chosen = chosen_plans(plans, Figures({"s": float(setting.rate)}, {}, SHIPPED, keys=seen_keys(eager, setting)))
    ways = {"eager": eager, "lazy": lazy}
    if chosen not in (eager, lazy):
        ways["chosen"] = chosen
    rounds = [measured(ways, setting) for _ in range(ROUNDS)]
    # Even processor time differs by a tenth from round to round, as the machine is shared; the least is its own.
    seconds = {way: min(each[way] for each in rounds) for way in ways}
    seconds.setdefault("chosen", seconds["eager"] if chosen == eager else seconds["lazy"])
    return Outcome(**seconds, chosen_lazy=sum(one == other for one, other in zip(chosen, lazy, strict=True)))


def seen_keys(eager: Sequence[Node], setting: Setting) -> Keys:
    """Return how many keys extents have, as they see it while the first of the queries runs eagerly."""
    engine, plan = _engine(eager[:1])
    (fragment,) = lower(plan).fragments
    operator = next(each.id for each in fragment.nodes if isinstance(each.operation, SharedExtents))
    seconds = list(itertools.islice(_samples(setting), setting.window_s + KEYS_SEEN_S))
    counted = [engine.run({"s": each}).counters[operator] for each in seconds][-KEYS_SEEN_S:]
    entered, companions = (
        sum(values) for values in zip(*((each.rows_in, each.companions) for each in counted), strict=True)
    )
    extent = extent_of(eager[0])
    place = None if extent is None else place_of_keys(extent)
    assert place is not None  # noqa: S101 - keys are columns of the stream
    return {place: setting.rate * setting.window_s * entered / companions}


def chosen_plans(plans: Sequence[Node], figures: Figures) -> list[Node]:
    """Return the plans that queries have once no change saves anything; all are eager at first."""
    known = {f"q{number}": alternatives(plan) for number, plan in enumerate(plans)}
    running = dict.fromkeys(known, 1)
    while True:
        candidates = []
        for number, (name, each) in enumerate(known.items()):
            options = options_of(PlannedQuery(name, number, each[0].node), each, figures)
            now = next(option for option in options if option.number == running[name])
            candidates.append(Candidate(name, now, tuple(option for option in options if option != now)))
        found = changes(candidates, most=len(plans), least=ANYTHING)
        if not found:
            return [known[name][number - 1].node for name, number in running.items()]
        for change in found:
            running.update(change.plans)


def measured(ways: Mapping[str, Sequence[Node]], setting: Setting) -> dict[str, float]:
    """Return, by way, processor seconds for a second of samples once the window is full.

    Each second is run in all ways before the next one. A period is a slide, or a second; its median counts.
    """
    engines = {name: _engine(plans)[0] for name, plans in ways.items()}
    samples = iter(_samples(setting))
    rows = dict.fromkeys(ways, 0)
    took: dict[str, list[float]] = {name: [] for name in ways}
    filling = setting.window_s + (setting.slide_s or 1)
    for number, (arrival, order) in enumerate(zip(samples, itertools.cycle((1, -1)))):
        for name, engine in list(engines.items())[::order]:
            began = time.process_time()
            found = engine.run({"s": arrival}).rows.height
            if number >= filling:
                took[name].append(time.process_time() - began)
                rows[name] += found
    if len(set(rows.values())) > 1:
        raise SystemExit(f"answers depend on how extents are kept: {rows} of {setting}")
    period = setting.slide_s or 1
    return {
        name: median(sum(each[at : at + period]) for at in range(0, len(each), period)) / period
        for name, each in took.items()
    }


def _engine(nodes: Sequence[Node]) -> tuple[LocalEngine, Plan]:
    queries = tuple(PlannedQuery(f"q{number}", number, node) for number, node in enumerate(nodes))
    plan = Plan(len(queries), queries)
    ticks = itertools.count(0, 10)
    return LocalEngine(plan, buckets=1, clock=lambda: float(next(ticks))), plan


def _texts(setting: Setting) -> list[str]:
    slide = f" SLIDE {setting.slide_s} SECONDS" if setting.slide_s else ""
    window = f"RANGE {setting.window_s} SECONDS{slide}"
    lists = [", ".join(each) for each in setting.queries]
    return [f"SELECT k, {each}, VALID(r) AS held FROM s WINDOW({window}) COALESCE({each} BY k) AS r" for each in lists]


def _samples(setting: Setting) -> Iterator[Arrival]:
    """Yield the samples of each second: until the window is full, and as many as are measured."""
    dice = np.random.default_rng(1)
    seconds = setting.window_s + (setting.slide_s or 1) + setting.measured_s
    count = setting.rate * seconds
    keys = dice.choice(setting.keys, count, p=setting.shares)
    by_key = np.argsort(keys, kind="stable")
    columns = {START: np.sort(dice.integers(0, seconds * SECOND_US, count)), "k": keys}
    for name in ATTRIBUTES:
        changes_here = dice.random(count) >= setting.coalescing_probability
        values = np.empty(count, np.int64)
        values[by_key] = np.cumsum(changes_here)
        columns[name] = values
    table = pl.DataFrame(columns).with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN))
    ends = np.searchsorted(columns[START], np.arange(seconds + 1) * SECOND_US)
    for second, (begin, end) in enumerate(itertools.pairwise(ends.tolist())):
        yield Arrival((RowsInMemory(table[begin:end]),), (second + 1) * SECOND_US)


def over_engines(settings: Sequence[Setting] = SETTINGS) -> dict[str, Any]:
    """Return milliseconds of a processor for a second of samples each way, and the chosen over the better one."""
    found = {}
    for each in settings:
        ran = outcome(each)
        name = f"{len(each.queries)} queries, slide {each.slide_s} s, {each.rate}/s, cp {each.coalescing_probability}"
        ways = {way: round(getattr(ran, way), 4) for way in ("eager", "lazy", "chosen")}
        found[name] = {**ways, "chosen_lazy": ran.chosen_lazy, "chosen_over_better": round(ran.over_better, 2)}
    worst = max(each["chosen_over_better"] for each in found.values())
    return {"operators": found, "operators_chosen_over_better_worst": worst}


def operator_outcomes(count: int, seed: int = 24) -> dict[str, Any]:
    """Return how choices compare in random settings; the seed is another than those that prices were fitted to."""
    random = Random(seed)  # noqa: S311 - settings, not secrets
    settings = [random_setting(random) for _ in range(count)]
    found = [outcome(each) for each in settings]
    ways = {"eager": 0, "lazy": 0, "mixed": 0}
    for setting, each in zip(settings, found, strict=True):
        lazily = {0: "eager", len(setting.queries): "lazy"}
        ways[lazily.get(each.chosen_lazy, "mixed")] += 1
    over = [each.over_better for each in found]
    return {
        "operators_choice_settings": count,
        "operators_choice_worst_over_better": round(max(over), 3),
        "operators_choice_mean_over_better": round(mean(over), 4),
        "operators_choice_over_5_percent": sum(each > OFF for each in over),
        **{f"operators_choice_{way}_of_all_eager": round(mean(_share(each, way) for each in found), 3) for way in WAYS},
        **{f"operators_choice_{way}": times for way, times in ways.items()},
    }


def _share(ran: Outcome, way: str) -> float:
    return float(getattr(ran, way)) / ran.eager

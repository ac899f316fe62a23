"""A part of `coalescing.py`: extents as operators of queries over one window, all eager, all lazy, and as chosen.

On the local engine, over random samples. The choice is the cluster's, by shipped prices, of queries that all have been
eager for a while; but every change counts that saves anything. Answers are counted, and are as many each way.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from random import Random
from statistics import mean, median
from typing import Any

# In Spark's workers operators use one thread each; threads that wait for work take time of a processor, too.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl

from cluster.costs.choice import Candidate, Least, changes
from cluster.costs.estimates import Keys, SeenKeys, place_of_keys
from cluster.costs.prices import SHIPPED
from cluster.fjord.batch import START
from cluster.fjord.counters import Totals
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import BaseStream, Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Node
from cluster.physical.lowering import lower
from cluster.physical.operations import SharedExtents
from cluster.plan.alternatives import alternatives
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.extents import extent_of, with_keeping
from cluster.plan.rewrite import rewrite
from cluster.service.queries.plan_options import Figures, options_of
from cluster.spark.worker_memory import keep_freed_memory
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND_US = 1_000_000
PERIODS = 3
"""Of the slide, at least so many are measured; and seconds at least :data:`MEASURED_S`."""
MEASURED_S = 8
MOST_ROUNDS, LEAST_PERIODS = 12, 12
CLOSE, FAR = 0.02, 1.1
"""It is measured until the ratio is known so well, or that it is further from 1 than that."""
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
    """Processor seconds for a second of samples, how many queries were chosen to be lazy, and how good that is.

    Parameters
    ----------
    eager, lazy, chosen
        Medians over periods.
    chosen_lazy
        How many queries are lazy.
    over_better
        The cost of the choice over that of the better of all eager and all lazy: at least 1, if it is one of these.
    known_within
        Half of the interval of 95 % around it.
    """

    eager: float
    lazy: float
    chosen: float
    chosen_lazy: int
    over_better: float
    known_within: float


class Trial:
    """A setting that is measured in all ways, round by round, until it is clear how good the choice is."""

    def __init__(self, setting: Setting) -> None:
        plans = [rewrite(translate(text, CATALOG).node).node for text in _texts(setting)]
        eager, lazy = ([with_keeping(plan, how) for plan in plans] for how in ("eager", "lazy"))
        chosen = chosen_plans(plans, Figures({"s": float(setting.rate)}, {}, SHIPPED, keys=seen_keys(eager, setting)))
        self._setting, self._rounds = setting, 0
        self._ways = {"eager": eager, "lazy": lazy}
        if chosen not in (eager, lazy):
            self._ways["chosen"] = chosen
        self._own = next(way for way, plans in self._ways.items() if plans == chosen)
        self._took: dict[str, list[float]] = {way: [] for way in self._ways}
        self._chosen_lazy = sum(one == other for one, other in zip(chosen, lazy, strict=True))

    def measure(self) -> None:
        """Measure another round, unless it is clear enough."""
        if self._rounds == MOST_ROUNDS or (
            len(self._took[self._own]) >= LEAST_PERIODS and all(each.is_clear for each in self._over())
        ):
            return
        for way, periods in measured(self._ways, self._setting, self._rounds).items():
            self._took[way] += periods
        self._rounds += 1

    def _over(self) -> list[Middle]:
        """Return what the choice costs over each of all eager and all lazy that it is not."""
        own = self._took[self._own]
        others = [self._took[way] for way in ("eager", "lazy") if way != self._own]
        return [middle([one / two for one, two in zip(own, other, strict=True)]) for other in others]

    @property
    def outcome(self) -> Outcome:
        """What has been measured."""
        worst = max(self._over(), key=lambda each: each.middle)
        seconds = {way: median(periods) for way, periods in self._took.items()}
        return Outcome(
            seconds["eager"], seconds["lazy"], seconds[self._own], self._chosen_lazy,
            over_better=worst.middle if self._own == "chosen" else max(worst.middle, 1.0),
            known_within=(worst.high - worst.low) / 2,
        )  # fmt: skip


def outcomes(settings: Sequence[Setting]) -> list[Outcome]:
    """Measure settings in turn, round by round: what else the machine does for a minute is not in one of them alone."""
    keep_freed_memory()  # as Spark's workers do; what small arrays cost depends on it
    trials = [Trial(each) for each in settings]
    for _ in range(MOST_ROUNDS):
        for each in trials:
            each.measure()
    return [each.outcome for each in trials]


@dataclass(frozen=True)
class Middle:
    """A median, and between what it lies with a probability of 95 %."""

    low: float
    middle: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether it is known to 2 %, or far from all that would be a doubt."""
        return self.high - self.low < 2 * CLOSE or self.low > FAR or self.high < 1 / FAR


def middle(ratios: Sequence[float]) -> Middle:
    """Return the median of ratios; its interval is that of order statistics, whatever the distribution."""
    ordered = sorted(ratios)
    half = 0.98 * math.sqrt(len(ordered))
    low, high = math.floor(len(ordered) / 2 - half), math.ceil(len(ordered) / 2 + half)
    return Middle(ordered[max(low, 0)], median(ordered), ordered[min(high, len(ordered) - 1)])


def seen_keys(eager: Sequence[Node], setting: Setting) -> Keys:
    """Return what extents see of their keys while the queries run eagerly."""
    engine, plan = _engine(eager)
    operators = [
        node.id
        for fragment in lower(plan).fragments
        for node in fragment.nodes
        if isinstance(node.operation, SharedExtents)
    ]
    seconds = list(itertools.islice(_samples(setting), setting.window_s + KEYS_SEEN_S))
    counted = [engine.run({"s": each}).counters for each in seconds][-KEYS_SEEN_S:]
    seen = reduce(Totals.plus, (each[operator] for each in counted for operator in operators))
    extent = extent_of(eager[0])
    place = None if extent is None else place_of_keys(extent)
    assert place is not None  # noqa: S101 - keys are columns of the stream
    count = setting.rate * setting.window_s * seen.rows_in / seen.companions
    return {place: SeenKeys(count, seen.linked / seen.neighbours) if seen.neighbours else SeenKeys(count)}


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


def measured(ways: Mapping[str, Sequence[Node]], setting: Setting, number: int) -> dict[str, list[float]]:
    """Return, by way, processor seconds for a second of samples in each period, once the window is full.

    A period is a slide, or a second. Each second is run in all ways before the next one, and which way is the first
    alternates by period and round, because samples are in the cache then.
    """
    engines = {name: _engine(plans)[0] for name, plans in ways.items()}
    rows = dict.fromkeys(ways, 0)
    took: dict[str, list[float]] = {name: [] for name in ways}
    period = setting.slide_s or 1
    filling = setting.window_s + period
    for second, arrival in enumerate(_samples(setting)):
        in_turn = list(engines.items())[:: 1 if (second // period + number) % 2 else -1]
        for name, engine in in_turn:
            began = time.process_time()
            found = engine.run({"s": arrival}).rows.height
            if second >= filling:
                took[name].append(time.process_time() - began)
                rows[name] += found
    if len(set(rows.values())) > 1:
        raise SystemExit(f"answers depend on how extents are kept: {rows} of {setting}")
    return {
        name: [sum(each[at : at + period]) / period for at in range(0, len(each), period)]
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
    for each, ran in zip(settings, outcomes(settings), strict=True):
        name = f"{len(each.queries)} queries, slide {each.slide_s} s, {each.rate}/s, cp {each.coalescing_probability}"
        ways = {way: round(getattr(ran, way), 4) for way in ("eager", "lazy", "chosen")}
        found[name] = {**ways, "chosen_lazy": ran.chosen_lazy, "chosen_over_better": round(ran.over_better, 2)}
    worst = max(each["chosen_over_better"] for each in found.values())
    return {"operators": found, "operators_chosen_over_better_worst": worst}


def operator_outcomes(count: int, seed: int = 24) -> dict[str, Any]:
    """Return how choices compare in random settings; the seed is another than those that prices were fitted to."""
    random = Random(seed)  # noqa: S311 - settings, not secrets
    settings = [random_setting(random) for _ in range(count)]
    found = outcomes(settings)
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
        "operators_choice_known_within": round(mean(each.known_within for each in found), 4),
        **{f"operators_choice_{way}_of_all_eager": round(mean(_share(each, way) for each in found), 3) for way in WAYS},
        **{f"operators_choice_{way}": times for way, times in ways.items()},
    }


def _share(ran: Outcome, way: str) -> float:
    return float(getattr(ran, way)) / ran.eager

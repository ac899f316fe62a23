"""Choices of eager and lazy extents in random settings, by the model, at their measured costs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from coalescing_streams import drawn

from cluster.temporal.cost_model import STAMP_BYTES, Constants, Maxima, Prices, Weights, by_enumerating, optimal, prices
from cluster.temporal.windows import Equal, Link, Within
from tests.cluster.temporal.measuring import Measured, Sample, measured, workload

SAMPLES_AFTER = 400
"""Samples that are timed once the window is full."""
LAZY_BYTES = 40
ROUNDS = 5
LINKS: tuple[Link, ...] = (Equal(), Within(0))
COSTS = ("eager_update", "lazy_update", "eager_scan", "lazy_scan")
CONSTANTS = tuple(each.name for each in fields(Constants))


@dataclass(frozen=True)
class Setting:
    """Queries on one window.

    Each has probabilities to coalesce and to come out of order, and attributes that are compared: by equality, or
    within a tolerance of 0 where comparing shall take longer.
    """

    window: int
    queries: tuple[tuple[float, float, int, Link], ...]
    weights: Weights
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What the choice of a setting came to, in measured costs."""

    chosen: frozenset[int]
    cost: float
    all_eager: float
    all_lazy: float
    cheapest: float
    """Of all choices, in measured costs: known only afterwards."""
    equals_enumeration: bool
    """Whether the choice is as cheap by the model as the best of all that were tried."""

    @property
    def over_better(self) -> float:
        """The cost of the choice over that of the better of all eager and all lazy."""
        return self.cost / min(self.all_eager, self.all_lazy)


def random_setting(random: Random) -> Setting:
    """Draw a setting of up to eight queries."""
    queries = tuple(
        (random.random(), random.choice([0.0, random.random() * 0.9]), random.randint(1, 3), random.choice(LINKS))
        for _ in range(random.randint(1, 8))
    )
    weights = Weights(random.choice([0, 0, 1]), random.uniform(0.2, 3), random.choice([1, 2]))
    return Setting(random.choice([50, 100, 200, 400]), queries, weights, random.randrange(1_000_000))


def outcome(setting: Setting) -> Outcome:
    """Measure a stretch of each query's stream, choose by the model, and measure what comes after, both ways."""
    parts = [part for number in range(len(setting.queries)) for part in stretches(setting, number)]
    # Rounds go over all parts, so that what other processes do for a while meets each of them only once.
    rounds = [[measured(*part) for part in parts] for _ in range(ROUNDS)]
    found = [least_disturbed([each[place] for each in rounds]) for place in range(len(parts))]
    before, after = found[::2], found[1::2]
    largest = maxima_of(before)
    sizes = [row_bytes(attributes) for _, _, attributes, _ in setting.queries]
    model = [
        (workload(each, setting.window, (size, LAZY_BYTES)), each.constants)
        for each, size in zip(before, sizes, strict=True)
    ]
    expected = prices(model, setting.weights, largest)
    chosen = optimal(expected)
    real = measured_prices(after, setting.weights, largest)
    best = expected.total(by_enumerating(expected))
    return Outcome(
        chosen,
        real.total(chosen),
        real.total(range(len(sizes))),
        real.total([]),
        real.total(by_enumerating(real)),
        abs(expected.total(chosen) - best) <= 1e-9 * max(1.0, best),
    )


def row_bytes(attributes: int) -> int:
    """Return bytes of a row of an eager extent: two stamps, the attributes, and one that groups."""
    return 2 * STAMP_BYTES + 4 * (attributes + 1)


def stretches(setting: Setting, number: int) -> list[tuple[list[Sample], int, Link, tuple[int, int]]]:
    """Return two stretches of the stream of a query, to learn and to compare, as arguments of `measured`."""
    coalescing, disorder, attributes, link = setting.queries[number]
    half = setting.window + SAMPLES_AFTER
    stream = drawn(
        2 * half, groups=3, coalescing=coalescing, disorder=disorder, window=setting.window, seed=setting.seed + number
    )
    samples = [(stamp, (group,), (value,) * attributes) for stamp, group, value in stream.tuples()]
    sizes = (row_bytes(attributes), LAZY_BYTES)
    return [(part, setting.window, link, sizes) for part in (samples[:half], samples[half:])]


def least_disturbed(runs: list[Measured]) -> Measured:
    """Return the least of several runs of the same samples, cost by cost: what is above is other processes' doing."""
    constants = Constants(*(min(getattr(run.constants, name) for run in runs) for name in CONSTANTS))
    costs = {name: min(getattr(run, name) for run in runs) for name in COSTS}
    return replace(runs[0], constants=constants, **costs)


def maxima_of(found: list[Measured]) -> Maxima:
    """Return the largest memory, update and scan that were measured, of either way."""
    return Maxima(
        max(max(each.eager_bytes, each.lazy_bytes) for each in found),
        max(max(each.eager_update, each.lazy_update) for each in found),
        max(max(each.eager_scan, each.lazy_scan) for each in found),
    )


def measured_prices(found: list[Measured], weights: Weights, largest: Maxima) -> Prices:
    """Return what choices cost as measured: no model."""
    eager = tuple(
        weights.cost(largest, memory=each.eager_bytes, update=each.eager_update, scan=each.eager_scan) for each in found
    )
    lazy = tuple(weights.cost(largest, scan=each.lazy_scan) for each in found)
    shared = weights.cost(largest, memory=found[0].lazy_bytes, update=found[0].lazy_update)
    return Prices(eager, lazy, shared)


def random_outcomes(count: int, seed: int = 24) -> dict[str, Any]:
    """Return how choices compare in random settings."""
    random = Random(seed)  # noqa: S311 - settings, not secrets
    found = [outcome(random_setting(random)) for _ in range(count)]
    sizes = {"all": 0, "none": 0, "some": 0}
    for each in found:
        whole = each.cost in {each.all_eager, each.all_lazy}
        sizes["some" if not whole else "all" if each.chosen else "none"] += 1
    return {
        "choice_settings": count,
        "choice_worst_over_better": round(max(each.over_better for each in found), 3),
        "choice_mean_over_better": round(sum(each.over_better for each in found) / count, 3),
        "choice_worst_over_cheapest": round(max(each.cost / each.cheapest for each in found), 3),
        "choice_equals_enumeration": sum(each.equals_enumeration for each in found),
        **{f"choice_{name}_eager": times for name, times in sizes.items()},
    }

"""The parts of benchmarks/folding.py that need Spark: against plain Spark, on live streams, and with many windows."""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import plain_spark
import polars as pl
from fjord_in_spark import FjordInSpark
from hosted_dataflow import AGGREGATES, WINDOWS, filter_queries, planned, readings, window_query

from cluster.plan.epoch import PlannedQuery

STEP_US = 1_000


def shared_windows(spark: Any, folder: Path, rows: int, *, rounds: int) -> dict[str, Any]:
    """Return how long 200 aggregates over 20 windows take, and the costliest of them alone, over the same rows."""
    parts = [readings(rows // 8, first=number * (rows // 8), keys=100) for number in range(8)]
    texts = [window_query(aggregate, *window) for window in WINDOWS for aggregate in AGGREGATES]
    costly = [window_query(aggregate, 60, 1) for aggregate in ("STDDEV(x)", "LAST(x)", "AVG(x)")]
    costly = costly[: 1 if rounds == 1 else None]
    if rounds > 1:
        _fjord_seconds(spark, folder / "warm", texts[:1], parts[:2])
    together, alone = [], {text: [] for text in costly}
    for turn in range(rounds):
        seconds, answers = _fjord_seconds(spark, folder / f"all-{turn}", texts, parts)
        together.append(seconds)
        for number, text in enumerate(costly):
            alone[text].append(_fjord_seconds(spark, folder / f"one-{turn}-{number}", [text], parts)[0])
    costliest = max(costly, key=lambda text: statistics.median(alone[text]))
    all_s, one_s = statistics.median(together), statistics.median(alone[costliest])
    return {
        "windows_200_s": round(all_s, 2),
        "windows_costliest_alone_s": round(one_s, 2),
        "windows_costliest": costliest,
        "windows_200_answers": sum(answers.values()),
        "windows_200_over_1": round(all_s / one_s, 2),
    }


def over_plain_spark(spark: Any, folder: Path, count: int, rows: int, *, keys: int, turns: int) -> dict[str, float]:
    """Return how much faster Fjord answers `count` queries than as many Spark queries do, over the same rows.

    Each query selects one in `keys` rows. Spark's queries get all rows at once, which suits them best.
    """
    parts = [readings(rows // 8, first=number * (rows // 8), keys=keys) for number in range(8)]
    (folder / "rows").mkdir(parents=True)
    for number, part in enumerate(parts):
        part.write_parquet(folder / "rows" / f"{number}.parquet")
    texts = filter_queries(count, keys=keys)
    # Run both once before, so that neither pays for the first use of Spark.
    _fjord_seconds(spark, folder / "warm", texts[:1], parts)
    plain_spark.run_all(spark, texts[:1], folder / "rows", folder / "warm-plain")
    ours = [_fjord_seconds(spark, folder / f"fjord-{turn}", texts, parts) for turn in range(turns)]
    plain_s, plain = plain_spark.run_all(spark, texts, folder / "rows", folder / "plain")
    ours_s = statistics.median(seconds for seconds, _ in ours)
    if any(answers != plain for _, answers in ours):
        raise SystemExit(f"the answers differ: {ours[0][1]} rows in Fjord, {plain} in plain Spark")
    return {
        "plain_spark_s": round(plain_s, 2),
        "fjord_s": round(ours_s, 2),
        "plain_spark_tuples_per_s": round(rows / plain_s),
        "fjord_tuples_per_s": round(rows / ours_s),
        "answers": sum(plain.values()),
        "over_plain_spark": round(plain_s / ours_s, 1),
    }


def adding(spark: Any, folder: Path, count: int, *, among: int, times: int = 5) -> dict[str, float]:
    """Return how long it takes to add a query to a live stream: in Fjord among `among`, in plain Spark among `count`.

    From SQL text to the first stored answer; each added query selects all rows. Only micro-batches that begin
    after the query was added or dropped are counted, because one is always under way.
    """
    added = [f"SELECT k, x FROM readings WHERE k >= {-number}" for number in range(times)]
    first = itertools.count(0, 1000)

    def feed_plain(rows: Path) -> None:
        number = next(first)
        readings(1000, first=number).write_parquet(folder / "unfinished")
        (folder / "unfinished").rename(rows / f"{number}.parquet")

    plain_s = plain_spark.seconds_to_add(spark, filter_queries(count), added, folder, feed_plain)
    fjord = FjordInSpark(spark, folder / "fjord")
    queries = [planned(text, number) for number, text in enumerate(filter_queries(among), 2)]
    fjord.run_plan(queries)

    def feed() -> None:
        number = next(first)
        fjord.append(readings(1000, first=number), (number + 1000) * STEP_US)

    ours_s, batches = [], []
    with plain_spark.Feeding(feed):
        while not fjord.answers():
            time.sleep(0.1)
        for number, text in enumerate(added):
            began, finished = time.perf_counter(), fjord.finished
            queries.append(planned(text, among + 2 + number))
            fjord.run_plan(queries)
            while not fjord.results.last_sequence(queries[-1].name):
                time.sleep(0.005)
            ours_s.append(time.perf_counter() - began)
            batches.append(fjord.finished - finished)
        dropped = [_micro_batches_until_silent(fjord, queries) for _ in added]
    fjord.wait()
    _check_answers(fjord, queries)
    fjord.stop()
    plain, ours = statistics.median(plain_s), statistics.median(ours_s)
    return {
        f"plain_spark_add_to_{count}_s": round(plain, 2),
        f"fjord_add_to_{among}_s": round(ours, 2),
        "add_over_plain_spark": round(plain / ours, 1),
        "add_effective_after_micro_batches": max(batches),
        "drop_effective_after_micro_batches": max(dropped),
    }


def _micro_batches_until_silent(fjord: FjordInSpark, queries: list[PlannedQuery]) -> int:
    """Drop the newest query; return how many micro-batches that began after that still answered it."""
    gone = queries.pop()
    finished = fjord.finished
    fjord.run_plan(queries)
    last, until, known = 0, finished + 5, fjord.results.last_sequence(gone.name)
    while (now := fjord.finished) < until:
        if (found := fjord.results.last_sequence(gone.name)) != known:
            last, known = now - finished, found
        time.sleep(0.01)
    return last


def _check_answers(fjord: FjordInSpark, queries: list[PlannedQuery]) -> None:
    """Check the answers of queries that ran all the time against Polars, whichever queries came and went."""
    stream, answers = pl.SQLContext(readings=pl.scan_delta(fjord.table.root).collect()), fjord.answers()
    for text, query in zip(filter_queries(len(queries)), queries, strict=True):
        expected = stream.execute(text, eager=True).height
        if answers.get(query.name, 0) != expected:
            raise SystemExit(f"{query.name} has {answers.get(query.name, 0)} answers, Polars finds {expected}")


def keeping_up(spark: Any, folder: Path, *, filters: int, rate: int, seconds: int) -> dict[str, float]:
    """Return how far answers lag behind a stream of `rate` tuples per second with so many filters registered.

    The lag of a version of the stream's table: from its commit until a micro-batch has answered it.
    """
    fjord = FjordInSpark(spark, folder)
    fjord.run_plan([planned(text, number) for number, text in enumerate(filter_queries(filters, keys=100_000), 2)])
    first, stored_at, lags = itertools.count(0, rate // 2), {}, []

    def feed() -> None:
        number = next(first)
        rows = readings(rate // 2, first=number, step_us=1_000_000 // rate, keys=100_000)
        fjord.append(rows, (number + rate // 2) * (1_000_000 // rate))
        stored_at[fjord.table.version] = time.perf_counter()

    with plain_spark.Feeding(feed):
        began, known = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            version = fjord.answered_version
            if version > known:
                now = time.perf_counter()
                lags += [
                    (elapsed, now - stored_at[each]) for each in range(known + 1, version + 1) if each in stored_at
                ]
                known = version
            time.sleep(0.02)
    fjord.wait()
    answers = sum(fjord.answers().values())
    fjord.stop()

    def worst(low: float, high: float) -> float:
        return round(max(lag for at, lag in lags if low * seconds <= at < high * seconds), 2)

    return {
        "keeping_up_filters": filters,
        "keeping_up_tuples_per_s": round(len(lags) * (rate // 2) / seconds),
        "keeping_up_seconds": seconds,
        "keeping_up_answers": answers,
        "keeping_up_median_lag_s": round(statistics.median(lag for _, lag in lags), 2),
        "keeping_up_worst_lag_second_quarter_s": worst(0.25, 0.5),
        "keeping_up_worst_lag_last_quarter_s": worst(0.75, 1.0),
    }


def _fjord_seconds(spark: Any, folder: Path, texts: list[str], parts: list[Any]) -> tuple[float, dict[str, int]]:
    fjord = FjordInSpark(spark, folder)
    stored = 0
    for part in parts:
        stored += part.height
        fjord.append(part, stored * STEP_US)
    began = time.perf_counter()
    fjord.run_plan([planned(text, number) for number, text in enumerate(texts, 1)], after_version=0)
    fjord.wait()
    took = time.perf_counter() - began
    answers = fjord.answers()
    fjord.stop()
    return took, answers

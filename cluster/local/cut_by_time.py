"""Warnings of clauses about time that files do not go with: SAMPLE off their stamps, sessions cut after a day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from cluster.fjord.batch import START, instant_text
from cluster.language.quantities import written
from cluster.local.tried_query import StreamFiles
from cluster.operators import Node, Project, SessionWindow, Source
from cluster.operators.walks import nodes_of
from cluster.operators.window_shapes import DEFAULT_LONGEST_US


def warnings_of_time(node: Node, files: Mapping[str, StreamFiles]) -> Iterator[str]:
    """Yield warnings of samples that no stamp is one of, and of sessions that are cut though no MAX was written.

    Parameters
    ----------
    node
        The plan of a query.
    files
        By name of a stream.
    """
    for each in nodes_of(node):
        if isinstance(each, Source) and each.sample_period_us and each.stream in files:
            yield from _off_the_grid(each.sample_period_us, files[each.stream])
        elif isinstance(each, SessionWindow) and each.session.longest_us == DEFAULT_LONGEST_US:
            yield from _cut(each, files)


def _off_the_grid(period_us: int, file: StreamFiles) -> Iterator[str]:
    pieces = [piece[START] for piece in file.batches(())]
    if pieces and not any((stamps % period_us == 0).any() for stamps in pieces):
        yield (
            f"SAMPLE EVERY {written(period_us)} takes the tuples stamped at whole multiples of it, and {file.name} has "
            f"none: its first is stamped {instant_text(int(pieces[0][0]))}. Leave SAMPLE away"
        )


def _cut(window: SessionWindow, files: Mapping[str, StreamFiles]) -> Iterator[str]:
    source = window.input
    while isinstance(source, Project):
        source = source.input
    if not isinstance(source, Source) or source.stream not in files or source.lookups:
        return  # conditions decide which tuples there are
    file, keys = files[source.stream], list(window.keys)
    if not {each.name for each in file.columns}.issuperset(keys):
        return
    pieces = [piece.select(START, *keys) for piece in file.batches(keys)]
    if not pieces:
        return
    # Without keys all rows are of one group.
    rows = pl.concat(pieces).lazy().with_columns(pl.lit(0).alias("all"))
    begins = (pl.col(START).diff() > window.session.gap_us).fill_null(value=True).cum_sum().over("all", *keys)
    sessions = rows.with_columns(begins.alias("session")).group_by("all", *keys, "session")
    longest = sessions.agg((pl.col(START).max() - pl.col(START).min()).alias("us")).select(pl.col("us").max()).collect()
    if longest.item() >= DEFAULT_LONGEST_US:
        yield (
            f"sessions of {source.stream} are cut after {written(DEFAULT_LONGEST_US)}, although tuples go on: "
            "SESSION GAP ... MAX 7 DAYS lets them be longer"
        )

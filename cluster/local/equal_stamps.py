"""Whether files have tuples of a group with the same stamp, whose order OVER takes from their values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import polars as pl

from cluster.fjord.batch import START
from cluster.language.algebra import Node
from cluster.language.algebra import Sequence as OrderedTuples
from cluster.language.sequences import stream_below, tie_warning
from cluster.language.walks import nodes_of
from cluster.local.tried_query import StreamFiles


def without_idle_warnings(warnings: Iterable[str], node: Node, files: Mapping[str, StreamFiles]) -> list[str]:
    """Return the warnings about equal stamps that the files bear out, and all others.

    Parameters
    ----------
    warnings
        Those of the query.
    node
        Its plan.
    files
        By name of a stream.

    Raises
    ------
    TableFileError
        If a file cannot be read.
    """
    idle = {
        warning
        for each in nodes_of(node)
        if isinstance(each, OrderedTuples) and (warning := tie_warning(each)) and not _may_tie(each, files)
    }
    return [each for each in warnings if each not in idle]


def _may_tie(tuples: OrderedTuples, files: Mapping[str, StreamFiles]) -> bool:
    source = stream_below(tuples)
    if source is None or source.stream not in files or source.lookups:
        return True
    file = files[source.stream]
    names = {each.name for each in file.columns}
    return not names.issuperset(tuples.keys) or any(_ties(file.batches(tuples.keys), tuples.keys))


def _ties(batches: Iterator[pl.DataFrame], keys: Collection[str]) -> Iterator[bool]:
    """Yield for each batch, which come in the order of stamps, whether two of its rows have the same stamp and keys."""
    columns: Sequence[str] = (START, *keys)
    first = next(batches, None)
    if first is None:
        return
    last = first.select(columns).clear()
    for batch in chain((first,), batches):
        rows = pl.concat([last, batch.select(columns)])
        yield bool(rows.is_duplicated().any())
        last = rows.filter(pl.col(START) == pl.col(START).last())

"""Whether tuples of files have the same stamp: in a group, where their order decides, and in two streams that meet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import polars as pl

from cluster.expressions.nodes import Column
from cluster.fjord.batch import START
from cluster.language.sequences import tie_warning
from cluster.language.window_clauses import count_warning
from cluster.local.tried_query import StreamFiles
from cluster.operators import (
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Filter,
    Intersection,
    Join,
    Lookup,
    Node,
    PartitionedWindow,
    Project,
    SemiJoin,
    Source,
)
from cluster.operators import Sequence as OrderedTuples
from cluster.operators.walks import nodes_of

_Meeting = Join | SemiJoin | AntiJoin | Difference | Intersection
_MEETS = {
    Join: "joined", SemiJoin: "looked for", AntiJoin: "looked for", Difference: "taken away", Intersection: "kept",
}  # fmt: skip
_INSTEAD = (
    "WINDOW(RANGE 1 HOUR) behind a stream keeps its tuples for so long, ASOF JOIN takes the latest one, and ZIP JOIN "
    "... WITHIN 5 SECONDS pairs the nearest ones"
)


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
    idle, borne_out = set[str](), set[str]()
    for each in nodes_of(node):
        warning = _warning_of_ties(each)
        if warning and warning not in borne_out:
            (borne_out if _may_tie(each, files) else idle).add(warning)
    return [each for each in warnings if each not in idle - borne_out]


def warnings_of_lone_stamps(node: Node, files: Mapping[str, StreamFiles]) -> list[str]:
    """Return warnings about tuples that meet none of another stream, or of their own, as no stamps are the same.

    Parameters
    ----------
    node
        The plan of a query.
    files
        By name of a stream.
    """
    found: dict[frozenset[str], str] = {}  # an outer join has several nodes
    for each in nodes_of(node):
        if isinstance(each, _Meeting):
            streams = [_stream_of(side) for side in (each.left, each.right)]
            one, other = (stream if stream in files else None for stream in streams)
            if one is None or other is None or one == other or frozenset((one, other)) in found:
                continue
            if not _share_stamps(files[one], files[other]):
                found[frozenset((one, other))] = (
                    f"{one} and {other} have no stamp in common, and without a window tuples are {_MEETS[type(each)]} "
                    f"only among those with the same stamp: {_INSTEAD}"
                )
        elif isinstance(each, Distinct):
            stream = _stream_of(each.input)
            if stream in files and stream is not None and not any(_ties(files[stream].batches(()), ())):
                found[frozenset((stream,))] = (
                    f"{stream} has no two tuples with the same stamp, and without a window DISTINCT is among those: "
                    "WINDOW(RANGE 1 HOUR) behind a stream keeps its tuples for so long"
                )
    return list(found.values())


def _warning_of_ties(node: Node) -> str | None:
    if isinstance(node, OrderedTuples):
        return tie_warning(node)
    if isinstance(node, PartitionedWindow | CountWindow) and node.rows is not None:
        return count_warning(node.rows, _keys(node))
    return None


def _keys(node: Node) -> tuple[str, ...]:
    return node.keys if isinstance(node, OrderedTuples | PartitionedWindow) else ()


def _may_tie(tuples: Node, files: Mapping[str, StreamFiles]) -> bool:
    """Return whether some of the tuples that are counted or taken in order may have the same stamp and keys."""
    if not isinstance(tuples, OrderedTuples | PartitionedWindow | CountWindow):
        return True
    node, keys = tuples.input, [*_keys(tuples)]
    while isinstance(node, Filter | Project):
        if isinstance(node, Project):
            made = {each.name: each.scalar.expression for each in node.outputs}
            read = [made.get(key) for key in keys]
            keys = [each.name for each in read if isinstance(each, Column)]
            if len(keys) < len(read):
                return True
        node = node.input
    if not isinstance(node, Source) or node.stream not in files or node.lookups:
        return True
    file = files[node.stream]
    names = {each.name for each in file.columns}
    return not names.issuperset(keys) or any(_ties(file.batches(keys), keys))


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


def _stream_of(node: Node) -> str | None:
    """Return the stream whose tuples a plan has, each at its own stamp; None if it has others."""
    while isinstance(node, Filter | Project | Lookup | Distinct):
        node = node.input
    return node.stream if isinstance(node, Source) else None


def _share_stamps(one: StreamFiles, other: StreamFiles) -> bool:
    first, second = (pl.concat([each.select(START) for each in file.batches(())] or [_NONE]) for file in (one, other))
    return first.join(second, on=START, how="semi").height > 0


_NONE = pl.DataFrame(schema={START: pl.Int64})

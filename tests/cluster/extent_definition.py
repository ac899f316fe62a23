"""What an extent is at one instant, by its definition: the samples in order, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cluster.operators.extent import Coalescing

Row = tuple[Any, ...]


def runs_of(
    rows: Iterable[Row],
    columns: Sequence[str],
    keys: Sequence[str],
    how: Coalescing,
    holds: Callable[[dict[str, Any]], bool],
) -> list[Row]:
    """Return keys, coalesced columns and interval of each run.

    Parameters
    ----------
    rows
        The samples, in any order.
    columns
        The names of their values.
    keys, how
        As of the algebra's node.
    holds
        Whether the link's condition is true, given the columns that it may read by name.
    """
    samples: dict[Row, list[dict[str, Any]]] = {}
    for row in rows:
        named = dict(zip(columns, row, strict=True))
        samples.setdefault(tuple(named[key] for key in keys), []).append(named)

    def linked(earlier: dict[str, Any], later: dict[str, Any]) -> bool:
        if how.link is None:
            return all(earlier[name] == later[name] for name in how.columns)
        return holds({**later, **{name: earlier[column] for name, column in how.link.before}})

    found: list[Row] = []
    for key, those in samples.items():
        those.sort(key=lambda one: (one[how.stamp], *((one[name] is None, one[name]) for name in how.ties)))
        begins = [n for n in range(len(those)) if not n or not linked(those[n - 1], those[n])]
        for begin, following in zip(begins, [*begins[1:], len(those) - 1], strict=True):
            first = those[begin]
            interval = first[how.stamp], those[following][how.stamp]
            found.append((*key, *(first[name] for name in how.columns), *interval))
    return found

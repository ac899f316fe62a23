"""What an extent is coalesced by, as plain data of the algebra's :class:`cluster.language.algebra.Extent`."""

from __future__ import annotations

from typing import Literal

import msgspec

from cluster.expressions.walks import columns_read
from cluster.language.columns import Scalar

Keeping = Literal["eager", "lazy"]
"""Coalesced as samples come, or whenever rows are due; it changes what an answer costs, and not the answer."""


class Link(msgspec.Struct, frozen=True):
    """When a sample goes on with the one before.

    Parameters
    ----------
    condition
        Over the columns of a sample, and those of the one before; NULL is no link.
    before
        Columns of the one before: the name in the condition, and the column that it is.
    """

    condition: Scalar
    before: tuple[tuple[str, str], ...]


class Coalescing(msgspec.Struct, frozen=True):
    """How the samples of a key become runs.

    Parameters
    ----------
    columns
        Columns that are coalesced: a run shows those of its first sample.
    stamp
        The column with the stamps of samples, in microseconds, which are never NULL.
    ties
        Columns by which samples of one stamp are ordered, NULLs last.
    bounds
        Names of two more columns: begin and end of a run, in microseconds.
    link
        None: a sample goes on with the one before if all `columns` are equal, NULL being equal to NULL.
    kept
        How it is kept.
    counted
        True if queries share the samples of the window by count below (cluster/plan/counted_extents.py). Left out of
        plans of earlier versions, whose queries go on as they have begun.
    """

    columns: tuple[str, ...]
    stamp: str
    ties: tuple[str, ...]
    bounds: tuple[str, str]
    link: Link | None = None
    kept: Keeping = "eager"
    counted: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def reads(self) -> frozenset[str]:
        """All columns of samples that it needs, besides keys."""
        linked: frozenset[str] = frozenset()
        if self.link is not None:
            own = columns_read(self.link.condition.expression) - {name for name, _ in self.link.before}
            linked = own | {column for _, column in self.link.before}
        return frozenset((*self.columns, self.stamp, *self.ties)) | linked

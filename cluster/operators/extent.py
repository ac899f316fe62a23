"""Samples coalesced into runs (``COALESCE``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Literal, final

import msgspec

from cluster.expressions.walks import columns_read
from cluster.operators.characteristics import Characteristics, Expected, Measured
from cluster.operators.columns import STAMP, Column, Scalar, Schema
from cluster.operators.families import CountsCopies, CutAtWatermarks, Keyed, Snapshotwise
from cluster.operators.node import Conditions, Need, lasts_us
from cluster.operators.operation import Late, listed, own, readable
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

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
        True if queries share the samples of the window by count below (cluster/plan/extents.py). Left out of
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


@final
class Extent(Keyed, CutAtWatermarks, CountsCopies, Snapshotwise, frozen=True, tag="Extent"):
    """Runs of the samples of `keys` that are valid at an instant, in the order of their stamps (sql.md, Coalescing).

    A run goes on while each sample is linked with the one before. It is a row with the keys, the coalesced columns of
    its first sample, and its interval: from the stamp of that to the stamp of the sample that begins the next run, or
    of its own last one.
    """

    written_as: ClassVar[str] = "COALESCE"
    keys: tuple[str, ...]
    coalescing: Coalescing

    @property
    @remembered
    def schema(self) -> Schema:
        """The keys, the coalesced columns, and the interval."""
        by_name = {column.name: column for column in self.input.schema}
        bounds = (Column(name, FieldType.INTEGER, STAMP.unit) for name in self.coalescing.bounds)
        return (*(by_name[name] for name in (*self.keys, *self.coalescing.columns)), *bounds)

    def describe(self) -> str:
        """Return one line about them."""
        return extent_words(self.coalescing, self.keys)

    def expected(self, below: tuple[Characteristics, ...], measured: Measured) -> Expected:
        """Return the rows, as if none were merged."""
        del measured
        return Expected(below[0], below[0].valid_rows)

    def operation(self, lag_us: int | None = None) -> ExtentOperation:
        """Return what runs of it."""
        return ExtentOperation(self.input.schema, self.keys, self.coalescing, lag_us)

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all samples with the keys, and what is compared."""
        del wanted, conditions
        yield self.input, frozenset(self.keys) | self.coalescing.reads, ()

    @remembered
    def delay_us(self) -> int:
        """Return that of the samples, and how long a run is valid: it is not answered before it has ended."""
        return self.input.delay_us() + lasts_us(self)


@final
class ExtentOperation(Late, frozen=True, tag="Extent"):
    """Runs of the samples of `keys` in their order.

    Parameters
    ----------
    columns
        Of the input.
    keys, coalescing
        As in :class:`Extent`.
    lag_us
        How far it may lag behind its input, where other operators wait for it; None for any distance.
    """

    columns: Schema
    keys: tuple[str, ...]
    coalescing: Coalescing
    lag_us: int | None

    def describe(self) -> str:
        """Return one line about it."""
        return extent_words(self.coalescing, own(self.keys))


def extent_words(how: Coalescing, keys: tuple[str, ...]) -> str:
    """Return one line about samples that are coalesced."""
    by = f" by {listed(keys)}" if keys else ""
    link = "" if how.link is None else f" while {readable(how.link.condition)}"
    for name, column in how.link.before if how.link is not None else ():
        link = f"PREV({column})".join(re.split(rf"\b{re.escape(name)}\b", link))
    kept = "" if how.kept == "eager" else ", lazily"
    return f"coalesce {listed(how.columns)}{by}{link}{kept}"

"""What steps of our operators cost on a machine: a table by kind of operator, measured or as shipped. Pure.

Operators take a batch at a time and handle it column by column. So what can be measured is not the price of one hash or
one append, but that of a batch, of a row in or out, and of what is gone through in each batch; decision 0063 maps these
to the terms of the thesis (:mod:`cluster.costs.work`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from cluster.costs.selectivity import keys_joined
from cluster.errors import PlanError
from cluster.operators import Aggregate, Extent, Join, Lookup, Node, TimeWindow

Microseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Price(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an operator of one kind takes of a processor, in microseconds.

    Parameters
    ----------
    batch
        For a batch without rows, of all its inputs.
    row_in, row_out
        For each row that comes, and for each that it makes.
    kept
        For each row that it keeps, in each batch; of extents: for each sample whose key changes in the batch.
    compared
        For each pair of rows that it compares; of an aggregate: of a row and a partial aggregate that changes with it;
        of panes: for each partial row in each position of a window; of coalescing a lazy extent: for each sample that
        is there when one of its key enters or leaves, if a thousand are kept; of more it is the more.
    apart
        Of coalescing a lazy extent: for each of these that does not go on with the one before, in addition.
    moved
        For a batch in which something enters or leaves an extent; a window with a slide has others, too.
    """

    batch: Microseconds = 0.0
    row_in: Microseconds = 0.0
    row_out: Microseconds = 0.0
    kept: Microseconds = 0.0
    compared: Microseconds = 0.0
    apart: Microseconds = 0.0
    moved: Microseconds = 0.0


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices by kind of operator.

    Parameters
    ----------
    kinds
        By the name of the node of the algebra; ``Panes`` are a family of windows that share panes
        (:mod:`cluster.costs.pane_families`). Kinds that are missing cost as in :data:`SHIPPED`, or as a filter.
    measured
        When they were measured, as text; empty for those that are shipped.
    machine
        Which processor it was.
    """

    kinds: Mapping[str, Price]
    measured: str = ""
    machine: str = ""

    def of(self, node: Node) -> Price:
        """Return the price of the operator of a node; without one of its form, that of its kind."""
        form, kind = form_of(node), node.kind_name()
        return self.kinds.get(form) or self.kinds.get(kind) or SHIPPED.kinds.get(form) or self.named(kind)

    @property
    def of_coalescing(self) -> Price:
        """The price of coalescing whole samples for one query."""
        return self.named(COALESCING)

    @property
    def of_lookup(self) -> Price:
        """The price of a lookup next to a scan."""
        return self.named(Lookup.kind_name())

    def named(self, kind: str) -> Price:
        """Return the price of a kind of operator."""
        return self.kinds.get(kind) or SHIPPED.kinds.get(kind) or SHIPPED.kinds["Filter"]


def form_of(node: Node) -> str:
    """Return the name under which the operator of a node is priced: that of its kind, or of a form that is apart.

    A window that moves in steps is aggregated step by step, one that moves with each row row by row; without keys each
    row changes all partial aggregates. A join without an equality compares all pairs.
    """
    match node:
        case Aggregate():
            window = node.input.below_filters
            if isinstance(window, TimeWindow) and window.slide_us > 1:
                return STEPPED_AGGREGATE
            return "Aggregate" if node.keys else TOTAL_AGGREGATE
        case Join():
            left, right = (frozenset(column.name for column in side.schema) for side in (node.left, node.right))
            condition = None if node.predicate is None else node.predicate.expression
            return "Join" if keys_joined(condition, left, right) > 1 else JOIN_OF_ALL
        case Extent(coalescing=how) if how.kept == "lazy":
            return LAZY_EXTENT
        case _:
            return node.kind_name()


STEPPED_AGGREGATE, TOTAL_AGGREGATE, JOIN_OF_ALL = "SteppedAggregate", "TotalAggregate", "JoinOfAll"
LAZY_EXTENT, COALESCING = "LazyExtent", "Coalescing"
"""The whole samples of a lazy extent, which several queries share, and coalescing them for one of these."""
SHIPPED = Prices(
    {
        "Source": Price(batch=110, row_out=0.01),
        "Filter": Price(batch=310, row_out=0.005),
        "Project": Price(batch=75, row_in=0.002, row_out=0.002),
        "TimeWindow": Price(batch=160, row_in=0.002, row_out=0.002),
        "CountWindow": Price(batch=2_000, row_out=0.5, kept=0.06),
        "PartitionedWindow": Price(batch=2_250, row_out=0.5, kept=0.06),
        "Aggregate": Price(batch=2_100, row_out=1.0, kept=0.002, compared=0.04),
        "Distinct": Price(batch=2_550, row_in=1.7, row_out=1.7, kept=0.05),
        "Join": Price(batch=1_750, row_in=0.4, row_out=0.05, kept=0.12, compared=0.0005),
        "SemiJoin": Price(batch=1_950, row_in=0.2, row_out=1.0, kept=0.06, compared=0.001),
        "AntiJoin": Price(batch=1_900, row_out=4.9, kept=0.06, compared=0.001),
        "Union": Price(batch=280, row_in=0.005, row_out=0.005),
        "Difference": Price(batch=4_600, row_in=0.2, kept=0.7),
        "Intersection": Price(batch=4_600, row_in=0.2, kept=0.7),
        "Ranked": Price(batch=1_400, row_in=0.35, row_out=7.7),
        "Istream": Price(batch=420, row_out=0.36, kept=0.6),
        "Sequence": Price(batch=1_050, row_in=0.08, row_out=0.08),
        "Lookup": Price(batch=230, row_in=0.05, row_out=0.05),
        STEPPED_AGGREGATE: Price(batch=2_100, row_out=0.45),
        TOTAL_AGGREGATE: Price(batch=1_800, row_out=1.0, kept=0.002, compared=0.04),
        JOIN_OF_ALL: Price(batch=1_950, row_in=2.4, row_out=0.05, kept=0.9, compared=0.007),
        "Granularity": Price(batch=160, row_in=0.004, row_out=0.004),
        "Answers": Price(batch=750, row_out=0.09),
        "Exchange": Price(batch=850, row_in=0.1),
        "Queue": Price(batch=90),
        "Extent": Price(batch=1_080, row_in=1.25, kept=0.73, moved=6_010),
        LAZY_EXTENT: Price(batch=860, row_in=1.34, kept=0.83, moved=3_010),
        COALESCING: Price(compared=0.0057, apart=0.0254, moved=3_190),
        "Panes": Price(batch=2_700, row_in=0.1, row_out=0.6, kept=0.09, compared=0.25),
    }
)
"""Prices of a machine of 2026, for clusters on which none have been measured."""


def prices_text(prices: Prices) -> bytes:
    """Return prices as the JSON of a file that people can read and change."""
    return msgspec.json.format(msgspec.json.encode(prices), indent=2) + b"\n"


def read_prices(text: bytes) -> Prices:
    """Return the prices of a file.

    Raises
    ------
    PlanError
        If it holds none; says where.
    """
    try:
        return msgspec.json.decode(text, type=Prices)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(
            f"the prices of operators cannot be read: {error}",
            hint="measure them anew with `fjord plan calibrate`, or delete the file: prices are shipped, too",
        ) from error

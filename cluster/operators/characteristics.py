"""The characteristics of streams, and rows expected and kept in a steady state (papers/pipes_costs.md section 1).

    distance    |--|           between the starts of two rows, on average
    validity    |------)       of a row, on average
    granule     |-|            starts and ends lie on multiples of it

Pure arithmetic, in any one unit of application time; plans use microseconds. Distances may be infinite, of streams
without rows, and validities, of rows that stay for ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cluster.expressions.nodes import Expression

KEYS_ASSUMED = 1_000
"""How many keys an aggregate has, and how many values a column by which rows are joined."""


@dataclass(frozen=True, slots=True)
class Characteristics:
    """A stream in its steady state.

    Parameters
    ----------
    distance
        Between the starts of consecutive rows, on average; more than 0.
    validity
        Of a row, on average; `granule` at least.
    granule
        All starts and ends are multiples of it.
    """

    distance: float
    validity: float
    granule: float = 1.0

    @property
    def rate(self) -> float:
        """Rows per unit of time."""
        return 1 / self.distance

    @property
    def valid_rows(self) -> float:
        """Rows that are valid at an instant, on average."""
        return 0.0 if math.isinf(self.distance) else self.validity / self.distance


def lasting(flow: Characteristics, validity: float) -> Characteristics:
    """Return rows that are valid for so long instead."""
    return replace(flow, validity=validity)


def instants(flow: Characteristics) -> Characteristics:
    """Return rows that are valid for an instant instead, whichever that is."""
    return replace(flow, validity=1, granule=1)


def filtered(flow: Characteristics, selectivity: float) -> Characteristics:
    """Return the rows that meet a condition, a share of `selectivity` (formula 22.1)."""
    return replace(flow, distance=flow.distance / selectivity if selectivity else math.inf)


def united(flows: Sequence[Characteristics]) -> Characteristics:
    """Return the rows of all of some streams (22.3)."""
    rate = sum(each.rate for each in flows)
    if not rate:
        return flows[0]
    validity = sum(each.validity * each.rate for each in flows) / rate
    return Characteristics(1 / rate, validity, max(each.granule for each in flows))


def joined(left: Characteristics, right: Characteristics, selectivity: float = 1.0) -> Characteristics:
    """Return the pairs of rows that are valid together, a share of `selectivity` of them (22.4); both validities end.

    A pair arises when either of its rows begins while the other one is valid, and lasts while both are.
    """
    both = left.validity + right.validity
    pairs = left.rate * right.rate * selectivity * both
    granule = max(left.granule, right.granule)
    return Characteristics(1 / pairs if pairs else math.inf, left.validity * right.validity / both, granule)


def distinct(flow: Characteristics, values: float) -> Characteristics:
    """Return each of so many different rows once per instant (22.5)."""
    between = values * flow.distance
    return replace(flow, validity=min(between, flow.validity))


def aggregated(flow: Characteristics) -> Characteristics:
    """Return the aggregate of all rows: it changes where one of them starts or ends (22.6, after Cardenas)."""
    if flow.distance >= flow.validity:
        return flow
    distance = flow.granule / instants_hit(flow, 2.0 if math.isfinite(flow.validity) else 1.0)
    return replace(flow, distance=distance, validity=distance)


def grouped(flow: Characteristics, groups: float) -> Characteristics:
    """Return an aggregate for each of so many groups (22.7)."""
    one = replace(flow, distance=flow.distance * groups)
    if one.distance >= one.validity:
        return flow
    found = aggregated(one)
    return replace(found, distance=found.distance / groups)


def stepped(flow: Characteristics, groups: float = 1.0) -> Characteristics:
    """Return an aggregate for each of so many groups, once for each step of a window: its rows are not merged.

    A group has no row while none of its rows is valid; when rows come is not foreseen (Poisson).
    """
    valid = -math.expm1(-flow.valid_rows / groups)
    rate = groups * valid / flow.granule
    return Characteristics(1 / rate if rate else math.inf, flow.granule, flow.granule)


def instants_hit(flow: Characteristics, stamps_per_row: float) -> float:
    """Return the share of the instants of a granularity at which there is a stamp of some row.

    Parameters
    ----------
    flow
        The rows.
    stamps_per_row
        How many stamps of each count: 2 for starts and ends, 1 for one of them.
    """
    per_granule = stamps_per_row * flow.granule / flow.distance
    if math.isinf(flow.validity):
        return -math.expm1(-per_granule)
    if flow.granule >= flow.validity:
        return 1.0
    instants = flow.validity / flow.granule
    return -math.expm1(math.log1p(-1 / instants) * instants * per_granule)


def split(flow: Characteristics, longest: float) -> Characteristics:
    """Return rows cut into pieces of a length (22.8).

    It is kept as the reference: only physical plans do that, which are not estimated.
    """
    if longest >= flow.validity:
        return flow
    return replace(flow, distance=flow.distance * longest / flow.validity, validity=longest)


def coarsened(flow: Characteristics, granule: float) -> Characteristics:
    """Return rows whose starts and ends are rounded up to a coarser granularity; some vanish (22.9)."""
    if granule <= flow.granule:
        return flow
    if flow.validity >= granule:
        return replace(flow, granule=granule)
    return Characteristics(flow.distance * granule / flow.validity, granule, granule)


def windowed(flow: Characteristics, size: float, slide: float) -> Characteristics:
    """Return rows in a window of time that moves in steps (22.10; with steps: section 1.1).

    Its rows begin and end where it moves. Where steps are longer than the window, rows between two windows vanish.
    """
    granule = max(flow.granule, slide)
    if slide > size:
        return Characteristics(flow.distance * slide / size, slide, granule)
    return Characteristics(flow.distance, size, granule)


def counted(flow: Characteristics, rows: float, keys: float = 1.0) -> Characteristics:
    """Return rows in a window of the last few rows of each of so many keys (22.11, 22.12)."""
    return replace(flow, validity=max(rows * keys * flow.distance, flow.granule))


class Expected(NamedTuple):
    """What is expected of a node.

    Parameters
    ----------
    rows
        Those that it answers, in microseconds; None where they cannot be estimated.
    kept
        How many rows its operator keeps; infinite if they become ever more, None where that cannot be estimated.
    """

    rows: Characteristics | None
    kept: float | None = 0.0


NOT_KNOWN = Expected(None, None)


class Measured(Protocol):
    """What is known of streams, conditions and relations: measured, or else assumed."""

    def tuples(self, stream: str) -> Characteristics | None:
        """Return the tuples of a stream; None if their rate is not known."""

    def partners(self, stream: str, lookup: Hashable) -> float:
        """Return how many rows a lookup (:class:`cluster.operators.TableLookup`) makes of a tuple."""

    def passing(self, stream: str | None, condition: Expression) -> float:
        """Return the share of tuples that meet a condition; those of no stream are computed."""

    def pairs(self, condition: Expression | None, left: frozenset[str], right: frozenset[str]) -> float:
        """Return the share of pairs of rows with these columns that meet a condition."""


def combinations(keys: Sequence[object]) -> int:
    """Return how many combinations of the values of some keys there are."""
    return KEYS_ASSUMED if keys else 1


def kept_by_join(left: Characteristics, right: Characteristics) -> tuple[float, float]:
    """Return the rows of each side that a join keeps, with those that wait until the other side has moved on."""
    return (_kept_of(left, right), _kept_of(right, left))


def _kept_of(own: Characteristics, other: Characteristics) -> float:
    if math.isinf(own.distance):
        return 0.0
    waits = 0.0 if math.isinf(other.distance) else other.distance / (2 * own.distance)
    return own.valid_rows + waits


def kept_by_distinct(flow: Characteristics) -> float:
    """Return the rows that duplicate elimination keeps: those that are valid."""
    return flow.valid_rows


def kept_by_aggregate(flow: Characteristics) -> float:
    """Return the partial aggregates that are kept: one for each instant at which a row that is valid ends."""
    if flow.distance >= flow.validity:
        return 1.0
    if math.isinf(flow.validity):
        return 1.0
    return flow.validity / flow.granule * instants_hit(flow, 1.0)


def kept_by_groups(flow: Characteristics, groups: float) -> float:
    """Return the partial aggregates that are kept for so many groups."""
    one = Characteristics(flow.distance * groups, flow.validity, flow.granule)
    if one.distance >= one.validity:
        return flow.valid_rows
    return groups * kept_by_aggregate(one)


def kept_by_split(flow: Characteristics, longest: float) -> float:
    """Return the rows kept while rows are cut into pieces of a length: those valid, and pieces in order.

    It is kept as the reference: only physical plans do that, which are not estimated.
    """
    if longest >= flow.validity:
        return 0.0
    return flow.valid_rows + flow.validity / (2 * longest)

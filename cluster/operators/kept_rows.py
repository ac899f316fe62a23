"""How many rows operators keep in a steady state (papers/pipes_costs.md section 2). Pure arithmetic."""

from __future__ import annotations

import math

from cluster.operators.characteristics import Characteristics, instants_hit


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

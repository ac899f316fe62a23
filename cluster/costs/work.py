"""What operators take of a processor, given their rows and what steps cost. Pure arithmetic.

    us/s  =  batches/s (batch + kept rows x kept)  +  rows in/s x row_in  +  rows out/s x row_out  +  pairs/s x compared

Rows are per second of application time, which passes as real time does while processing keeps up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cluster.costs.prices import Price
from cluster.costs.processing import compared_by_join
from cluster.operators.characteristics import Characteristics

SECOND_US = 1_000_000
BATCHES_PER_SECOND = 1.0
"""How often a running plan is given rows, unless that is known."""


def work_us(
    price: Price,
    below: Sequence[Characteristics],
    flow: Characteristics,
    kept: float,
    *,
    compared: float = 0.0,
    batches: float = BATCHES_PER_SECOND,
) -> float:
    """Return the microseconds of a processor that an operator takes in a second.

    Parameters
    ----------
    price
        What its steps cost.
    below, flow
        Its inputs, and what it makes of them, in microseconds.
    kept
        Rows that it keeps; if these become ever more, its work does.
    compared
        Pairs of rows that it compares in a second.
    batches
        How many it is given in a second.
    """
    rows_in = sum(each.rate for each in below) * SECOND_US
    gone_through = kept * price.kept if price.kept else 0.0
    own = batches * (price.batch + gone_through) + rows_in * price.row_in + flow.rate * SECOND_US * price.row_out
    return own + (compared * price.compared if price.compared else 0.0)


def compared_per_second(left: Characteristics, right: Characteristics, keys: float) -> float:
    """Return how many pairs a join compares in a second, with so many different keys; each row is valid for a while."""
    if math.isinf(left.validity) or math.isinf(right.validity):
        return math.inf
    return compared_by_join(left, right, (keys, keys)) * SECOND_US

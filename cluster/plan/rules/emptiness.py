"""Parts that can have no tuple: conditions that are never true, such as those on the NULLs of an outer join.

    where wind > 30                                   join
    `- union                            ->            |- stream traffic
       |- join                                        `- filter wind > 30
       |  |- stream traffic                              `- stream weather
       |  `- stream weather
       `- project wind = NULL
          `- keep if none ...

So an outer join whose rows without a partner are chosen by no condition above it is a join: less work, and sensors send
only what meets the conditions.
"""

from __future__ import annotations

from cluster.operators import (
    Node,
    Union,
)
from cluster.operators.projections import named_as


def drop_empty_side(node: Node) -> Node | None:
    """A ∪ ∅ = A."""
    if not isinstance(node, Union):
        return None
    if node.right.is_empty:
        return node.left
    if not node.left.is_empty:
        return None
    return named_as(node.right, node.left.schema)

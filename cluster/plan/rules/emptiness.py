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

from cluster.expressions.outcomes import never_true
from cluster.language.algebra import (
    AntiJoin,
    Difference,
    Filter,
    Held,
    Intersection,
    Join,
    Node,
    Ranked,
    Relation,
    SemiJoin,
    Source,
    StampJoin,
    Union,
    Zip,
    inputs_of,
    schema_of,
)
from cluster.language.plans import named_as
from cluster.shared_nodes import remembered


@remembered
def is_empty(node: Node) -> bool:
    """Return whether a plan surely has no tuple at any instant."""
    match node:
        case Source() | Relation() | Held() | Zip() | StampJoin():
            return False
        case Filter() if never_true(node.predicate.expression):
            return True
        case Ranked(most=int(most)) if most <= node.above:
            return True
        case Join() | SemiJoin() | Intersection():
            return is_empty(node.left) or is_empty(node.right)
        case AntiJoin() | Difference():
            return is_empty(node.left)
        case _:
            return all(is_empty(each) for each in inputs_of(node))


def drop_empty_side(node: Node) -> Node | None:
    """A ∪ ∅ = A."""
    if not isinstance(node, Union):
        return None
    if is_empty(node.right):
        return node.left
    if not is_empty(node.left):
        return None
    return named_as(node.right, schema_of(node.left))

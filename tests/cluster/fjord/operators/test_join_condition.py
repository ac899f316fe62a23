"""What of a join's condition a hash table answers."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.fjord.operators.join import LEFT_KEY, RIGHT_KEY, join_condition, matching_pairs
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

LEFT = pl.DataFrame({"x": [1, 2, 2, None], "y": [1, 1, 2, None]}, schema={"x": pl.Int64, "y": pl.Int64})
RIGHT = pl.DataFrame({"u": [2, 1, None], "r": [2.0, 2.5, None]}, schema={"u": pl.Int64, "r": pl.Float64})

# (condition, keys of the left, keys of the right, whether there is a rest, pairs of rows by their numbers)
CONDITIONS = [
    ('"x" = "u"', ("x",), ("u",), False, [(0, 1), (1, 0), (2, 0)]),
    ('"u" = "x"', ("x",), ("u",), False, [(0, 1), (1, 0), (2, 0)]),
    ('"x" = "r"', ("x",), ("r",), False, [(1, 0), (2, 0)]),
    ('"x" = "u" AND "y" = "u"', ("x", "y"), ("u", "u"), False, [(0, 1), (2, 0)]),
    ('"x" = "u" AND ("u" = "x")', ("x",), ("u",), False, [(0, 1), (1, 0), (2, 0)]),
    ('"x" = "y" AND "x" = "u"', ("x",), ("u",), True, [(0, 1), (2, 0)]),
    ('"u" = "r" AND "x" = "u"', ("x",), ("u",), True, [(1, 0), (2, 0)]),
    ('"x" = "y"', (), (), True, [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2)]),
    ('"u" = "r"', (), (), True, [(0, 0), (1, 0), (2, 0), (3, 0)]),
    ('"x" + 1 = "u"', (LEFT_KEY + "0",), ("u",), False, [(0, 0)]),
    ('"u" * 2 = "x"', ("x",), (RIGHT_KEY + "0",), False, [(1, 1), (2, 1)]),
    ('"x" + "y" = "u" + 1', (LEFT_KEY + "0",), (RIGHT_KEY + "0",), False, [(0, 1), (1, 0)]),
    ('"x" / 2 = "r" / 2', (LEFT_KEY + "0",), (RIGHT_KEY + "0",), False, [(1, 0), (2, 0)]),
    ('"x" + 0 = "r"', (LEFT_KEY + "0",), ("r",), False, [(1, 0), (2, 0)]),
    ('"x" + 1 = "u" AND "y" = "u"', ("y",), ("u",), True, []),
    ('"x" + 1 = "u" AND "y" + 1 = "u"', (LEFT_KEY + "0", LEFT_KEY + "1"), ("u", "u"), False, [(0, 0)]),
    ('NULLIF("x", "x") = "u"', (LEFT_KEY + "0",), ("u",), False, []),
    ('"x" * 0 = "u" - "u"', (LEFT_KEY + "0",), (RIGHT_KEY + "0",), False, [(a, b) for a in range(3) for b in range(2)]),
    ('"x" + "u" = "y" + "u"', (), (), True, [(0, 0), (0, 1), (2, 0), (2, 1)]),
    ('1 = "u"', (), (), True, [(a, 1) for a in range(4)]),
    ('"x" < "r" AND "y" = "u"', ("y",), ("u",), True, [(0, 1), (1, 1)]),
    ('"x" = "u" OR "y" = "u"', (), (), True, [(0, 1), (1, 0), (1, 1), (2, 0)]),
    ('"x" IS NULL', (), (), True, [(3, 0), (3, 1), (3, 2)]),
    (None, (), (), False, [(one, other) for one in range(4) for other in range(3)]),
]


@pytest.mark.parametrize(("sql", "left_keys", "right_keys", "rest", "pairs"), CONDITIONS)
def test_a_join_condition_is_split_into_keys_and_a_residual(sql, left_keys, right_keys, rest, pairs):
    predicate = None if sql is None else read_scalar(sql, FieldType.BOOLEAN)
    found = join_condition(predicate, RIGHT.columns)
    assert (found.left_keys, found.right_keys, found.residual is not None) == (left_keys, right_keys, rest)
    rows = matching_pairs(LEFT.with_row_index("one"), RIGHT.with_row_index("other"), found).collect()
    assert rows.columns == ["one", "x", "y", "other", "u", "r"]
    assert rows.select("one", "other").rows() == pairs

"""Scalar functions and operators over columns: series in, series out. Each function is one row of a table.

CASE, CAST, TRY_CAST, IF and the operators have rules of their own, and so have functions of time.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.scalars.choices import CHOICES
from cluster.scalars.json_documents import JSON_FUNCTIONS
from cluster.scalars.numbers import NUMBER_FUNCTIONS
from cluster.scalars.scalar_function import ScalarFunction
from cluster.scalars.text_parts import TEXT_PARTS
from cluster.scalars.text_patterns import TEXT_PATTERNS
from cluster.scalars.texts import TEXT_FUNCTIONS

SCALAR_FUNCTIONS: Mapping[str, ScalarFunction] = {
    function.name: function
    for function in (
        *NUMBER_FUNCTIONS, *CHOICES, *TEXT_FUNCTIONS, *TEXT_PARTS, *TEXT_PATTERNS, *JSON_FUNCTIONS,
    )
}  # fmt: skip

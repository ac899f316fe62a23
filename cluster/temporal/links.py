"""Link predicates: which sample goes on with the one before (papers/coalescing.md sections 1.4 and 2.4). Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from cluster.temporal.windows import ExtentError

Values: TypeAlias = tuple[Any, ...]
"""Values of coalescing attributes."""


@dataclass(frozen=True)
class Equal:
    """All values are equal: NULL equals NULL, NaN equals nothing."""

    transitive = True

    def __call__(self, earlier: Values, later: Values) -> bool:
        """Return whether the later values go on with the earlier ones."""
        return earlier == later and all(each == each for each in later)  # noqa: PLR0124 - NaN alone differs from itself


@dataclass(frozen=True)
class Increasing:
    """Each value is larger than the one before; NULL follows only NULL."""

    transitive = False

    def __call__(self, earlier: Values, later: Values) -> bool:
        """Return whether the later values go on with the earlier ones."""
        return all(_both_null(one, other) or _larger(one, other) for one, other in zip(earlier, later, strict=True))


@dataclass(frozen=True)
class Within:
    """Values differ from their neighbours by at most `tolerance`, or that share of the earlier one if `relative`."""

    tolerance: float
    relative: bool = False
    transitive = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise ExtentError(f"a tolerance of {self.tolerance}", hint="write a number of 0 or more")

    def __call__(self, earlier: Values, later: Values) -> bool:
        """Return whether the later values go on with the earlier ones."""
        return all(_both_null(one, other) or self._near(one, other) for one, other in zip(earlier, later, strict=True))

    def _near(self, one: Any, other: Any) -> bool:
        if one is None or other is None:
            return False
        return bool(abs(other - one) <= self.tolerance * (abs(one) if self.relative else 1))


@dataclass(frozen=True)
class Satisfying:
    """A predicate of (earlier values, later values), which has to be deterministic; `name` distinguishes such links."""

    name: str
    predicate: Callable[[Values, Values], bool]
    transitive = False

    def __call__(self, earlier: Values, later: Values) -> bool:
        """Return whether the later values go on with the earlier ones."""
        return bool(self.predicate(earlier, later))


Link: TypeAlias = Equal | Increasing | Within | Satisfying
"""`transitive` links may keep one value for a whole run."""


def _both_null(one: Any, other: Any) -> bool:
    return one is None and other is None


def _larger(one: Any, other: Any) -> bool:
    return one is not None and other is not None and bool(other > one)

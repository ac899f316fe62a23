"""Errors of plans that are valid, but cannot be run yet."""

from __future__ import annotations

from cluster.errors import PlanError


class UnsupportedPlanError(PlanError):
    """A plan with an operator that cannot be run yet."""

"""Plans that mean something, but cannot be run."""

from __future__ import annotations

from cluster.errors import PlanError


class UnsupportedPlanError(PlanError):
    """A plan with an operator that cannot be run yet."""

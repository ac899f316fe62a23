"""Errors about operators of plans."""

from __future__ import annotations

from cluster.errors import PlanError


class UnboundedPlanError(PlanError):
    """A plan without a bound on how long a tuple matters to it, or on how long its answers may wait."""

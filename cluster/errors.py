"""The cluster's branch of the exception tree. Each folder adds its own leaves where it needs data on them."""

from __future__ import annotations

from protocols.errors import FjordError


class ClusterError(FjordError):
    """Anything the cluster refuses or cannot do."""


class PlanError(ClusterError):
    """A plan that cannot be built, read or run."""


class StateError(ClusterError):
    """Saved operator state that this program cannot read."""


class StorageError(ClusterError):
    """A stream table, results table or registry that cannot be read or written."""

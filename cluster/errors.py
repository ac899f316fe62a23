"""The cluster's branch of the exception tree. Each folder adds its own leaves where it needs data on them."""

from __future__ import annotations

from protocols.errors import FjordError


class ClusterError(FjordError):
    """Anything the cluster refuses or cannot do."""


class MissingLibraryError(ClusterError):
    """A library that is installed only where it is wanted."""


class PlanError(ClusterError):
    """A plan that cannot be built, read or run."""


class StateError(ClusterError):
    """Saved operator state that this program cannot read."""


class StorageError(ClusterError):
    """A stream table, results table or registry that cannot be read or written."""


class UnwritableError(StorageError):
    """Something could not be written; nothing of it is stored, so that it may be tried again.

    Parameters
    ----------
    what
        What was to be written.
    cause
        Why it could not be: a full disk, above all.
    """

    def __init__(self, what: str, cause: Exception) -> None:
        super().__init__(
            f"{what} cannot be written: {cause}",
            hint="nothing of it is stored: is the disk of the data folder full? Free some space, and try again",
        )
        self.cause = cause

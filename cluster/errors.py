"""The cluster's branch of the exception tree. Each folder adds its own leaves where it needs data on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


MOST_REFUSED = 20
"""Things that were wanted together, such as queries or lines of a file, that one error is about."""


class OneOfManyError(ClusterError):
    """One of several things that were wanted together is refused, and so are all.

    Parameters
    ----------
    place
        Which one, from 0.
    cause
        Why.
    """

    def __init__(self, place: int, cause: FjordError) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.place = place
        self.cause = cause
        self.others: tuple[OneOfManyError, ...] = ()
        """More of them that are refused, if they have been looked at."""


@contextmanager
def blamed(place: int) -> Iterator[None]:
    """Make an error inside that of one of several things.

    Raises
    ------
    OneOfManyError
        In place of any error of Fjord's.
    """
    try:
        yield
    except FjordError as error:
        raise OneOfManyError(place, error) from error

"""Which names queries may have, and how many there may be. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from cluster.errors import ClusterError, blamed
from protocols.wire.names import normal
from protocols.wire.topics import check_name

MOST_NAMED = 10
"""Queries named in a hint."""


class QueryExistsError(ClusterError):
    """A query of this name is running."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a query {name!r} already", hint="choose another name, or drop it first")
        self.name = name


class UnknownQueryError(ClusterError):
    """There is no query of this name."""

    def __init__(self, name: str, running: Collection[str]) -> None:
        known = list(islice(running, MOST_NAMED + 1))
        listed = ", ".join(known[:MOST_NAMED]) + (", ..." if len(known) > MOST_NAMED else "") if known else "none"
        super().__init__(f"there is no query {name!r}", hint=f"running queries: {listed}")
        self.name = name


class TooManyQueriesError(ClusterError):
    """The configured limit on queries is reached."""


@dataclass(frozen=True, slots=True)
class NamesInUse:
    """The names that queries have.

    Parameters
    ----------
    running, waiting
        Of the queries that run, and of those that wait or are set aside.
    used
        The last number of a name that was made up; 0 if there was none. Numbers never come back.
    most
        How many queries there may be.
    """

    running: Collection[str]
    waiting: Collection[str]
    used: int
    most: int

    def named(self, wanted: Sequence[str | None]) -> tuple[list[str], int | None]:
        """Return names for queries that come together, and the number of the last that is made up, if any is.

        Parameters
        ----------
        wanted
            The name that each should have; None for any.

        Raises
        ------
        OneOfManyError
            With the query, and TooManyQueriesError, QueryExistsError, or TopicError if a topic cannot have the name.
        """
        found, used = dict[str, None](), None
        for place, name in enumerate(wanted):
            with blamed(place):
                self._check_count(len(found))
                if name is None:
                    used = self._free_number(self.used if used is None else used, found)
                    name = f"q{used}"  # noqa: PLW2901 - it has none
                else:
                    name = check_name(normal(name), "query name")  # noqa: PLW2901 - two spellings of one name
                    if name in found or self._has(name):
                        raise QueryExistsError(name)
            found[name] = None
        return list(found), used

    def _check_count(self, coming: int) -> None:
        count = len(self.running) + len(self.waiting) + coming
        if count >= self.most:
            raise TooManyQueriesError(
                f"{count:,} queries are running, the limit is {self.most:,}", hint="drop some, or raise the limit"
            )

    def _free_number(self, used: int, others: Collection[str]) -> int:
        number = used + 1
        while f"q{number}" in others or self._has(f"q{number}"):
            number += 1
        return number

    def _has(self, name: str) -> bool:
        return name in self.running or name in self.waiting

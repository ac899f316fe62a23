"""Which names queries may have, and how many there may be. Pure.

A query is found by its name as it was given, since topics of MQTT have case. But no two have names that differ in case
only: names have no case elsewhere, and people would take one for the other. Earlier versions let such queries in; they
go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from cluster.errors import ClusterError, blamed
from protocols.wire.names import folded, normal
from protocols.wire.topics import check_name

MOST_NAMED = 10
"""Queries named in a hint."""


Spellings = Mapping[str, tuple[str, ...]]
"""Names, by what is the same of all spellings; in data of earlier versions, several may differ in case only."""


class QueryExistsError(ClusterError):
    """There is a query of this name.

    Parameters
    ----------
    name
        The name of a new query.
    other
        That of the query that there is: the same, or one that differs in case only.
    """

    def __init__(self, name: str, other: str) -> None:
        differs = "" if name == other else f", and {name!r} differs from it in case only"
        super().__init__(f"there is a query {other!r} already{differs}", hint="choose another name, or drop it first")
        self.name = name
        self.other = other


class UnknownQueryError(ClusterError):
    """There is no query of this name.

    Parameters
    ----------
    name
        The name.
    running, spellings
        Those of the queries that run.
    """

    def __init__(self, name: str, running: Collection[str], spellings: Spellings) -> None:
        known = list(islice(running, MOST_NAMED + 1))
        listed = ", ".join(known[:MOST_NAMED]) + (", ..." if len(known) > MOST_NAMED else "") if known else "none"
        hint = f"running queries: {listed}"
        if similar := spellings.get(folded(name)):
            found = " and ".join(map(repr, similar[:MOST_NAMED]))
            hint = f"there is {found}: a query is found by its name as it was given, in upper and lower case"
        super().__init__(f"there is no query {name!r}", hint=hint)
        self.name = name


class TooManyQueriesError(ClusterError):
    """The configured limit on queries is reached."""


def spellings_of(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return names by what is the same of all their spellings.

    >>> spellings_of(["Warm", "cold", "warm"])
    {'warm': ('Warm', 'warm'), 'cold': ('cold',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        key = folded(name)
        found[key] = (*found.get(key, ()), name)
    return found


@dataclass(frozen=True, slots=True)
class NamesInUse:
    """The names that queries have.

    Parameters
    ----------
    running, waiting
        Of the queries that run, and of those that wait or are set aside.
    count
        How many queries these are.
    used
        The last number of a name that was made up; 0 if there was none. Numbers never come back.
    most
        How many queries there may be.
    """

    running: Spellings
    waiting: Spellings
    count: int
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
        found, used = dict[str, str](), None
        for place, name in enumerate(wanted):
            with blamed(place):
                self._check_count(len(found))
                if name is None:
                    used = self._free_number(self.used if used is None else used, found)
                    name = f"q{used}"  # noqa: PLW2901 - it has none
                else:
                    name = check_name(normal(name), "query name")  # noqa: PLW2901 - two spellings of one name
                    if other := self._same(name, found):
                        raise QueryExistsError(name, other)
            found[folded(name)] = name
        return list(found.values()), used

    def _check_count(self, coming: int) -> None:
        count = self.count + coming
        if count >= self.most:
            raise TooManyQueriesError(
                f"{count:,} queries are running, the limit is {self.most:,}", hint="drop some, or raise the limit"
            )

    def _free_number(self, used: int, coming: Mapping[str, str]) -> int:
        number = used + 1
        while self._same(f"q{number}", coming):
            number += 1
        return number

    def _same(self, name: str, coming: Mapping[str, str]) -> str | None:
        """Return the name of a query that has this name in any case: the very same, if one has it."""
        key = folded(name)
        names = (*self.running.get(key, ()), *self.waiting.get(key, ()), *((coming[key],) if key in coming else ()))
        return name if name in names else next(iter(names), None)

"""The extents of a window, shared by all coalescing queries on it (papers/coalescing.md section 1.6). Pure.

Queries that coalesce the same attributes by the same groups and the same link are one. Each is answered from an eager
extent of its own, or from the lazy one that all others share; which, may change while samples come, and no answer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.temporal.windows import Equal, ExtentError, Link, Window
from tests.cluster.temporal.admission import Admission, Verdict
from tests.cluster.temporal.eager_extent import Counters, EagerExtent
from tests.cluster.temporal.lazy_extent import LazyExtent
from tests.cluster.temporal.runs import Coalesced


@dataclass(frozen=True)
class StreamSchema:
    """Attributes of a stream.

    Parameters
    ----------
    key
        No two samples have equal stamps and equal keys; without a key, no two have equal stamps.
    invariant
        Other attributes that do not vary with time, by which queries may group.
    varying
        Attributes that vary with time, which queries may coalesce.
    """

    key: tuple[str, ...]
    invariant: tuple[str, ...]
    varying: tuple[str, ...]

    @property
    def attributes(self) -> tuple[str, ...]:
        """All attributes, in the order of rows."""
        return (*self.key, *self.invariant, *self.varying)


@dataclass(frozen=True)
class CoalescingQuery:
    """What a query coalesces, in the sense in which two queries are alike.

    Parameters
    ----------
    attributes, groups
        Names, in the order of the schema: see :func:`coalescing_query`.
    link
        Which sample goes on with the one before.
    """

    attributes: tuple[str, ...]
    groups: tuple[str, ...]
    link: Link = field(default_factory=Equal)


def coalescing_query(
    schema: StreamSchema, attributes: Iterable[str], groups: Iterable[str], link: Link | None = None
) -> CoalescingQuery:
    """Return the query in its one form.

    Raises
    ------
    ExtentError
        If there is nothing to coalesce, an attribute is not known, varies where it must not or the reverse, or is in
        both lists, or the groups lack a key of the stream.
    """
    coalesce, by = set(attributes), set(groups)
    if not coalesce:
        raise ExtentError("nothing to coalesce", hint=f"name one or more of {', '.join(schema.varying)}")
    if unknown := sorted((coalesce | by) - set(schema.attributes)):
        raise ExtentError(f"no attribute {unknown[0]}", hint=f"there are {', '.join(schema.attributes)}")
    if both := sorted(coalesce & by):
        raise ExtentError(f"{both[0]} is coalesced and grouped by", hint="name it once")
    if fixed := sorted(coalesce - set(schema.varying)):
        raise ExtentError(f"{fixed[0]} does not vary with time", hint="group by it, and coalesce what varies")
    if varying := sorted(by & set(schema.varying)):
        raise ExtentError(f"{varying[0]} varies with time", hint="coalesce it, and group by what does not vary")
    if missing := sorted(set(schema.key) - by):
        raise ExtentError(
            f"groups without {missing[0]}", hint="two samples of one group would have one stamp: group by it"
        )
    order = schema.attributes
    return CoalescingQuery(
        tuple(name for name in order if name in coalesce), tuple(name for name in order if name in by), link or Equal()
    )


class SharedExtents:
    """All extents of a window.

    Parameters
    ----------
    schema
        Of the stream.
    window
        The extent.
    queries
        What is coalesced; equal ones become one.
    eager
        Those of them that are kept coalesced from the beginning.
    """

    def __init__(
        self, schema: StreamSchema, window: Window, queries: Iterable[CoalescingQuery], eager: Iterable[CoalescingQuery]
    ) -> None:
        self._schema = schema
        self._places = {name: place for place, name in enumerate(schema.attributes)}
        self.queries = tuple(dict.fromkeys(queries))
        chosen = set(eager)
        self._eager = {each: self._empty(each) for each in self.queries if each in chosen}
        self._lazy: LazyExtent | None = LazyExtent() if len(self._eager) < len(self.queries) else None
        self._leaving: set[CoalescingQuery] = set()
        self.admission = Admission(window)
        self.errors = 0

    @property
    def eager(self) -> frozenset[CoalescingQuery]:
        """Queries that are answered from an eager extent."""
        return frozenset(self._eager)

    def insert(self, stamp: Any, row: Mapping[str, Any]) -> Verdict:
        """Take one sample; `stamp` is in microseconds.

        Raises
        ------
        ExtentError
            If the stamp is no integer, an attribute is missing, or a link predicate fails. Nothing has changed then,
            and it is counted.
        """
        try:
            return self._insert(stamp, row)
        except ExtentError:
            self.errors += 1
            raise

    def _insert(self, stamp: Any, row: Mapping[str, Any]) -> Verdict:
        if not isinstance(stamp, int) or isinstance(stamp, bool):
            raise ExtentError(f"a stamp {stamp!r}", hint="stamps are whole microseconds")
        if missing := [name for name in self._schema.attributes if name not in row]:
            raise ExtentError(f"a sample without {missing[0]}")
        values = tuple(row[name] for name in self._schema.attributes)
        self._try_links(values)
        verdict = self.admission.admit(stamp, values[: len(self._schema.key)])
        if verdict is not Verdict.ACCEPTED:
            return verdict
        for query, extent in self._eager.items():
            extent.insert(stamp, self._of(values, query.groups), self._of(values, query.attributes))
        if self._lazy is not None:
            self._lazy.insert(stamp, values[: len(self._schema.key)], values)
        self._expire()
        return verdict

    def advance(self, now_us: int) -> None:
        """Let time pass to an instant: what expires by then goes."""
        self.admission.advance(now_us)
        self._expire()

    def answer(self, query: CoalescingQuery) -> list[Coalesced]:
        """Return the coalesced samples of a query, in canonical order."""
        if query in self._eager:
            return self._eager[query].scan()
        return self._scan(query)

    def choose(self, eager: Iterable[CoalescingQuery]) -> None:
        """Change which queries are eager; answers stay the same.

        A query that becomes eager is coalesced from the samples that are kept. One that becomes lazy stays eager until
        whole samples of all of the window have been kept: an eager extent has only the attributes of its query.
        """
        wanted = set(eager) & set(self.queries)
        self._leaving = set(self._eager) - wanted
        for query in self.queries:
            if query in wanted and query not in self._eager:
                self._eager[query] = self._built(query)
        if self._lazy is None and (self._leaving or len(self._eager) < len(self.queries)):
            self._lazy = LazyExtent()
        self._settle()

    def sizes(self, stamp_bytes: int = 8) -> dict[str, int]:
        """Return bytes of each extent: 4 for an attribute, `stamp_bytes` for a stamp."""
        found = {
            " ".join((*query.attributes, "by", *query.groups)): extent.bytes(row_bytes(query), stamp_bytes)
            for query, extent in self._eager.items()
        }
        if self._lazy is not None:
            found["lazy"] = self._lazy.bytes(lazy_row_bytes(self._schema, stamp_bytes))
        return found

    def counters(self, query: CoalescingQuery) -> Counters:
        """Return what the eager extent of a query counted."""
        return self._eager[query].counters

    def _empty(self, query: CoalescingQuery) -> EagerExtent:
        return EagerExtent(query.link, len(self._schema.key))

    def _built(self, query: CoalescingQuery) -> EagerExtent:
        extent = self._empty(query)
        for stamp, row in self._lazy.rows() if self._lazy is not None else ():
            extent.insert(stamp, self._of(row, query.groups), self._of(row, query.attributes))
        return extent

    def _of(self, row: tuple[Any, ...], names: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple(row[self._places[name]] for name in names)

    def _scan(self, query: CoalescingQuery) -> list[Coalesced]:
        if self._lazy is None or query not in self.queries:
            raise ExtentError(f"no query of {', '.join(query.attributes)} by {', '.join(query.groups)}")
        groups = tuple(self._places[name] for name in query.groups)
        return self._lazy.scan(groups, tuple(self._places[name] for name in query.attributes), query.link)

    def _try_links(self, values: tuple[Any, ...]) -> None:
        """Compare a sample with itself: a predicate that fails on its values does so before anything changes."""
        for query in self.queries:
            own = self._of(values, query.attributes)
            try:
                query.link(own, own)
            except Exception as error:
                raise ExtentError(f"samples with {', '.join(query.attributes)} are not comparable: {error}") from error

    def _expire(self) -> None:
        oldest = self.admission.oldest
        for extent in self._eager.values():
            extent.expire(oldest)
        if self._lazy is not None:
            self._lazy.expire(oldest)
            self._settle()

    def _settle(self) -> None:
        """Let queries go that wait for whole samples of all of the window, and the lazy extent that none needs."""
        if self._leaving and self._lazy is not None and len(self._lazy) == len(self.admission):
            for query in self._leaving:
                del self._eager[query]
            self._leaving = set()
        if not self._leaving and len(self._eager) == len(self.queries):
            self._lazy = None


def row_bytes(query: CoalescingQuery, stamp_bytes: int = 8) -> int:
    """Return bytes of a coalesced sample of a query: two stamps, and 4 for each attribute."""
    return 2 * stamp_bytes + 4 * (len(query.attributes) + len(query.groups))


def lazy_row_bytes(schema: StreamSchema, stamp_bytes: int = 8) -> int:
    """Return bytes of a sample of the lazy extent: two stamps, and 4 for each attribute of the stream."""
    return 2 * stamp_bytes + 4 * len(schema.attributes)

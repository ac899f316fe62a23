"""What is set for streams, or the default of all: how much is kept, and how long it waits for proxies that are gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from cluster.fjord.batch import instant_text
from cluster.language.catalog import CatalogError
from cluster.physical.nodes import Host, PhysicalPlan
from cluster.plan.history import EVER_US
from cluster.service.registry.registry import Registry
from cluster.spark.offsets import SparkPositions
from cluster.storage.budgets import Budget, Passed
from cluster.storage.commit_log import CommitLog
from cluster.storage.stream_retention import StreamRetention
from cluster.storage.stream_tables import watermark_at

Setting = TypeVar("Setting", bound=msgspec.Struct)


class StreamSettings(Generic[Setting]):
    """One setting of all streams.

    Parameters
    ----------
    kind
        The class of its values.
    default
        For streams without a value of their own.
    stored
        The values of single streams, as JSON, by name of the stream.
    store
        Stores the value of a stream, as JSON; None removes it.
    """

    def __init__(
        self,
        kind: type[Setting],
        default: Setting,
        stored: Mapping[str, str],
        store: Callable[[str, str | None], None],
    ) -> None:
        self._default = default
        self._own = {name: msgspec.json.decode(text, type=kind) for name, text in stored.items()}
        self._store = store

    def of(self, stream: str) -> Setting:
        """Return the value for a stream."""
        return self._own.get(stream, self._default)

    def set(self, stream: str, value: Setting | None, known: Mapping[str, object]) -> None:
        """Set the value of a stream; None restores the default.

        Parameters
        ----------
        stream
            Its name.
        value
            The value.
        known
            The streams, by name.

        Raises
        ------
        CatalogError
            If there is no stream of this name that is stored.
        """
        if stream not in known:
            raise CatalogError(f"there is no stream {stream!r} that is stored", hint="`fjord stream list` has all")
        if value is None:
            self.forget(stream)
            return
        self._store(stream, msgspec.json.encode(value).decode())
        self._own[stream] = value

    def forget(self, stream: str) -> None:
        """Restore the default for a stream."""
        self._store(stream, None)
        self._own.pop(stream, None)


LEAST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 1e9
"""A longer time is never."""


class GoneAfter(msgspec.Struct, frozen=True):
    """After how many seconds a stream goes on without a proxy; None for never."""

    seconds: float | None


class GoneProxies(StreamSettings[GoneAfter]):
    """The times of all streams.

    Parameters
    ----------
    registry
        Keeps those of single streams.
    default
        For all others, in seconds; None for never.
    """

    def __init__(self, registry: Registry, default: float | None) -> None:
        streams = registry.streams
        super().__init__(GoneAfter, GoneAfter(default), streams.gone_after(), streams.set_gone_after)

    def after(self, stream: str) -> float | None:
        """Return after how many seconds a stream goes on without a proxy; None for never."""
        return self.of(stream).seconds


class StreamBudgets(StreamSettings[Budget]):
    """The budgets of all streams.

    Parameters
    ----------
    registry
        Keeps the budgets of single streams.
    default
        For all others.
    """

    def __init__(self, registry: Registry, default: Budget) -> None:
        super().__init__(Budget, default, registry.streams.budgets(), registry.streams.set_budget)


class ReadProgress:
    """How far all queries have read a stream.

    Parameters
    ----------
    positions
        Where the Spark queries are.
    plan
        Returns the newest plan.
    root
        Returns the folder of a stream's table.
    """

    def __init__(self, positions: SparkPositions, plan: Callable[[], PhysicalPlan], root: Callable[[str], str]) -> None:
        self._positions = positions
        self._plan = plan
        self._root = root

    def __call__(self, stream: str) -> Passed | None:
        """Return the instant before which no query has to read a stream any more; None if none reads it.

        Raises
        ------
        ClusterError
            If it is unknown.
        """
        found: list[Passed] = []
        version = self._positions(stream)
        if version is not None:
            # No later row is stamped before the watermark.
            watermark_us = watermark_at(CommitLog(self._root(stream)), version) if version >= 0 else None
            instant_us = EVER_US if watermark_us is None else watermark_us
            found.append(Passed(instant_us, "queries have not read it yet"))
        read = self._positions.instants(stream).values()
        found += [Passed(instant_us, "a query with SINCE still reads it") for instant_us in read]
        for host in Host:
            begun = self._positions.begun(host)
            for query, beginnings in self._plan().hosted(host).with_history:
                if stream in beginnings and query.visible_from > begun:
                    found.append(Passed(beginnings[stream], f"query {query.query} is about to read it"))
        return min(found, default=None)


def retention_json(retention: StreamRetention) -> dict[str, Any]:
    """Return the budget of a stream, what was removed, and what exceeds the budget, as the API shows it."""
    budget, dropped, blocked = retention.budget, retention.dropped, retention.blocked
    since_us = retention.kept_from_us
    return {
        "age_seconds": None if budget.age_us is None else budget.age_us / 1e6,
        "bytes": budget.bytes,
        "dropped_rows": dropped.rows,
        "kept_since": None if since_us is None else instant_text(since_us),
        "over": None if not blocked.bytes else {"rows": blocked.rows, "bytes": blocked.bytes, "reason": blocked.by},
    }

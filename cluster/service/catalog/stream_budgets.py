"""How much of each stream is kept: a budget of its own, or the default in the cluster's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.fjord.batch import instant_text
from cluster.physical.nodes import Host, PhysicalPlan
from cluster.plan.history import EVER_US
from cluster.service.catalog.stream_settings import StreamSettings
from cluster.service.registry.registry import Registry
from cluster.spark.positions import SparkPositions
from cluster.storage.budgets import Budget, Passed
from cluster.storage.commit_log import CommitLog
from cluster.storage.stream_retention import StreamRetention
from cluster.storage.stream_tables import watermark_at


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

"""What a cluster and its publisher's process write to each other: lines of JSON, through two pipes.

    cluster   -- Orders, News, News ... -->   publisher        at the end of the pipe the publisher ends
    cluster   <-- Report, Report ... --       publisher        each replaces the one before

A line replaces all before it, so that either side may leave lines out while the other does not read.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from cluster.errors import ClusterError
from cluster.service.publishing.published import EVERYTHING, LostResults, Share
from protocols.mqtt.messages import BrokerAddress

LONGEST_LINE = 64 * 1024**2
LONGEST_REPORT = 4_096
"""A shorter line is written to a pipe whole or not at all."""
LONGEST_TEXT = 500
LONGEST_NAMES = 1_000
"""Of the queries that a report names, together."""

Line = TypeVar("Line")


class Orders(msgspec.Struct, frozen=True):
    """How a publisher is to run.

    Parameters
    ----------
    folder
        The data folder.
    broker
        Where to publish.
    client_id
        Stable name of the publisher at the broker.
    silence_seconds
        As in :class:`protocols.mqtt.link.MqttLink`.
    log_level, log_json
        Of the event log; on the cluster's standard error.
    share
        What it publishes.
    """

    folder: str
    broker: BrokerAddress
    client_id: str
    silence_seconds: float
    log_level: str
    log_json: bool = False
    share: Share = EVERYTHING


class Note(msgspec.Struct, frozen=True):
    """What subscribers of a query have to know besides its rows.

    Parameters
    ----------
    sensors
        As in :func:`cluster.service.queries.lifetime_notes.lifetime_notes`.
    stale
        By name of a stale relation: when it was last known to equal its source, in seconds since 1970; None for never.
    """

    sensors: dict[str, Any] | None = None
    stale: dict[str, float | None] | None = None

    def extras(self, now: float) -> dict[str, Any]:
        """Return what messages contain at an instant.

        Examples
        --------
        >>> Note({"slower": 2}, {"roads": 1000.0, "lanes": None}).extras(1012.34567)
        {'sensors': {'slower': 2}, 'stale': {'roads': 12.346, 'lanes': 0.0}}
        """
        found: dict[str, Any] = {}
        if self.sensors is not None:
            found["sensors"] = self.sensors
        if self.stale:
            ages = {name: 0.0 if at is None else max(now - at, 0.0) for name, at in self.stale.items()}
            found["stale"] = {name: round(age, 3) for name, age in ages.items()}
        return found


class News(msgspec.Struct, frozen=True):
    """The newest state of a cluster.

    Parameters
    ----------
    newest
        The newest version of the results table that is on disk.
    notes
        By query, where there are any; None if they are as before.
    """

    newest: int
    notes: dict[str, Note] | None = None


class Report(msgspec.Struct, frozen=True):
    """The state of a publisher.

    Parameters
    ----------
    version
        Up to this version all results are published, those of other publishers apart, and this is on disk.
    rows
        Rows that it has published.
    lost
        Which results are lost.
    connected, trouble, connects, hangs
        As in :class:`protocols.mqtt.link.MqttLink`.
    failures
        How often something failed, by kind.
    failure
        The last failure, and why the publisher ends.
    front
        Up to this version all results are published but those of queries that are behind; None if that is not known.
    queries_behind
        How many queries are behind.
    behind
        Up to which version each of them is published; of so many as a line has room for, the last ones first.
    """

    version: int
    rows: int = 0
    lost: LostResults = LostResults()
    connected: bool = False
    trouble: str | None = None
    connects: int = 0
    hangs: int = 0
    failures: dict[str, int] = {}
    failure: str = ""
    front: int | None = None
    queries_behind: int = 0
    behind: dict[str, int] = {}

    @property
    def newest(self) -> int:
        """The version up to which results are published, those of queries that are behind apart."""
        return self.version if self.front is None else self.front


class ChannelError(ClusterError):
    """A line that a publisher or its cluster cannot have written."""


def to_line(written: msgspec.Struct) -> bytes:
    """Return a line."""
    return msgspec.json.encode(written) + b"\n"


def from_line(line: bytes, kind: type[Line]) -> Line:
    """Return what a line says.

    Raises
    ------
    ChannelError
        If it is not such a line.
    """
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChannelError(f"a line between the cluster and its publisher cannot be read: {error}") from error

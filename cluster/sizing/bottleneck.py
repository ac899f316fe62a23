"""Which stage limits a deployment: the first one behind which work piles up.

motes -> broker -> proxy -> its spool -> ingest -> stream table -> Spark -> results table -> publisher
"""

from __future__ import annotations

import msgspec

GROWTH = 0.1
"""Share of the work that may pile up: less is noise."""
LEAST_GROWTH_SECONDS = 1.0
"""Work that has waited for less than this is on its way."""
LEAST_GROWTH_COMMITS = 5
FULL_CORE = 0.9
"""A single-threaded process that uses more of a core than this has no more to give."""


class Backlog(msgspec.Struct, frozen=True):
    """What waits between the stages at one instant.

    Parameters
    ----------
    spooled_seconds
        How long the oldest batch in a proxy's spool has waited to be acknowledged.
    unread_seconds
        How long the oldest stored row has waited for its answer.
    unpublished_commits
        Commits of the results table that are not published.
    """

    spooled_seconds: float = 0.0
    unread_seconds: float = 0.0
    unpublished_commits: int = 0


class Flow(msgspec.Struct, frozen=True):
    """What went through the stages between two instants.

    Parameters
    ----------
    seconds
        The time between them.
    sampled_rows
        Samples that the motes had to send; None if queries let them leave out some.
    stored_rows
        Rows stored in streams.
    proxy_cores
        Cores in use by the proxy's busiest process.
    commits
        Commits of the results table that were published.
    """

    seconds: float
    sampled_rows: int | None
    stored_rows: int
    proxy_cores: float
    commits: int


def limiting_stage(flow: Flow, before: Backlog, after: Backlog) -> str | None:
    """Return the stage that cannot keep up; None if all can.

    Examples
    --------
    >>> flow = Flow(seconds=10.0, sampled_rows=None, stored_rows=40_000, proxy_cores=0.3, commits=50)
    >>> limiting_stage(flow, Backlog(unread_seconds=0.4), Backlog(unread_seconds=5.1))
    'Spark'
    """
    growth_seconds = max(LEAST_GROWTH_SECONDS, GROWTH * flow.seconds)
    if after.spooled_seconds - before.spooled_seconds > growth_seconds:
        return "ingest"
    if flow.sampled_rows is not None and flow.stored_rows < (1.0 - GROWTH) * flow.sampled_rows:
        return "proxy" if flow.proxy_cores > FULL_CORE else "motes or broker"
    if after.unread_seconds - before.unread_seconds > growth_seconds:
        return "Spark"
    if after.unpublished_commits - before.unpublished_commits > max(LEAST_GROWTH_COMMITS, GROWTH * flow.commits):
        return "publisher"
    return None

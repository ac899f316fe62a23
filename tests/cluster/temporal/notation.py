"""The notation of the digest's vectors: samples as "g:A@3" or "A@3", runs as "g:A[1,4)v{3}"."""

from __future__ import annotations

import re

from cluster.temporal.windows import Equal, Link, Window
from tests.cluster.temporal.runs import Coalesced
from tests.cluster.temporal.shared_extents import CoalescingQuery, SharedExtents, StreamSchema, coalescing_query

SCHEMA = StreamSchema(key=(), invariant=("group",), varying=("value",))
SAMPLE = re.compile(r"(?:(\w+):)?(\w+)@(\d+)")


def samples_in(text: str) -> list[tuple[int, str, str]]:
    """Return the stamp, group and value of each sample, in the order of arrival."""
    return [(int(stamp), group, value) for group, value, stamp in SAMPLE.findall(text)]


class Watched:
    """Two extents of one window, eager and lazy, that have to agree after every sample."""

    def __init__(self, window: Window, link: Link | None = None) -> None:
        self.query: CoalescingQuery = coalescing_query(SCHEMA, ["value"], ["group"], link or Equal())
        self.eager = SharedExtents(SCHEMA, window, [self.query], [self.query])
        self.lazy = SharedExtents(SCHEMA, window, [self.query], [])

    def take(self, samples: str) -> str:
        """Insert samples; return the runs afterwards."""
        for stamp, group, value in samples_in(samples):
            row = {"group": group, "value": int(value) if value.isdigit() else value}
            assert self.eager.insert(stamp, row) is self.lazy.insert(stamp, row)
            assert self.eager.answer(self.query) == self.lazy.answer(self.query)
        return self.runs()

    def runs(self) -> str:
        """Return the runs by group and start."""
        return " ".join(map(run_text, sorted(self.eager.answer(self.query), key=lambda run: (run.group, run.start))))

    def trace(self, samples: str) -> list[str]:
        """Return the runs after each sample."""
        return [self.take(each) for each in samples.split()]


def run_text(run: Coalesced) -> str:
    group = f"{run.group[0]}:" if run.group[0] else ""
    later = f"v{{{','.join(map(str, run.later))}}}" if run.later else ""
    return f"{group}{run.values[0]}[{run.start},{run.end}){later}"

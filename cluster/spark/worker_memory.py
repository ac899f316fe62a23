"""What a worker holds for long is kept out of Spark's way.

After every task a Python worker of Spark collects garbage, and looks at all it holds for that: libraries, plans, tables
of relations. On two cores that took half of the processors' time. Once set aside, what stays is looked at no more.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable
from functools import lru_cache


@lru_cache(maxsize=2)
def set_aside(built: Hashable) -> None:  # noqa: ARG001 - what the cache compares
    """Let collections of garbage pass over everything this process holds now.

    Parameters
    ----------
    built
        What the process has built to keep: nothing is done if that is what it was the last time.
    """
    gc.unfreeze()  # what was set aside before may be garbage by now
    gc.collect()
    gc.freeze()

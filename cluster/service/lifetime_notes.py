"""What subscribers are told when sensors sample less often than a query asked, so that their batteries last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocols.catalog import MoteEntry


def lifetime_note(entries: Iterable[MoteEntry], streams: Iterable[str]) -> dict[str, Any] | None:
    """Return the note for a query's results; None if its sensors do as it asked and last as long as they should.

    Parameters
    ----------
    entries
        Of the catalog.
    streams
        That the query reads.

    Returns
    -------
    dict or None
        ``slower``: how many times as long sample periods are, at most; ``too_short_lived``: how many sensors will not
        last as long as queries or their owners want, even so.
    """
    wanted = set(streams)
    mine = [entry for entry in entries if entry.stream in wanted]
    slower = max((entry.stretched for entry in mine), default=1)
    too_short_lived = sum(not entry.lifetime_kept for entry in mine)
    if slower == 1 and not too_short_lived:
        return None
    return {"slower": slower, "too_short_lived": too_short_lived}

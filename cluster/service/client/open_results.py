"""Open rows of a query with EMIT EARLY, made whole when their ends come, for programs that want each row once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OpenResults:
    """Completes result messages, as published or as `results?after=` returns them.

    >>> results = OpenResults()
    >>> results.read({"query": "q", "sequence": 1, "start": "2012-03-01T00:00:00Z", "open": True, "row": {"n": 3}})
    >>> results.read({"query": "q", "sequence": 2, "closes": 1, "end": "2012-03-01T00:00:07Z"})
    {'query': 'q', 'sequence': 1, 'start': '2012-03-01T00:00:00Z', 'end': '2012-03-01T00:00:07Z', 'row': {'n': 3}}
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Mapping[str, Any]] = {}

    @property
    def open(self) -> list[Mapping[str, Any]]:
        """The messages of rows that are open, oldest first."""
        return list(self._open.values())

    def read(self, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a row that has its end now, or an error; None for a row that is open.

        The end of a row that was opened before the first message that was read is returned as it is.

        Parameters
        ----------
        message
            The next message; each once, in the order of their numbers.
        """
        if message.get("open"):
            self._open[message["query"], message["sequence"]] = message
            return None
        opened = self._open.pop((message["query"], message.get("closes", 0)), None)
        if opened is None:
            return message
        row = {**opened, "end": message["end"]}
        head = ("query", "sequence", "start", "end")
        return {name: row[name] for name in (*head, *(each for each in row if each not in (*head, "open")))}

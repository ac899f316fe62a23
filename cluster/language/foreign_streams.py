"""What stands in FROM, or is a column, in other databases, and its equivalents in FjordSQL. For hints only."""

from __future__ import annotations

from cluster.language.words import HOPPING, RESET_SHAPE, SESSION_SHAPE, TUMBLING, WINDOW_SHAPES

NO_ARRAYS = "there are no arrays: SPLIT_PART(x, ',', 1) is a part of a text, and JSON_VALUE(x, '$[0]') of a document"
OF_PLACES = "write x -> 0 for a place in a document, or SPLIT_PART(x, ',', 1) for a part of a text"
_CORRELATED = (
    "a subquery in FROM cannot refer to others: join it, write (SELECT ...) as a value in SELECT, "
    "or choose with QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) <= 3"
)

FOREIGN_STREAMS: dict[str, str] = {
    **dict.fromkeys(("TABLE", "TUMBLE"), TUMBLING.format("FROM stream ")),
    "HOP": HOPPING.format("FROM stream "),
    "SESSION": f"a window of sessions is written FROM stream {SESSION_SHAPE}",
    "CUMULATE": f"a window that is reset is written FROM stream {RESET_SHAPE}",
    "WINDOW": f"a window is written FROM stream {WINDOW_SHAPES}",
    "LATERAL": _CORRELATED,
    "GENERATE_SERIES": "rows come from streams and relations: make a relation of them",
    "VALUES": "rows come from streams and relations: make a relation of them",
    **dict.fromkeys(("UNNEST", "EXPLODE", "JSON_TABLE", "REGEXP_SPLIT_TO_TABLE"), NO_ARRAYS),
}
"""By word in the place of a stream: what to write."""

FOREIGN_COLUMNS: dict[str, str] = {
    **dict.fromkeys(("WINDOW_START", "WINDOWSTART"), "write WINDOW_START(), with parentheses"),
    **dict.fromkeys(("WINDOW_END", "WINDOWEND"), "write WINDOW_END(), with parentheses"),
    "WINDOW_TIME": "write WINDOW_END(), the instant from which a row of the window is valid",
    **dict.fromkeys(("ROWTIME", "EVENT_TIMESTAMP"), "write STAMP(), the instant at which a tuple was sampled"),
    **dict.fromkeys(
        ("LOCALTIMESTAMP", "LOCALTIME", "SYSDATE", "PROCTIME", "SYSTIMESTAMP"),
        "a standing query has no current time; STAMP() > NOW() - INTERVAL '5' MINUTE says which tuples count",
    ),
}
"""By name: columns that other databases add to streams, and words that need no parentheses there."""


def stream_hint(name: str, inner: str) -> str | None:
    """Return what to write instead of a call in FROM; None if nothing is known of it.

    >>> stream_hint("table", "hop") == FOREIGN_STREAMS["HOP"]
    True

    Parameters
    ----------
    name
        What is called.
    inner
        The word behind the opening parenthesis.
    """
    if name.upper() == "TABLE":
        return FOREIGN_STREAMS.get(inner.upper(), FOREIGN_STREAMS["TABLE"])
    return FOREIGN_STREAMS.get(name.upper())

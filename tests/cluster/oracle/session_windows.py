"""What sessions are, in DuckDB: a walk over the stamps of each key, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.operators.window_shapes import Session


def session_closings(table: str, run: str, instant: str, keys: Sequence[str], session: Session) -> str:
    """Return SQL with a row for each run, key and stamp of a table: `closes` is when the session of its tuples closes.

    Parameters
    ----------
    table
        The tuples.
    run, instant, keys
        Its columns, as they are written in SQL.
    session
        The sessions.
    """
    by = ", ".join((run, *keys))
    same = " AND ".join(f"n.{each} IS NOT DISTINCT FROM s.{each}" for each in (run, *keys))
    begins = f"n.{instant} - s.{instant} > {session.gap_us} OR n.{instant} - s.first >= {session.longest_us}"
    return (
        f"WITH RECURSIVE numbered AS (SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {instant}) AS place "
        f"FROM (SELECT DISTINCT {by}, {instant} FROM {table})), "
        f"walked AS (SELECT *, {instant} AS first FROM numbered WHERE place = 1 UNION ALL "
        f"SELECT n.*, CASE WHEN {begins} THEN n.{instant} ELSE s.first END AS first "
        f"FROM walked s JOIN numbered n ON n.place = s.place + 1 AND {same}) "
        f"SELECT {by}, {instant}, least(max({instant}) OVER (PARTITION BY {by}, first) + {session.gap_us}, "
        f"first + {session.longest_us}) AS closes FROM walked"
    )

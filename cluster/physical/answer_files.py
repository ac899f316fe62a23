"""Which answers tasks may write into files of the results table themselves, and which the driver writes.

    without state    task    [ stamps 0 to 5 ][ stamps 5 to 9 ]     in order as they come: only numbers are missing
    with state       bucket  [ some keys of each window        ]    the driver puts each query's in order of their
                             [ other keys of each window       ]    starts, and finds the rows that others close

Buckets with many answers hand them to the driver in files, which it reads.

The plan says which may; whether a task does depends on how many answers it has
(docs/decisions/0023-tasks-write-many-answers.md).
"""

from __future__ import annotations

from cluster.physical.nodes import Fragment, Host

ANSWERS_RETURNED = 50_000
"""So many answers a task returns to the driver: one file of all tasks is quicker then, and leaves fewer small files."""
ANSWERS_OF_A_BUCKET = 5_000
"""So many answers a bucket returns to the driver by way of Java; more it hands over in a file
(docs/decisions/0077-buckets-hand-over-files.md)."""


def may_be_written_by_tasks(fragment: Fragment) -> bool:
    """Return whether the answers of a fragment may be written by the tasks that make them.

    Parameters
    ----------
    fragment
        A fragment of the physical plan; the tasks of a Spark query write nothing unless this is so of all that it runs.
    """
    return fragment.host is Host.STATELESS


def answers_words(fragment: Fragment) -> str:
    """Return in words which part of Spark writes the answers of a fragment, for EXPLAIN.

    Parameters
    ----------
    fragment
        A fragment of the physical plan; of a query that is only explained, one of its own.
    """
    if may_be_written_by_tasks(fragment):
        return f"answers: written by the driver; by a task itself when it has more than {ANSWERS_RETURNED:,} of them"
    return "answers: written by the driver"

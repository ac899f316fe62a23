"""Rows that are cut where one plan of a query hands over to another are put together again: the fuse of GenMig. Pure.

                            instant
    old plan    a |-----------|                    it would go on
    new plan                  |---------| b        it had begun before
    answered    a |---------------------| b        one row, if both halves have equal values

Both plans have the same snapshots, so that a row that is valid before and after the instant has a half in each. Buckets
mark these in their kinds. All are given out in the micro-batch from which on the new plan answers, and meet where the
answers of all buckets do; nothing has to be kept there (papers/pipes_migration.md section 3, decision 0062).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from cluster.fjord.kinds import CLOSES, CUT, OPEN, ROW, SINCE, UNTIL, MarkedAnswer
from cluster.rounded_rows import rounded

_COLUMNS = ["query", "start_us", "end_us", "kind", "row"]


def fused(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the answers of a micro-batch with the halves of rows put together, and without marks.

    Halves are those of one row if one of them has been cut; what both plans end and begin there stays apart. Of equal
    ones, those that began first are put together with those that end first.

    Parameters
    ----------
    rows
        Columns query, start_us, end_us, kind, row, of all buckets.
    """
    marked = pl.col("kind").str.contains(" ", literal=True)
    found = rows.filter(marked)
    if not found.height:
        return rows
    ends: dict[tuple[str, str], list[MarkedAnswer]] = defaultdict(list)
    begins: dict[tuple[str, str], list[MarkedAnswer]] = defaultdict(list)
    whole: list[MarkedAnswer] = []
    for each in map(MarkedAnswer._make, found.select(_COLUMNS).iter_rows()):
        if UNTIL in each.kind:
            ends[each.query, rounded(each.row)].append(each)
        elif each.base != CLOSES:
            begins[each.query, rounded(each.row)].append(each)
        else:
            whole.append(each.plain)
    for key in dict.fromkeys([*ends, *begins]):
        whole += _joined(ends[key], begins[key])
    schema = {name: rows.schema[name] for name in _COLUMNS}
    return pl.concat([rows.filter(~marked), pl.DataFrame(whole, schema=schema, orient="row").select(rows.columns)])


def _joined(ends: Iterable[MarkedAnswer], begins: Iterable[MarkedAnswer]) -> Iterator[MarkedAnswer]:
    """Yield rows of equal values that end at an instant, and that begin there: those that can be, as one."""
    before = sorted(ends, key=lambda each: (UNTIL + CUT not in each.kind, each.start_us))
    after = sorted(begins, key=lambda each: (SINCE + CUT not in each.kind, each.end_us))
    pairs = 0
    for first, second in zip(before, after, strict=False):
        if UNTIL + CUT not in first.kind and SINCE + CUT not in second.kind:
            break
        pairs += 1
        if second.base == ROW:
            yield first._replace(end_us=second.end_us).plain
        elif first.base == ROW:
            yield first._replace(end_us=second.end_us, kind=OPEN)
    for each in (*before[pairs:], *after[pairs:]):
        yield each.plain


def closed_at_once(answers: Sequence[tuple[str, int, int, str, str]]) -> list[tuple[str, int, int, str, str]]:
    """Return open rows and ends of open rows, with those made rows that are closed in the same micro-batch.

    Parameters
    ----------
    answers
        Query, start, end, kind, row; each end behind the row that it may close.
    """
    closing: dict[tuple[str, int, str], list[MarkedAnswer]] = defaultdict(list)
    found = [MarkedAnswer._make(each) for each in answers]
    opened = Counter((each.query, each.start_us, each.row) for each in found if each.base == OPEN)
    rest: list[MarkedAnswer] = []
    for each in found:
        key = each.query, each.start_us, each.row
        if each.base == CLOSES and len(closing[key]) < opened[key]:
            closing[key].append(each)
        else:
            rest.append(each)
    return [_closed(each, closing[each.query, each.start_us, each.row]) for each in rest]


def _closed(answer: MarkedAnswer, ends: list[MarkedAnswer]) -> MarkedAnswer:
    if answer.base != OPEN or not ends:
        return answer
    end = ends.pop(0)
    since, until = (
        mark + CUT * (mark + CUT in each.kind) if mark in each.kind else ""
        for mark, each in ((SINCE, answer), (UNTIL, end))
    )
    return answer._replace(end_us=end.end_us, kind=ROW + since + until)

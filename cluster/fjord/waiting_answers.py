"""Answers of plans that hand over to each other, until they can be given out in order and put together. Pure.

**Rows that are cut where one plan of a query hands over to another are put together again: the fuse of GenMig.**

                            instant
    old plan    a |-----------|                    it would go on
    new plan                  |---------| b        it had begun before
    answered    a |---------------------| b        one row, if both halves have equal values

Both plans have the same snapshots, so that a row that is valid before and after the instant has a half in each. Buckets
mark these in their kinds. All are given out in the micro-batch from which on the new plan answers, and meet where the
answers of all buckets do; nothing has to be kept there (papers/pipes_migration.md section 3, decision 0062).

    old plan    |------|    |--------------|          known only once it has ended
    new plan                       |---|              known before that: waits, so that starts stay in order
                              instant      opens

What the new plan answers waits until the old one has answered all that lies before the instant. Rows of the old plan
that end at the instant wait, too, as far as they have flowed since then: their other halves come from the new plan.

Which micro-batch they are given out in follows from the watermarks of streams alone, which are the same in each bucket.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from cluster.fjord.answer_kinds import CLOSES, CUT, OPEN, ROW, SINCE, UNTIL, MarkedAnswer, based
from cluster.fjord.batch import ALWAYS, END, NEVER, START
from cluster.fjord.operator import State
from cluster.fjord.operators.ordered_output import table_of
from cluster.physical.nodes import Fragment, Subscriber
from cluster.plan.epoch import name_of
from cluster.rounded_rows import rounded

_ANSWER = ["query", "start_us", "end_us", "kind", "row"]


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
    for each in map(MarkedAnswer._make, found.select(_ANSWER).iter_rows()):
        if UNTIL in each.kind:
            ends[each.query, rounded(each.row)].append(each)
        elif each.base != CLOSES:
            begins[each.query, rounded(each.row)].append(each)
        else:
            whole.append(each.plain)
    for key in dict.fromkeys([*ends, *begins]):
        whole += _joined(ends[key], begins[key])
    schema = {name: rows.schema[name] for name in _ANSWER}
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


_COLUMNS = pl.Schema({"query": pl.String, START: pl.Int64, END: pl.Int64, "kind": pl.String, "row": pl.String})
_SINCE, _SINCE_OPENS, _UNTIL, _UNTIL_OPENS = "fjord_since", "fjord_since_opens", "fjord_until", "fjord_until_opens"
_EARLY, _PLACE, _WAITS = "fjord_early", "fjord_place", "fjord_waits"
_SEAMS = pl.Schema(
    {"query": pl.String, **dict.fromkeys((_SINCE, _SINCE_OPENS, _UNTIL, _UNTIL_OPENS), pl.Int64), _EARLY: pl.Boolean}
)
_BEGINS = (pl.col(START) == pl.col(_SINCE)).fill_null(value=False)
_ENDS = (pl.col(END) == pl.col(_UNTIL)).fill_null(value=False)


def hands_over(subscriber: Subscriber) -> bool:
    """Return whether a subscriber's answers may have to wait for those of another plan of the query."""
    return subscriber.since is not None or (subscriber.until is not None and subscriber.until.cut)


class WaitingAnswers:
    """The answers of a fragment's subscribers that take over from other plans, or hand over to them.

    Parameters
    ----------
    fragment
        The fragment.
    """

    def __init__(self, fragment: Fragment) -> None:
        self.name = f"{fragment.identity} Handover"
        """The state entry of the answers that wait."""
        self.moved = False
        """Whether the last micro-batch has changed which answers wait."""
        self._streams = fragment.streams
        self._handing = {each.identity: each for each in fragment.subscribers if hands_over(each)}
        self._seams = pl.DataFrame([_seam(each) for each in self._handing.values()], schema=_SEAMS, orient="row")
        self._waiting = pl.DataFrame(schema=_COLUMNS)
        self._over_us = max(map(_over_us, self._handing.values()), default=ALWAYS)

    @property
    def exist(self) -> bool:
        """Whether there are such subscribers."""
        return bool(self._handing)

    def given(self, answers: Iterable[pl.DataFrame], passed_us: Mapping[str, int]) -> pl.DataFrame:
        """Return what is given out of some answers, and of those that wait.

        Parameters
        ----------
        answers
            Answers, with identities of queries; each query's in start order.
        passed_us
            By stream: its low watermark.

        Returns
        -------
        polars.DataFrame
            Answers with names of queries.
        """
        come = [each.select(_COLUMNS.names()) for each in answers if each.height]
        self.moved = False
        if not come and not self._waiting.height:
            return self._waiting
        had = self._waiting.height
        rows = pl.concat([self._waiting, *come])
        self._waiting = rows.clear()
        reached_us = min((passed_us.get(each, ALWAYS) for each in self._streams), default=ALWAYS)
        over = not had and reached_us >= self._over_us and (rows[START] > self._over_us).all()
        if self._handing and not over:
            rows, self._waiting = self._divided(rows, reached_us)
        self.moved = self._waiting.height > 0 or had > 0
        given = rows.sort(START, maintain_order=True)
        return given.with_columns(_names(given["query"]))

    def _divided(self, rows: pl.DataFrame, reached_us: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return what is given out, with marks on the halves of rows, and what waits."""
        placed = rows.join(self._seams, on="query", how="left", maintain_order="left")
        placed = _opened(placed, reached_us).with_row_index(_PLACE)
        base, ends, shut = pl.col("kind").str.split(" ").list.first(), _ENDS, pl.col(_UNTIL_OPENS) > reached_us
        # A row of this bucket or of another one may end at the instant, and waits: what begins later would overtake it.
        come = pl.col(_UNTIL) <= reached_us
        waits = (pl.col(_SINCE_OPENS) > reached_us) | (shut & (come | (ends & (base == CLOSES))))
        divided = placed.with_columns(waits.fill_null(value=False).alias(_WAITS))
        waiting = divided.filter(_WAITS).select(_COLUMNS.names())
        given = _closed_at_once(divided.filter(~pl.col(_WAITS)).select(_COLUMNS.names()))
        given = given.join(self._seams, on="query", how="left", maintain_order="left")
        unmarked = pl.col("kind").str.replace(UNTIL + CUT, "", literal=True)
        kind = pl.when(shut).then(unmarked).otherwise("kind")
        marks = (
            pl.when(touches & ~pl.col("kind").str.contains(mark, literal=True)).then(pl.lit(mark)).otherwise(pl.lit(""))
            for mark, touches in ((SINCE, _BEGINS), (UNTIL, ends & ~shut))
        )
        return given.with_columns(pl.concat_str(kind, *marks)).select(_COLUMNS.names()), waiting

    def save(self) -> State:
        """Return the answers that wait."""
        return {"waiting": self._waiting}

    def restore(self, state: State) -> None:
        """Restore those of the queries that there are."""
        rows = table_of(state, "waiting")
        self._waiting = rows.filter(pl.col("query").is_in(list(self._handing)))


def _opened(rows: pl.DataFrame, reached_us: int) -> pl.DataFrame:
    """Return answers with early ones that are cut before the streams have come to the instant as open, and their ends.

    What is early may stay open, so that nothing is cut. Other rows that flow so early are not held back, because all
    behind them would be, too: these are cut.
    """
    cut = pl.col("kind").str.starts_with(ROW) & pl.col("kind").str.ends_with(UNTIL + CUT)
    ahead = _ENDS & pl.col(_EARLY) & cut & (pl.col(_UNTIL) > reached_us)
    found = rows.filter(ahead)
    if not found.height:
        return rows
    ends = found.with_columns(based(CLOSES).alias("kind"))
    opened = pl.when(ahead).then(based(OPEN).str.strip_suffix(UNTIL + CUT)).otherwise("kind")
    return pl.concat([rows.with_columns(opened.alias("kind")), ends])


def _seam(subscriber: Subscriber) -> tuple[str, int | None, int | None, int | None, int | None, bool]:
    since, until = subscriber.since, subscriber.until
    return (
        subscriber.identity,
        since.at_us if since is not None and since.cut else None,
        None if since is None else since.opens_us,
        until.at_us if until is not None and until.cut else None,
        until.opens_us if until is not None and until.cut else None,
        subscriber.early,
    )


def _over_us(subscriber: Subscriber) -> int:
    """Return from when on a handover has nothing to do with rows that begin later: a migrated query keeps its last one.

    It is the instant at which answers are given out, as that of the handover is no later.
    """
    hands_on = subscriber.until is not None and subscriber.until.cut
    return NEVER if hands_on or subscriber.since is None else subscriber.since.opens_us


def _closed_at_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Return answers with open rows whose ends have waited with them as rows."""
    opens, closes = (rows["kind"].str.starts_with(kind).any() for kind in (OPEN, CLOSES))
    if not (opens and closes):
        return rows
    return pl.DataFrame(closed_at_once(rows.rows()), schema=_COLUMNS, orient="row")


def _names(identities: pl.Series) -> pl.Series:
    known = {each: name_of(each) for each in identities.unique().to_list()}
    return identities.replace_strict(known, return_dtype=pl.String)

"""Answers of plans that hand over to each other, until they can be given out in order and put together.

    old plan    |------|    |--------------|          known only once it has ended
    new plan                       |---|              known before that: waits, so that starts stay in order
                              instant      opens

What the new plan answers waits until the old one has answered all that lies before the instant. Rows of the old plan
that end at the instant wait, too, as far as they have flowed since then: their other halves come from the new plan
(:mod:`cluster.fjord.seams`).

Which micro-batch they are given out in follows from the watermarks of streams alone, which are the same in each bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from cluster.fjord.batch import ALWAYS, END, NEVER, START
from cluster.fjord.kinds import CLOSES, CUT, OPEN, ROW, SINCE, UNTIL, based
from cluster.fjord.operator import State
from cluster.fjord.operators.ordered_output import table_of
from cluster.fjord.seams import closed_at_once
from cluster.physical.nodes import Fragment, Subscriber
from cluster.plan.epoch import name_of

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

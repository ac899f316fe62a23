"""From the rows of a fragment to the answers of each query, and to all that a micro-batch gives out, in start order."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import msgspec
import polars as pl
from msgspec.structs import astuple

from cluster.fjord.answer_kinds import CUT, ERROR, ROW, SINCE, UNTIL, Lacking, Span, lacking, with_more
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.counters import Counters, summed
from cluster.fjord.running_kinds import operator_of
from cluster.fjord.waiting_answers import fused
from cluster.operators.columns import MARKS, QUERY_GROUP, SIZE, SLIDE, SUPERSEDED_UNTIL, VISIBLE_FROM
from cluster.physical.nodes import Fragment, Subscriber
from cluster.physical.rules.folding import Finish
from cluster.plan.names_read import called_by, scalars_in
from cluster.rounded_rows import SAME_DIGITS
from protocols.errors import FjordError

_NUMBER = "fjord_number"
_FIRST, _LAST = "fjord_first", "fjord_last"


@dataclass(frozen=True, slots=True)
class HostOutput:
    """What one bucket gives out in a micro-batch, or one part of it that needs no buckets.

    Parameters
    ----------
    answers
        Columns query, START, END, kind, row (JSON); in each piece, each query's in start order.
    counters
        What operators did since that was last reported; empty if it is not reported now.
    """

    answers: Sequence[pl.DataFrame]
    counters: Counters = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """What a micro-batch gives out.

    Parameters
    ----------
    rows
        Columns query, start_us, end_us, kind (``row``, ``error``, ``open``, ``closes`` or ``closes_earlier``), row
        (JSON); each query's in start order.
    counters
        What operators did, as far as it is reported now.
    """

    rows: pl.DataFrame
    counters: Counters


def collected(outputs: Iterable[HostOutput]) -> Answered:
    """Return what a micro-batch gives out, given that of all its buckets or parts in the order of their numbers."""
    found = list(outputs)
    rows = in_order(stored_columns(piece) for output in found for piece in output.answers)
    return Answered(rows, summed(output.counters for output in found))


def stored_columns(answers: pl.DataFrame) -> pl.DataFrame:
    """Return answers with the columns that are stored, before they are numbered; see :attr:`Answered.rows`."""
    return answers.select("query", pl.col(START).alias("start_us"), pl.col(END).alias("end_us"), "kind", "row")


def in_order(answers: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return answers in the order of their numbers: each query's together, in start order; equal errors once.

    Parameters
    ----------
    answers
        Columns as in :attr:`Answered.rows`; of equal starts, those of an earlier piece come first.
    """
    pieces = list(answers)
    if not pieces:
        return pl.DataFrame(
            schema={"query": pl.String, "start_us": pl.Int64, "end_us": pl.Int64, "kind": pl.String, "row": pl.String}
        )
    # Each piece is in order already; between them the sort decides, the same way at every replay.
    rows = fused(pl.concat(pieces))
    if (rows["kind"] == ERROR).any():
        rows = _errors_once(rows)
    if rows.height and (rows["query"] == rows.item(0, "query")).all():
        return rows.sort("start_us", maintain_order=True)
    number = rows["query"].cast(pl.Categorical).to_physical()  # far quicker to sort by than the names
    return rows.with_columns(number.alias(_NUMBER)).sort(_NUMBER, "start_us", maintain_order=True).drop(_NUMBER)


def _errors_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with each error once, as every part of a micro-batch may report the same: for all their instants."""
    same = ["query", "kind", "row"]
    is_error = pl.col("kind") == ERROR
    return (
        rows.filter(~is_error | pl.struct(same).is_first_distinct())
        .join(
            rows.filter(is_error)
            .group_by(same)
            .agg(pl.col("start_us").min().alias(_FIRST), pl.col("end_us").max().alias(_LAST)),
            on=same,
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.coalesce(_FIRST, "start_us").alias("start_us"), pl.coalesce(_LAST, "end_us").alias("end_us"))
        .drop(_FIRST, _LAST)
    )


_MARKS = [mark.name for mark in MARKS]
REPEAT_SECONDS = 60.0
"""A query that fails in every micro-batch reports it no more often."""

_BEGAN = "fjord_began"
_SINCE, _UNTIL = "fjord_handed_since", "fjord_handed_until"
_CUT_SINCE, _CUT_UNTIL = "fjord_cut_since", "fjord_cut_until"
_HANDED = pl.Schema({_SINCE: pl.Int64, _UNTIL: pl.Int64, _CUT_SINCE: pl.Boolean, _CUT_UNTIL: pl.Boolean})


@dataclass(frozen=True, slots=True)
class Failures:
    """Why operators failed.

    Parameters
    ----------
    reasons
        By fragment or query.
    lost_us
        The stamps of the rows that they were given and that are lost: nothing is if they only warn.
    """

    reasons: Mapping[str, str]
    lost_us: Mapping[str, Span]

    def of(self, owners: Sequence[str], subscriber: Subscriber) -> tuple[str | None, Lacking | None]:
        """Return the reason for the first of these owners that has one, and what a subscriber lacks by it."""
        for each in owners:
            if (reason := self.reasons.get(each)) is not None:
                lost = self.lost_us.get(each)
                return reason, None if lost is None else lacking(reason, lost, subscriber.reach_us, subscriber.delay_us)
        return None, None


class Answers:
    """The answers of a fragment's subscribers.

    Parameters
    ----------
    fragment
        The fragment.
    keyed
        True to add a column `key`: a text that is equal for rows that are equal but for the last digits of reals.
    identities
        True to have identities of queries in the column `query`, in place of their names.
    clock
        Seconds that only go forward, for how often an error is repeated.
    """

    def __init__(
        self,
        fragment: Fragment,
        *,
        keyed: bool = False,
        identities: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._fragment = fragment
        self._tops = _tops(fragment.subscribers, keyed=keyed, identities=identities)
        self._broken: dict[str, Lacking] = {}
        self._reported: dict[str, tuple[str, float]] = {}
        self.unnamed: dict[str, Lacking] = {}
        """By query: what lacks rows, and no error has named yet."""

    @property
    def queries(self) -> list[str]:
        """The identities of the subscribers."""
        return [each.identity for each in self._fragment.subscribers]

    def of(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yield answers: columns query, START, END, kind, row (JSON); each query's in the order of the rows."""
        for top in self._tops.tops:
            try:
                yield top.answers(rows)
            except Exception as error:  # noqa: BLE001 - one query's HAVING must not cost the others their answers
                reason = str(error) if isinstance(error, FjordError) else f"{type(error).__name__}: {error}"
                lost = Lacking(reason, *rows.select(pl.col(START).min(), pl.col(END).max()).row(0))
                for each in top.subscribers:
                    self._broken[each.identity] = with_more(self._broken.get(each.identity), lost)

    def errors(
        self, here: Failures, upstream: Failures, bucket: int, buckets: int, at_us: int
    ) -> Iterator[pl.DataFrame]:
        """Yield the errors of queries that failed; the same error of a query once a minute, while it lasts.

        An error holds for the answers that lack rows because of it, and for those since it was given last.

        Parameters
        ----------
        here
            Of this fragment's operators in this bucket.
        upstream
            Of those next to the scan, by fragment or query; every bucket gets it.
        bucket, buckets
            This bucket, and how many there are.
        at_us
            The instant to give where no rows were lost.
        """
        broken, self._broken = self._broken, {}
        before, self._reported = self._reported, {}
        if not (broken or here.reasons or upstream.reasons or self.unnamed):
            return
        for subscriber in self._fragment.subscribers:
            identity = subscriber.identity
            if subscriber.until is not None and at_us >= subscriber.until.at_us:
                self.unnamed.pop(identity, None)
                continue  # another plan of the query answers these instants
            owners = (self._fragment.identity,)
            reason, lost = here.of(owners, subscriber)
            if reason is None and identity in broken:
                reason, lost = broken[identity].reason, broken[identity]
            if reason is None and subscriber.home(buckets) == bucket:
                reason, lost = upstream.of((identity, *owners), subscriber)
            if lost is not None:
                self.unnamed[identity] = with_more(self.unnamed.get(identity), lost)
            last = before.get(identity)
            if reason is not None and last is not None and last[0] == reason and not self._is_due(last[1]):
                self._reported[identity] = last
                continue
            if reason is not None:
                self._reported[identity] = (reason, self._clock())
            named = self.unnamed.pop(identity, None)
            if named is not None:
                yield error_row(subscriber.query, named.reason, named.start_us, named.end_us)
            elif reason is not None:
                yield error_row(subscriber.query, reason, at_us)

    def _is_due(self, reported: float) -> bool:
        return self._clock() - reported >= REPEAT_SECONDS


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Tops:
    """The last steps of subscribers, which keep nothing."""

    subscribers: Sequence[Subscriber]
    """Kept, so that no others have their identity."""
    tops: Sequence[_Top]


_made: WeakValueDictionary[tuple[int, bool, bool], _Tops] = WeakValueDictionary()
"""Those in use, by the identity of their subscribers: buckets that one process runs have the same."""


def _tops(subscribers: Sequence[Subscriber], *, keyed: bool, identities: bool) -> _Tops:
    """Return the last steps of subscribers, made once for all buckets of a process."""
    key = (id(subscribers), keyed, identities)
    known = _made.get(key)
    if known is None:
        known = _Tops(subscribers, _new_tops(subscribers, keyed=keyed, identities=identities))
        _made[key] = known
    return known


def _new_tops(subscribers: Sequence[Subscriber], *, keyed: bool, identities: bool) -> Sequence[_Top]:
    finished: dict[tuple[Finish, Hashable], list[Subscriber]] = {}
    for subscriber in subscribers:
        finished.setdefault((subscriber.finish, _apart(subscriber)), []).append(subscriber)
    windows = {(each.group, each.window) for each in subscribers}
    return [
        # Where all see all rows, or none could be harmed by those of others, nothing is selected.
        _Top(
            finish,
            each,
            only=len(finished) == 1 or (apart is None and {(one.group, one.window) for one in each} == windows),
            keyed=keyed,
            identities=identities,
        )
        for (finish, apart), each in finished.items()
    ]


def _apart(subscriber: Subscriber) -> Hashable:
    """Return what keeps subscribers with the same last steps apart: the rows, if these call functions of users.

    A function that fails for the rows of one is no matter of another one's.
    """
    return (subscriber.group, subscriber.window) if called_by(scalars_in(subscriber.finish)) else None


class _Top:
    """Subscribers with the same work left to do."""

    def __init__(
        self, finish: Finish, subscribers: Sequence[Subscriber], *, only: bool, keyed: bool, identities: bool
    ) -> None:
        self.subscribers = subscribers
        self._keyed = keyed
        self._operators = [operator_of(each) for each in finish]
        self._on = [QUERY_GROUP.name, *([SIZE.name, SLIDE.name] if subscribers[0].window is not None else [])]
        windows = [() if each.window is None else astuple(each.window) for each in subscribers]
        names = [
            (each.group, *window, each.visible_from, each.identity if identities else each.query)
            for each, window in zip(subscribers, windows, strict=True)
        ]
        schema = {**dict.fromkeys([*self._on, _BEGAN], pl.Int64), "query": pl.String}
        self._names = pl.DataFrame(names, schema=schema, orient="row")
        self._handed = any(each.since is not None or each.until is not None for each in subscribers)
        if self._handed:
            handovers = [_handovers(each) for each in subscribers]
            self._last_since_us = max(since_us for since_us, *_ in handovers)
            self._first_until_us = min(until_us for _, until_us, *_ in handovers)
            self._names = self._names.hstack(pl.DataFrame(handovers, schema=_HANDED, orient="row"))
        self._own = None if only else self._names.select(self._on).unique()

    def answers(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the subscribers' answers."""
        if self._own is not None:
            rows = rows.join(self._own, on=self._on, how="semi", maintain_order="left")
        for operator in self._operators:
            rows = operator.transition(0, Batch(rows, ALWAYS)).rows
        payload = [name for name in rows.columns if name not in (START, END, *_MARKS)]
        text = pl.struct(payload).struct.json_encode() if payload else pl.lit("{}")
        marks = [name for name in _MARKS if name in rows.columns]
        texts = rows.select(*marks, START, END, pl.lit(ROW).alias("kind"), text.alias("row"))
        if self._keyed:
            reals = [name for name in payload if rows.schema[name].is_float()]
            rounded = rows.with_columns(pl.col(reals).round_sig_figs(SAME_DIGITS)) if reals else rows
            texts = texts.with_columns(
                rounded.select(text.alias("key"))["key"] if reals else pl.col("row").alias("key")
            )
        return self._named(texts).select("query", START, END, "kind", "row", *(["key"] if self._keyed else []))

    def _named(self, texts: pl.DataFrame) -> pl.DataFrame:
        """Add the names of the queries; one answer may be that of several."""
        named = texts.join(self._names, on=self._on, how="inner", maintain_order="left")
        began = pl.col(_BEGAN)
        seen = []
        if VISIBLE_FROM.name in texts.columns:
            seen.append(began <= pl.col(VISIBLE_FROM.name))
        if SUPERSEDED_UNTIL.name in texts.columns:
            seen.append(began > pl.col(SUPERSEDED_UNTIL.name))
        if seen:
            named = named.filter(*seen)
        return _own_part(named) if self._handed and not self._between_handovers(named) else named

    def _between_handovers(self, named: pl.DataFrame) -> bool:
        """Return whether no handover matters to any of the rows: a query that has migrated keeps its last one."""
        if not named.height:
            return True
        first, last = named.select(pl.col(START).min(), pl.col(END).max()).row(0)
        return bool(first >= self._last_since_us and last <= self._first_until_us)


def _handovers(subscriber: Subscriber) -> tuple[int, int, bool, bool]:
    """Return from when until when a subscriber answers, and whether its rows are cut at either instant."""
    since, until = subscriber.since, subscriber.until
    return (
        ALWAYS if since is None else since.at_us,
        NEVER if until is None else until.at_us,
        since is not None and since.cut,
        until is not None and until.cut,
    )


def _own_part(named: pl.DataFrame) -> pl.DataFrame:
    """Return the answers that belong to a query's plan while another one hands over to it, or it to another.

    Those that are cut are marked in their kinds.
    """
    start, end, since, until = (pl.col(name) for name in (START, END, _SINCE, _UNTIL))
    cut_since, cut_until = pl.col(_CUT_SINCE), pl.col(_CUT_UNTIL)
    own = named.filter((start < until) & pl.when(cut_since).then(end > since).otherwise(start >= since))
    begins, ends = cut_since & (start < since), cut_until & (end > until)
    marks = (
        pl.when(condition).then(pl.lit(mark + CUT)).otherwise(pl.lit(""))
        for condition, mark in ((begins, SINCE), (ends, UNTIL))
    )
    return own.with_columns(
        pl.when(begins).then(since).otherwise(start).alias(START),
        pl.when(ends).then(until).otherwise(end).alias(END),
        pl.concat_str("kind", *marks).alias("kind"),
    )


def error_row(query: str, reason: str, at_us: int, until_us: int | None = None) -> pl.DataFrame:
    """Return the row with the reason why answers of a query lack rows, or are missing, at an instant or until one."""
    values = {"query": [query], START: [at_us], END: [at_us + 1 if until_us is None else until_us], "kind": [ERROR]}
    reasons = {"row": [msgspec.json.encode(reason).decode()]}
    return pl.DataFrame(values | reasons, schema_overrides={START: pl.Int64, END: pl.Int64})

"""Early answers: what queries with EMIT EARLY are given of a fragment as soon as its beginning is certain.

After each micro-batch all snapshots before the frontier have been given out. What comes then is compared with that:

    before               |           after          a row that began before, and has ended:  it closes the open row
    ---------------------|--------            ->    one that goes on beyond the frontier:    nothing; it stays open
             ------------|--------------------|-    one that begins:                         a row, or an open row
                         |    ----------------|-    one that has ended before:               nothing; it was given out

So what is kept is the frontier and the rows that are open. An open row whose end is its last known instant is closed by
the absence of a row that goes on.

**What a fragment knows already although it may not flow yet: rows that have begun, and whose end is not known.**

    ROWS 3     a |--------------)        d has come: the end of a is known, and a flows.
               b      |------------...   b, c and d have begun, and stay valid at least up to the frontier, before
               c         |---------...   which all tuples are known. Rows flow when they are final; but what begins
               d              |----...   before the frontier, and up to there, is certain now.
                             frontier

The rows that flow, and the state of the operators, stay as they are. After each micro-batch a copy of every operator
that holds such rows back, and of those above, is given the operator's state, and what is ahead of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from msgspec.structs import replace

from cluster.fjord.answer_kinds import CLOSES, CUT, OPEN, ROW, UNTIL, based
from cluster.fjord.answers import Answers
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.dataflow import RunningOperator
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import State
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.running_kinds import operator_of_node
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Held
from cluster.plan.epoch import name_of

_BEGAN, _PLACE, _NUMBER, _GOES_ON = "fjord_began", "fjord_place", "fjord_number", "fjord_goes_on"
_RUN = "fjord_run"
_IDENTITY = "fjord_identity"

_OPEN_ROWS = pl.Schema({"query": pl.String, START: pl.Int64, "row": pl.String, "key": pl.String})
_GIVEN = ["query", START, END, "kind", "row"]


@dataclass(frozen=True, slots=True)
class Given:
    """What has been given out: all snapshots before the frontier, and these rows that do not end before it."""

    frontier_us: int
    open: pl.DataFrame


NOTHING_GIVEN = Given(ALWAYS, pl.DataFrame(schema=_OPEN_ROWS))


def given_out(
    given: Given, final: pl.DataFrame, ahead: Batch | None, *, cut: bool = False
) -> tuple[pl.DataFrame, Given]:
    """Return what is given out next, and what has been given out then.

    Parameters
    ----------
    given
        What has been given out.
    final
        The rows that have flowed: columns query, START, END, kind, row and `key`, a text that is equal for equal rows.
    ahead
        The rows that are known beyond those, cut at the watermark: up to there all are known. None if only `final`
        is new.
    cut
        Whether rows that go on are cut now and then: one that begins where an equal one ends is part of it.
    """
    before_us, frontier_us = given.frontier_us, given.frontier_us
    if ahead is not None and not final.height and _stays(given.open, ahead, before_us):
        return pl.DataFrame(schema=final.schema).select(_GIVEN), Given(ahead.watermark_us, given.open)
    rows = final.with_columns(pl.lit(value=False).alias(_GOES_ON))
    if ahead is not None:
        frontier_us = max(before_us, ahead.watermark_us)
        rows = pl.concat([rows, ahead.rows.with_columns((pl.col(END) >= ahead.watermark_us).alias(_GOES_ON))])
    if cut:
        rows = _put_together(rows)
    # Equal rows may stand in for each other, so that the order in which they have come does not matter.
    # A row that is cut at the frontier has been given out up to there, and is to be closed all the same.
    cut_here = (pl.col(END) == before_us) & pl.col("kind").str.ends_with(UNTIL + CUT)
    rows = rows.filter((pl.col(END) > before_us) | cut_here).sort("query", START, "row", END, maintain_order=True)
    open_, went_on, began = _continued(given.open, rows, before_us)
    closes = [open_.join(went_on.filter(~pl.col(_GOES_ON)), on=_PLACE, how="inner", maintain_order="left")]
    stays = open_.join(went_on.filter(pl.col(_GOES_ON)), on=_PLACE, how="semi", maintain_order="left")
    rest = open_.join(went_on, on=_PLACE, how="anti", maintain_order="left")
    if ahead is None:
        stays = pl.concat([stays, rest])
    else:
        ended = rest.with_columns(
            pl.lit(before_us, pl.Int64).alias(END), pl.lit(ROW).alias("kind"), pl.lit(value=False).alias(_GOES_ON)
        )
        closes.append(ended.select(closes[0].columns))
    kind = pl.when(_GOES_ON).then(based(OPEN)).otherwise("kind").alias("kind")
    answers = pl.concat(
        [*(each.with_columns(based(CLOSES).alias("kind")).select(_GIVEN) for each in closes),
         began.with_columns(kind).select(_GIVEN)]
    )  # fmt: skip
    opened = began.filter(_GOES_ON)
    still = pl.concat([stays.select(_OPEN_ROWS.names()), opened.select(_OPEN_ROWS.names())])
    return answers.sort("query", START, maintain_order=True), Given(frontier_us, still)


def _put_together(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with those made one that begin where an equal one ends; of rows that overlap, each stays."""
    of_one = ["query", "key", _NUMBER]
    numbered = rows.with_columns(pl.int_range(pl.len()).over("query", "key", START).alias(_NUMBER)).sort(*of_one, START)
    begins = (pl.col(START) != pl.col(END).shift()).fill_null(value=True).over(of_one)
    runs = numbered.with_columns(begins.cum_sum().over(of_one).alias(_RUN))
    last = (pl.col(name).last() for name in rows.columns if name not in ("query", "key", START))
    return runs.group_by(*of_one, _RUN, maintain_order=True).agg(pl.col(START).first(), *last).select(rows.columns)


def _stays(open_rows: pl.DataFrame, ahead: Batch, before_us: int) -> bool:
    """Return whether all that is known ahead is that the open rows go on: in most micro-batches of a slow stream."""
    rows = ahead.rows
    if rows.height != open_rows.height or ahead.watermark_us < before_us:
        return False
    goes_on = (pl.col(START) < before_us) & (pl.col(END) >= ahead.watermark_us)
    if not rows.select(goes_on.all()).item():
        return False
    counts = (each["query"].value_counts(name="rows").sort("query") for each in (rows, open_rows))
    return pl.DataFrame.equals(*counts)


def _continued(
    open_rows: pl.DataFrame, rows: pl.DataFrame, before_us: int
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return open rows with places, the rows that continue them by place, and those that begin.

    A row continues the open one that began with it, else any equal one: answers may be cut in another way than they
    were known ahead.
    """
    open_rows = open_rows.sort("query", START, "row").with_row_index(_PLACE)
    crossing = rows.filter(pl.col(START) < before_us)
    pairs = []
    left = open_rows
    for on in (["query", "key", START], ["query", "key"]):
        if not left.height or not crossing.height:
            break
        number = pl.int_range(pl.len()).over(on).alias(_NUMBER)
        mine, theirs = left.with_columns(number), crossing.with_columns(number)
        paired = theirs.join(
            mine.select(*on, _NUMBER, _PLACE), on=[*on, _NUMBER], how="left", maintain_order="left"
        ).drop(_NUMBER)  # fmt: skip
        pairs.append(paired.filter(pl.col(_PLACE).is_not_null()).select(_PLACE, END, "kind", _GOES_ON))
        crossing = paired.filter(pl.col(_PLACE).is_null()).drop(_PLACE)
        left = left.join(pairs[-1], on=_PLACE, how="anti", maintain_order="left")
    nothing = open_rows.clear().select(
        _PLACE, pl.lit(0, pl.Int64).alias(END), pl.lit(ROW).alias("kind"), pl.lit(value=False).alias(_GOES_ON)
    )
    # What is known up to here has been given out with another value: sums of reals may differ in their last digit.
    rest = crossing.filter(pl.col(END) > before_us).with_columns(pl.lit(before_us, pl.Int64).alias(START))
    return open_rows, pl.concat([nothing, *pairs]), pl.concat([rest, rows.filter(pl.col(START) >= before_us)])


def state_of(given: Given, began: Mapping[str, int]) -> State:
    """Return what has been given out, to be saved.

    Parameters
    ----------
    given
        What has been given out.
    began
        By identity of a query: the epoch with which it began. In the state are its name and this epoch.
    """
    epochs = pl.col("query").replace_strict(began, return_dtype=pl.Int64).alias(_BEGAN)
    names = pl.col("query").replace_strict({each: name_of(each) for each in began}, return_dtype=pl.String)
    return {"frontier_us": given.frontier_us, "open": given.open.with_columns(epochs, names)}


def given_of(state: State, began: Mapping[str, int]) -> Given:
    """Return what has been given out to the queries there are, as it was saved."""
    known = [(name_of(each), epoch, each) for each, epoch in began.items()]
    alive = pl.DataFrame(known, schema={"query": pl.String, _BEGAN: pl.Int64, _IDENTITY: pl.String}, orient="row")
    rows = table_of(state, "open").join(alive, on=["query", _BEGAN], how="inner", maintain_order="left")
    named = rows.with_columns(pl.col(_IDENTITY).alias("query")).select(_OPEN_ROWS.names())
    return Given(number_of(state, "frontier_us"), named)


def frontier_state_of(given: Given) -> State:
    """Return the frontier alone, to be saved while the same rows are open as when all was saved."""
    return {"frontier_us": given.frontier_us}


def with_frontier(given: Given, state: State) -> Given:
    """Return what has been given out, with a frontier that was saved alone; it may be older, and only goes forward."""
    return Given(max(given.frontier_us, number_of(state, "frontier_us")), given.open)


class LookAhead:
    """The operators of a fragment that are late, and their copies.

    Parameters
    ----------
    fragment
        The fragment.
    running
        Its operators behind the exchanges, by id of their node.
    crossing
        By exchange: no rows, with the columns that cross it.
    tables
        The tables of lookups.
    """

    def __init__(
        self,
        fragment: Fragment,
        running: Mapping[str, RunningOperator],
        crossing: Mapping[str, pl.DataFrame],
        tables: Tables | None,
    ) -> None:
        self._running = running
        self._crossing = crossing
        self._late = fragment.late_nodes
        self._top = fragment.sink.inputs[0]
        self._copies = {each.id: operator_of_node(each, fragment, tables) for each in self._late}

    def known(self, frontier_us: int) -> Batch | None:
        """Return the rows of the fragment that begin before its watermark and have not flowed yet, cut there.

        Rows that end at the watermark last at least until then. None if that is not known now: an operator fails, or
        cannot read a relation. Once the rows flow, the query has the error, or its answer.

        Parameters
        ----------
        frontier_us
            All tuples stamped before this instant have come.
        """
        found: dict[str, Batch] = {}
        try:
            states = {node.id: self._running[node.id].operator.save() for node in self._late}
            if not any(map(_holds, states.values())):
                return self._nothing(self._top, frontier_us)
            for node in self._late:
                batch = self._ahead(node, states[node.id], found, frontier_us)
                if batch is None:
                    return None
                found[node.id] = batch
        except Exception:  # noqa: BLE001 - whatever it is, it is reported once the rows flow
            return None
        return found[self._top]

    def _ahead(self, node: OperatorNode, state: State, found: Mapping[str, Batch], frontier_us: int) -> Batch | None:
        inputs = [found.get(each) or self._nothing(each, frontier_us) for each in node.inputs]
        known = [each for each in inputs if each is not None]
        if len(known) < len(inputs):
            return None
        # One input may be known further than the other.
        until_us = min(each.watermark_us for each in known)
        operator = self._copies[node.id]
        operator.restore(state)
        batch = operator.ahead(until_us, [_cut(each.rows, until_us) for each in known])
        if operator.warning is not None:
            return None
        return Batch(_cut(batch.rows, batch.watermark_us), batch.watermark_us)

    def _nothing(self, node: str, frontier_us: int) -> Batch | None:
        """Return the batch of a node that holds nothing back: all rows that begin before its watermark have flowed."""
        if node in self._crossing:
            return Batch(self._crossing[node], frontier_us)
        running = self._running[node]
        return None if running.empty is None else Batch(running.empty, min(frontier_us, running.emitted.watermark_us))


def _holds(state: State) -> bool:
    return any(isinstance(value, pl.DataFrame) and value.height > 0 for value in state.values())


def _cut(rows: pl.DataFrame, until_us: int) -> pl.DataFrame:
    """Return the rows that begin before an instant, with their ends no later."""
    if not rows.height:
        return rows
    begun = rows.filter(pl.col(START) < until_us)
    return begun.with_columns(pl.min_horizontal(END, pl.lit(until_us, pl.Int64)).alias(END))


_NO_ANSWERS = pl.DataFrame(
    schema={"query": pl.String, START: pl.Int64, END: pl.Int64, "kind": pl.String, "row": pl.String, "key": pl.String}
)


def early_part(fragment: Fragment) -> Fragment | None:
    """Return a fragment with only those subscribers that are given rows before they flow; None if there are none.

    Where every row flows once its beginning is certain, there is nothing to be given out before.
    """
    early = tuple(each for each in fragment.subscribers if each.early)
    return replace(fragment, subscribers=early) if early and fragment.late_nodes else None


class EarlyQueries:
    """What they are given, micro-batch by micro-batch, and what has been given out to them.

    Parameters
    ----------
    fragment
        The fragment, with these subscribers only: see :func:`early_part`.
    answers
        Their answers, with keys and identities.
    running
        Its operators behind the exchanges, by id of their node.
    crossing
        By exchange: no rows, with the columns that cross it.
    tables
        The tables of lookups.
    """

    def __init__(
        self,
        fragment: Fragment,
        answers: Answers,
        running: Mapping[str, RunningOperator],
        crossing: Mapping[str, pl.DataFrame],
        tables: Tables | None,
    ) -> None:
        self.name = f"{fragment.identity} Early"
        """The state entry of what has been given out."""
        self.frontier_name = f"{fragment.identity} Frontier"
        """The state entry of a frontier that has moved since then: with it, open rows are not written again."""
        self.answers = answers
        self._rows_moved = self._frontier_moved = False
        self._fragment = fragment
        self._look_ahead = LookAhead(fragment, running, crossing, tables)
        self._began = {each.identity: each.visible_from for each in fragment.subscribers}
        self._cut = any(isinstance(each.operation, Held) for each in fragment.nodes)
        self._given: Given = NOTHING_GIVEN

    def answer(self, final: list[pl.DataFrame], watermarks_us: Mapping[str, int], *, failed: bool) -> pl.DataFrame:
        """Return what is given out after a micro-batch: rows, open rows, and ends of open rows, by identities.

        Parameters
        ----------
        final
            The fragment's rows that have flowed.
        watermarks_us
            By exchange: no later row starts before this instant.
        failed
            True if operators of the fragment have failed: what they know is not certain.
        """
        found = self._own(final)
        ahead = None if failed else self._ahead(watermarks_us)
        before = self._given
        answers, self._given = given_out(before, found, ahead, cut=self._cut)
        self._rows_moved = bool(answers["kind"].str.contains(f"^({OPEN}|{CLOSES})").any())
        # A frontier that has moved over nothing need not be saved: from the old one on, there is nothing new either.
        self._frontier_moved = (
            answers.height > 0
            or found.height > 0
            or (self._given.open.height > 0 and self._given.frontier_us != before.frontier_us)
        )
        return answers

    def save(self) -> State:
        """Return what has been given out."""
        return state_of(self._given, self._began)

    def changes(self, *, everything: bool) -> dict[str, State]:
        """Return the state entries that the last micro-batch has changed; all of what they hold with `everything`."""
        if everything or self._rows_moved:
            return {self.name: self.save()}
        return {self.frontier_name: frontier_state_of(self._given)} if self._frontier_moved else {}

    def restore(self, state: State | None, frontier: State | None = None) -> None:
        """Restore what was given out, for the queries there are now; None for an entry that was never written."""
        given = NOTHING_GIVEN if state is None else given_of(state, self._began)
        self._given = given if frontier is None else with_frontier(given, frontier)

    def _ahead(self, watermarks_us: Mapping[str, int]) -> Batch | None:
        reached = [watermarks_us.get(each.id, ALWAYS) for each in self._fragment.exchanges]
        frontier_us = min(reached)
        if frontier_us <= max(self._given.frontier_us, ALWAYS):
            return None
        if frontier_us >= NEVER:
            return Batch(_NO_ANSWERS, NEVER)  # the streams have ended, and everything has flowed
        known = self._look_ahead.known(frontier_us)
        return None if known is None else Batch(self._own([known.rows]), known.watermark_us)

    def _own(self, rows: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat([_NO_ANSWERS, *(each for piece in rows if piece.height for each in self.answers.of(piece))])

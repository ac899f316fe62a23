"""The operators of one fragment behind its exchanges, in one bucket: fed, run, saved and restored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl
from msgspec.structs import replace

from cluster.fjord.answer_kinds import Lacking, Span, Unnamed, united
from cluster.fjord.answers import Answers, Failures
from cluster.fjord.batch import START, Batch
from cluster.fjord.counters import Counters, counters_of, since
from cluster.fjord.dataflow import Dataflow, PushQueue, RunningOperator
from cluster.fjord.early_answers import EarlyQueries, early_part
from cluster.fjord.exchange import MicroBatchControl
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import State
from cluster.fjord.running_kinds import add_behind, empty_crossing
from cluster.fjord.saved_state import Store, pack_state, unpack_state, without_dropped_groups
from cluster.fjord.waiting_answers import WaitingAnswers, hands_over
from cluster.physical.nodes import Fragment
from protocols.text.quantities import format_byte_size


def too_much_state(size: int, most: int) -> str:
    """Return why a fragment is stopped whose state is too large."""
    return (
        f"it keeps {format_byte_size(size)} in one operator and bucket, and the limit is {format_byte_size(most)} "
        "(make its windows shorter, or keep fewer and shorter values)"
    )


class HostedFragment:
    """A fragment in a bucket. Between micro-batches all that it keeps is in its operators: its queues are empty.

    Parameters
    ----------
    fragment
        The fragment.
    tables
        The tables of lookups.
    clock
        Seconds that only go forward, for how often errors are repeated.

    Attributes
    ----------
    version
        The version of its values in the store at which its operators are; None while they have none there.
    unwritten
        Whether a new plan is to write it though no rows came: what the store holds is that of the plan before.
    stopped
        Why it is not computed in this micro-batch; None if it is.
    since
        The epoch of its newest query.
    """

    def __init__(self, fragment: Fragment, tables: Tables, clock: Callable[[], float]) -> None:
        self.fragment = fragment
        self.version: bytes | None = None
        self.unwritten = True
        self.stopped: str | None = None
        self.since = max(fragment.newest.values(), default=0)
        self._arrived_us: Span | None = None
        self._tables = tables
        early = early_part(fragment)
        self._own_early = None if early is None else (early, Answers(early, keyed=True, identities=True, clock=clock))
        others = tuple(each for each in fragment.subscribers if early is None or not each.early)
        handing_over = tuple(each for each in others if hands_over(each))
        others = tuple(each for each in others if not hands_over(each))
        # The answers of the subscribers that are given rows as they flow.
        whole = len(others) == len(fragment.subscribers)  # as it is, it is known by what was made for another bucket
        given = fragment if whole else replace(fragment, subscribers=others)
        self._answers = Answers(given, clock=clock) if others else None
        part = replace(fragment, subscribers=handing_over)
        self._handing_over = Answers(part, identities=True, clock=clock) if handing_over else None
        self._empty = {exchange.id: empty_crossing(fragment, exchange) for exchange in fragment.exchanges}
        self._begin()

    def _begin(self) -> None:
        """Make its operators, in the state in which they begin."""
        self._used = False
        self._dataflow = Dataflow()
        self._arrivals = {name: PushQueue(capacity=2) for name in self._empty}
        last = add_behind(self._dataflow, self.fragment, self._arrivals, self._tables)
        self._outlet: PushQueue = self._dataflow.outlet(last)
        self._counted: Counters = {}
        self._saved = {placed.name: _moved(placed) for placed in self._dataflow.operators}
        self._begun: set[str] = set()
        self._early = None
        if self._own_early is not None:
            running = {placed.name: placed for placed in self._dataflow.operators}
            self._early = EarlyQueries(*self._own_early, running, self._empty, self._tables)
        self._waiting = WaitingAnswers(self.fragment)

    @property
    def failed(self) -> bool:
        """Whether an operator has failed; they may stand anywhere then, and have to be made again."""
        return self.stopped is not None or bool(self._dataflow.failures)

    @property
    def names(self) -> frozenset[str]:
        """The names of its values."""
        early = () if self._early is None else (self._early.name, self._early.frontier_name)
        return frozenset({*self._saved, *early, *([self._waiting.name] if self._waiting.exist else [])})

    def load(self, store: Store | None, version: bytes | None) -> None:
        """Make its operators again, in the state that a store holds as a version; None for that they begin with."""
        if self._used:
            self._begin()
        self.stopped = None
        if store is not None:
            self._used = True
            for placed in self._dataflow.operators:
                saved = store.get(placed.name)
                if saved is not None:
                    self._restore(placed, unpack_state(saved))
            if self._early is not None:
                entries = (store.get(name) for name in (self._early.name, self._early.frontier_name))
                self._early.restore(*(None if saved is None else unpack_state(saved) for saved in entries))
            waiting = store.get(self._waiting.name) if self._waiting.exist else None
            if waiting is not None:
                self._waiting.restore(unpack_state(waiting))
        self.version = version

    def continue_from(self, before: HostedFragment) -> None:
        """Restore the state of the same fragment in an earlier plan."""
        self._used = True
        states = {placed.name: placed.operator.save() for placed in before._dataflow.operators}
        for placed in self._dataflow.operators:
            if states.get(placed.name):
                self._restore(placed, states[placed.name])
        if self._early is not None and before._early is not None:
            self._early.restore(before._early.save())
        self._waiting.restore(before._waiting.save())
        self.version = before.version

    def _restore(self, placed: RunningOperator, state: State) -> None:
        placed.operator.restore(without_dropped_groups(state, self.fragment.groups))

    def run(self, control: MicroBatchControl, arrived: Mapping[str, Sequence[pl.DataFrame]]) -> list[pl.DataFrame]:
        """Run its operators over what has arrived at its exchanges; return answers."""
        here = [piece for name in self._arrivals for piece in arrived.get(name, ()) if piece.height]
        self._arrived_us = united((_lowest(each), int(each.item(-1, START))) for each in here)
        if self.stopped is not None:
            return []
        self._used = True
        if control.begun_us:
            self._begun |= {each.name for each in self._dataflow.operators if each.operator.begin(control.begun_us)}
        for name, queue in self._arrivals.items():
            pieces = arrived.get(name)
            watermark_us = control.watermarks_us.get(name)
            if watermark_us is None and not pieces:
                continue
            rows = pl.concat(pieces).sort(START, maintain_order=True) if pieces else self._empty[name]
            queue.put(Batch(rows, watermark_us if watermark_us is not None else _lowest(rows)))
        self._dataflow.run()
        return list(self._answered(control))

    def _answered(self, control: MicroBatchControl) -> Iterator[pl.DataFrame]:
        flowed: list[pl.DataFrame] = []
        early: list[pl.DataFrame] = []
        while (batch := self._outlet.get()) is not None:
            if batch.rows.height:
                flowed.append(batch.rows)
        if self._answers is not None:
            for rows in flowed:
                yield from self._answers.of(rows)
        if self._early is not None:
            failed = self.failed or self.fragment.identity in control.failures
            early.append(self._early.answer(flowed, control.watermarks_us, failed=failed))
        if self._handing_over is not None:
            early += [answers for rows in flowed for answers in self._handing_over.of(rows)]
        given = self._waiting.given(early, control.passed_us)
        if given.height:
            yield given

    def errors(self, control: MicroBatchControl, bucket: int, buckets: int) -> Iterator[pl.DataFrame]:
        """Yield the errors of its queries."""
        errors = [*self._dataflow.warnings.values(), *self._dataflow.failures.values()]
        reasons = {error.owner: str(error) for error in errors}
        if self.stopped is not None:
            reasons[self.fragment.identity] = self.stopped
        lost = self._arrived_us if self.failed else None
        here = Failures(reasons, {} if lost is None else {self.fragment.identity: lost})
        upstream = Failures(control.failures, control.lost_us)
        now_us = max(control.watermarks_us.values(), default=control.reached_us)
        for answers in self._all_answers:
            yield from answers.errors(here, upstream, bucket, buckets, now_us)

    @property
    def unnamed(self) -> dict[str, Lacking]:
        """By query: what lacks rows, and no error has named yet."""
        return {query: each for answers in self._all_answers for query, each in answers.unnamed.items()}

    @unnamed.setter
    def unnamed(self, unnamed: Unnamed) -> None:
        for answers in self._all_answers:
            # As a rule there is nothing, and thousands of queries.
            own = answers.queries if unnamed else ()
            answers.unnamed = {query: unnamed[query] for query in own if query in unnamed}

    @property
    def _all_answers(self) -> list[Answers]:
        early = None if self._early is None else self._early.answers
        return [each for each in (self._answers, self._handing_over, early) if each is not None]

    def save(self, store: Store, version: bytes, *, new_plan: bool, most_bytes: int = 0) -> None:
        """Write to a store, as a version, what has changed: with the rows that came, or with a new plan.

        If a value is larger than `most_bytes`, nothing is written, and the fragment is stopped; 0 for no limit.
        """
        everything = new_plan and self.unwritten
        values: dict[str, bytes] = {}
        for placed in self._dataflow.operators:
            before, now = self._saved[placed.name], _moved(placed)
            if everything or now != before or placed.name in self._begun:
                self._saved[placed.name] = now
                began = time.process_time()
                state = placed.operator.save()
                if state:
                    values[placed.name] = pack_state(state)
                placed.counters.seconds += time.process_time() - began
        changes = {} if self._early is None else self._early.changes(everything=everything)
        values |= {name: pack_state(state) for name, state in changes.items()}
        if self._waiting.exist and (everything or self._waiting.moved):
            values[self._waiting.name] = pack_state(self._waiting.save())
        largest = max(map(len, values.values()), default=0)
        if 0 < most_bytes < largest:
            self.stopped = too_much_state(largest, most_bytes)
            return
        self.unwritten = False
        self._begun.clear()
        for name, value in values.items():
            store.put(name, value)
            self.version = version

    def take_counters(self) -> Counters:
        """Return what its operators did since this was last asked for."""
        before, self._counted = self._counted, counters_of(self._dataflow.operators)
        return since(self._counted, before)


def _moved(placed: RunningOperator) -> tuple[int, int]:
    return placed.counters.rows_in, placed.counters.rows_out


def _lowest(rows: pl.DataFrame) -> int:
    return int(rows.item(0, START))

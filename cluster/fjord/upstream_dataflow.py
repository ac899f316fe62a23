"""The operators next to the scans: each part of a stream is scanned once, for all queries, and looked up once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import polars as pl

from cluster.fjord.answer_kinds import Span, united
from cluster.fjord.answers import Answers, Failures, HostOutput
from cluster.fjord.at_work import NOW
from cluster.fjord.batch import START, Batch
from cluster.fjord.counters import CounterReports, Counters, Totals, counters_of, scan_owner
from cluster.fjord.dataflow import Dataflow, PullQueue, PushQueue, RunningOperator
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operators.device_aggregates import DeviceAggregates, device_aggregate_columns
from cluster.fjord.operators.filtering import GroupedFilter
from cluster.fjord.running_kinds import operator_of, subscribed_operator
from cluster.fjord.stream_scan import StreamScan, wanted_rows
from cluster.operators import TableLookup
from cluster.operators.source import History
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Exchange, Lookup, Sample, Scan, ScanAggregates, Sink
from protocols.wire.programs import Measure

Scans = Callable[[str, History | None], StreamScan]
"""Returns the scan of a stream in one part of a micro-batch, given the history that is read first, if any: during
backfill, the history is scanned."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """The output of a pipeline, an exchange or a sink; without rows and watermark if there was none."""

    fragment: Fragment
    end: OperatorNode
    rows: pl.DataFrame | None
    watermark_us: int | None


class UpstreamDataflow:
    """The operators next to the scans in one part of a micro-batch.

    Parameters
    ----------
    fragments
        The fragments of the plan.
    scans
        The scans of the streams in this part of the micro-batch.
    tables
        The tables of lookups; None if there are none.
    stopped
        By fragment, or by owner of operators that several share: why it is not to be computed.

    Attributes
    ----------
    failures
        By fragment or query: why its operators failed, or their warnings.
    read_us
        By fragment: the first and last stamp of the rows that were read for it, if any were.
    lost_us
        By fragment or query that has failed: the same.
    """

    def __init__(
        self,
        fragments: Sequence[Fragment],
        scans: Scans,
        tables: Tables | None,
        stopped: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._dataflow = Dataflow()
        building = _Building(self._dataflow, scans, tables)
        self._outlets = building.outlets_of(fragments)
        self._scanned_us = building.scanned_us
        for owner, reason in stopped.items():
            self._dataflow.stop(owner, reason)
        self.failures: dict[str, str] = {}
        self.read_us: dict[str, Span] = {}
        self.lost_us: dict[str, Span] = {}

    @property
    def counters(self) -> Counters:
        """The counters of the operators."""
        return counters_of(self._dataflow.operators)

    def run(self) -> list[Emitted]:
        """Run the dataflow; a fragment that fails emits nothing."""
        NOW.shared, NOW.since = self._shared(), 0
        self._dataflow.run()
        failures = {owner: str(error) for owner, error in self._dataflow.failures.items()}
        warnings = {owner: str(error) for owner, error in self._dataflow.warnings.items()}
        found = []
        for outlet in self._outlets:
            owner = outlet.fragment.identity
            read = united([self.read_us.get(owner), *map(self._scanned_us.get, outlet.behind)])
            if read is not None:
                self.read_us[owner] = read
            failures.update((owner, failures[each]) for each in outlet.behind if each in self._dataflow.failures)
            warnings.update((owner, warnings[each]) for each in outlet.behind if each in warnings)
            if owner in failures:
                continue
            NOW.begin(owner)
            batches = []
            while (batch := outlet.queue.get()) is not None:
                batches.append(batch)
            for subscriber in outlet.fragment.subscribers:
                if subscriber.group in outlet.grouped.failures:
                    failures[subscriber.identity] = outlet.grouped.failures[subscriber.group]
                    if read is not None:
                        self.lost_us[subscriber.identity] = read
            rows = pl.concat([batch.rows for batch in batches]) if batches else None
            found.append(Emitted(outlet.fragment, outlet.end, rows, batches[-1].watermark_us if batches else None))
        self.failures = warnings | failures
        self.lost_us |= {owner: read for owner, read in self.read_us.items() if owner in failures}
        return found

    def _shared(self) -> dict[str, tuple[str, ...]]:
        """Return, by owner of operators that fragments share, which fragments do."""
        found: dict[str, dict[str, None]] = {}
        for outlet in self._outlets:
            for owner in outlet.behind:
                found.setdefault(owner, {})[outlet.fragment.identity] = None
        return {owner: tuple(fragments) for owner, fragments in found.items()}


@dataclass(frozen=True, slots=True)
class _Outlet:
    """The output of one pipeline of one fragment; `behind` are the owners of the operators it shares."""

    fragment: Fragment
    end: OperatorNode
    queue: PushQueue
    grouped: GroupedFilter
    behind: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shared:
    """A scan, or lookups above one: once for all pipelines that read the same.

    Parameters
    ----------
    last
        Its last operator.
    suffix
        Suffix that distinguishes its names from those of the live scan; empty for that.
    owners
        Owners of its operators.
    """

    last: RunningOperator
    suffix: str
    owners: tuple[str, ...]


class _Building:
    """Instantiates the operators next to the scans; a part common to several fragments is instantiated once."""

    def __init__(self, dataflow: Dataflow, scans: Scans, tables: Tables | None) -> None:
        self._dataflow = dataflow
        self._scans = scans
        self._tables = tables
        self.scanned_us: dict[str, Span] = {}
        """By owner of scans, once they have run: the first and last stamp of their rows."""
        self._scanned: dict[tuple[str, str, str], _Shared] = {}
        self._looked_up: dict[tuple[int, Lookup], _Shared] = {}

    def outlets_of(self, fragments: Sequence[Fragment]) -> list[_Outlet]:
        """Build it all."""
        self._scan([(fragment, node) for fragment in fragments for node in fragment.next_to_scan])
        return [outlet for fragment in fragments for outlet in self._outlets_of(fragment)]

    def _scan(self, nodes: Iterable[tuple[Fragment, OperatorNode]]) -> None:
        """Add the scans: a part of a stream is read with the columns, and of the rows, that any fragment uses."""
        samples: dict[tuple[str, str, str], list[tuple[Fragment, OperatorNode]]] = {}
        aggregates: dict[tuple[str, str, str], list[ScanAggregates]] = {}
        periodic: set[str] = set()
        for fragment, node in nodes:
            each = node.operation
            if isinstance(each, Sample) and each.period_us is not None:
                periodic.add(fragment.identity)
            elif isinstance(each, Scan):
                samples.setdefault(self._key(each), []).append((fragment, node))
            elif isinstance(each, ScanAggregates):
                aggregates.setdefault(self._key(each), []).append(each)
        for key, scanning in sorted(samples.items()):
            reading = [node.operation for _, node in scanning if isinstance(node.operation, Scan)]
            columns = {column.name: column for each in reading for column in each.columns}
            scan = self._scans(reading[0].stream, reading[0].history)
            events = reading[0].events
            neighbours = any(fragment.identity in periodic for fragment, _ in scanning)
            produce = (
                partial(scan.samples, wanted=wanted_rows(scanning), neighbours=neighbours)
                if events is None
                else partial(scan.events, events)
            )
            words = "" if events is None else f" events {events}"
            self._add_scan(key, reading[0], f"{words}{scan.suffix}", partial(produce, tuple(columns.values())))
        for key, sources in sorted(aggregates.items()):
            columns = {column.name: column for each in sources for column in each.columns}
            measures: dict[str, tuple[Measure, ...]] = {}
            for name, wanted in (measure for each in sources for measure in each.measures):
                measures[name] = tuple(dict.fromkeys((*measures.get(name, ()), *wanted)))
            scan = self._scans(sources[0].stream, sources[0].history)
            produce_aggregates = partial(scan.aggregates, tuple(columns.values()), device_aggregate_columns(measures))
            self._add_scan(key, sources[0], f" aggregates{scan.suffix}", produce_aggregates)

    def _key(self, scan: Scan | ScanAggregates) -> tuple[str, str, str]:
        """Return a key that is equal for all pipelines that read the same part of a stream."""
        what = "aggregates" if isinstance(scan, ScanAggregates) else f"events {scan.events or ''}"
        return scan.stream, what, self._scans(scan.stream, scan.history).suffix

    def _add_scan(
        self, key: tuple[str, str, str], scan: Scan | ScanAggregates, words: str, produce: Callable[[], Batch]
    ) -> None:
        owner = scan_owner(scan.stream)
        queue = PullQueue(_once(partial(self._noting, owner, produce)))
        placed = self._dataflow.add(f"scan of {scan.stream}{words}", operator_of(scan), [queue], owner=owner)
        self._scanned[key] = _Shared(placed, key[2], (owner,))

    def _noting(self, owner: str, produce: Callable[[], Batch]) -> Batch:
        batch = produce()
        if batch.rows.height:
            span = batch.rows.item(0, START), batch.rows.item(-1, START)
            self.scanned_us[owner] = united([self.scanned_us.get(owner), span]) or span
        return batch

    def _outlets_of(self, fragment: Fragment) -> Iterator[_Outlet]:
        shared: dict[str, _Shared] = {}
        placed: dict[str, RunningOperator] = {}
        grouped: dict[str, GroupedFilter] = {}
        for node in fragment.next_to_scan:
            operation = node.operation
            if isinstance(operation, Exchange | Sink):
                for each in node.inputs:
                    queue = self._dataflow.outlet(placed[each])
                    yield _Outlet(fragment, node, queue, grouped[each], shared[each].owners)
            elif isinstance(operation, Scan | ScanAggregates):
                shared[node.id] = self._scanned[self._key(operation)]
                placed[node.id] = shared[node.id].last
            else:
                (below,) = node.inputs
                shared[node.id] = shared[below]
                if isinstance(operation, Lookup):
                    shared[node.id] = self._look_up(operation, shared[below])
                    placed[node.id] = shared[node.id].last
                    continue
                operator = subscribed_operator(operation, fragment, self._tables)
                if below in grouped:
                    grouped[node.id] = grouped[below]
                if isinstance(operator, GroupedFilter):
                    grouped[node.id] = operator
                elif isinstance(operator, DeviceAggregates):
                    grouped[node.id] = operator.grouped
                placed[node.id] = self._dataflow.add(node.id, operator, [placed[below]], owner=fragment.identity)

    def _look_up(self, lookup: Lookup, below: _Shared) -> _Shared:
        """Add a lookup, unless an equal lookup of the same tuples exists."""
        key = (id(below.last), lookup)
        if key not in self._looked_up:
            (stream,) = lookup.streams
            owner = lookup_name(lookup.table, len(self._looked_up) + 1, f"{stream}{below.suffix}")
            placed = self._dataflow.add(owner, operator_of(lookup, self._tables), [below.last], owner=owner)
            self._looked_up[key] = _Shared(placed, below.suffix, (*below.owners, owner))
        return self._looked_up[key]


def lookup_name(lookup: TableLookup, number: int, stream: str) -> str:
    """Return the name of a lookup, given how many there are up to it, and the stream whose tuples it takes."""
    names = ", ".join(dict.fromkeys(each.name for each in lookup.table.relations))
    return f"lookup {number} of {stream} in {names}"


def _once(produce: Callable[[], Batch]) -> Callable[[], Batch | None]:
    """Return the function that a scan's pull queue calls: one batch, then nothing."""
    pending = [produce]
    return lambda: pending.pop()() if pending else None


class StatelessHost:
    """Runs the fragments without state; between micro-batches it keeps nothing on which an answer depends.

    Parameters
    ----------
    fragments
        The fragments of the plan.
    clock
        A monotonic clock in seconds, for the frequency of repeated errors and reported counters.
    """

    def __init__(self, fragments: Iterable[Fragment], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers = {each.identity: Answers(each, clock=clock) for each in fragments}
        self._reports = CounterReports(clock)

    def process(self, dataflow: UpstreamDataflow, at_us: int) -> HostOutput:
        """Run one part of a micro-batch; errors get the instant `at_us`."""
        found = [answer for emitted in dataflow.run() for answer in self._rows_of(emitted)]
        self._reports.add(dataflow.counters)
        for answers in self._answers.values():
            failed = Failures(dataflow.failures, dataflow.lost_us)
            found.extend(answers.errors(Failures({}, {}), failed, bucket=0, buckets=1, at_us=at_us))
        return HostOutput(found, self._reports.report() if self._reports.due else {})

    def _rows_of(self, emitted: Emitted) -> list[pl.DataFrame]:
        if emitted.rows is None or not emitted.rows.height:
            return []
        fragment, rows = emitted.fragment.identity, emitted.rows.height
        NOW.begin(fragment)
        began = time.process_time()
        found = list(self._answers[fragment].of(emitted.rows))
        did = Totals(fragment, transitions=1, rows_in=rows, rows_out=rows, seconds=time.process_time() - began)
        self._reports.add({emitted.end.id: did})
        return found

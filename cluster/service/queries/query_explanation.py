"""What a query would do if it were added: its plan, what it would share, the rows it would read, and warnings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.costs.estimate_text import estimate_text
from cluster.costs.prices import SHIPPED, Prices
from cluster.costs.selectivity import expected_partners
from cluster.fjord.batch import instant_text
from cluster.fjord.measured_plans import measured_partners, measured_selectivities
from cluster.fjord.operator_statistics import Rates
from cluster.language.translation import Query
from cluster.operators import Node
from cluster.physical.lowering import lower_alone
from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.physical.placement import emission_words, lookup_choices, placement_of, sharing_of
from cluster.plan.explain import explained
from cluster.plan.history import EVER_US, history_starts, streams_of_held, with_history_starts
from cluster.plan.names_read import RelationSize
from cluster.plan.rewrite import Rewritten
from cluster.service.queries.plan_options import is_early
from cluster.storage.stream_retention import StoredFiles
from cluster.storage.stream_tables import StreamTable, watermark_at
from protocols.wire.catalog import DeviceEntry, MoteEntry
from protocols.wire.demands import QueryDemand


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """The part of one stream's history that a query reads.

    Parameters
    ----------
    stream
        The stream.
    begins_us
        From which instant on; None for all that is stored.
    stored_us
        The earliest stamp that is stored; None if nothing is.
    rows, files
        About how many rows are stamped since then, in how many files.
    kept_from_us
        The instant after which nothing has been removed; None if nothing ever was.
    """

    stream: str
    begins_us: int | None
    stored_us: int | None
    rows: int
    files: int
    kept_from_us: int | None = None

    @property
    def warning(self) -> str | None:
        """A warning about what the user might not expect; None if there is nothing."""
        if self.stored_us is None:
            return f"nothing is stored of {self.stream} yet: there is no history to read"
        if self.kept_from_us is not None and (self.begins_us is None or self.kept_from_us > self.begins_us):
            return f"{self.stream} is kept since {instant_text(self.kept_from_us)} only: older rows have been removed"
        if self.begins_us is not None and self.stored_us > self.begins_us:
            return f"{self.stream} is stored since {instant_text(self.stored_us)} only: there is no more history"
        return None

    def as_json(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        since = None if self.begins_us is None else instant_text(self.begins_us)
        return {"stream": self.stream, "since": since, "rows": self.rows, "files": self.files}


def begun_at(node: Node, epoch: int, positions: Mapping[str, int], tables: Mapping[str, StreamTable]) -> Node:
    """Return a plan with the instants from which on it reads streams, if an epoch begins at these positions.

    Parameters
    ----------
    node
        The plan.
    epoch
        The epoch.
    positions, tables
        By stream.
    """
    watermarks = {
        stream: watermark_at(tables[stream].log, positions[stream])
        for stream in {*history_starts(node), *streams_of_held(node)}
    }
    stored = {
        stream: StoredFiles.at(tables[stream].root, tables[stream].version).first_us
        for stream in history_starts(node).keys() & streams_of_held(node)
    }
    return with_history_starts(node, epoch, watermarks, stored)


def history_of(node: Node, tables: Mapping[str, StreamTable]) -> Iterator[HistoryRead]:
    """Yield the history that a query reads, stream by stream.

    Parameters
    ----------
    node
        Its plan, with beginnings.
    tables
        By stream.
    """
    for stream, begins_us in sorted(history_starts(node).items()):
        stored = StoredFiles.at(tables[stream].root, tables[stream].version)
        rows, files = round(stored.rows_between(begins_us, None)), len(stored.between(begins_us, None))
        since_us = None if begins_us == EVER_US else begins_us
        yield HistoryRead(stream, since_us, stored.first_us, rows, files, tables[stream].retention.kept_from_us)


def history_text(reads: tuple[HistoryRead, ...], at_once: int) -> str:
    """Return in words which history a query reads, and in portions of what size.

    Parameters
    ----------
    reads
        What it reads.
    at_once
        Rows of history that one micro-batch reads.
    """
    lines = []
    for read in reads:
        since = "from the beginning" if read.begins_us is None else f"since {instant_text(read.begins_us)}"
        lines.append(f"{read.stream} {since}: about {_counted(read.rows, 'row')} in {_counted(read.files, 'file')}")
        if read.warning:
            lines.append(read.warning)
    if sum(read.rows for read in reads) > at_once:
        lines.append(f"about {at_once:,} rows at once, while other queries go on")
    return "\n".join(f"  {line}" for line in lines)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


EXAMPLES = 3
"""Devices that a warning names."""


def publishers_of(entries: Iterable[MoteEntry], streams: Iterable[str]) -> dict[str, list[DeviceEntry]]:
    """Return the devices that publish by their own rules, of those of some streams, by stream.

    Parameters
    ----------
    entries
        Of the catalog.
    streams
        Names.
    """
    wanted = frozenset(streams)
    found: dict[str, list[DeviceEntry]] = {}
    for entry in entries:
        if isinstance(entry, DeviceEntry) and entry.publishes and entry.stream in wanted:
            found.setdefault(entry.stream, []).append(entry)
    return {stream: sorted(found[stream], key=lambda entry: (entry.mote, entry.proxy)) for stream in sorted(found)}


def publisher_warnings(
    demands: Mapping[str, Sequence[QueryDemand]], publishers: Mapping[str, Sequence[DeviceEntry]]
) -> Iterator[str]:
    """Yield a warning for each clause of a query, and each stream, in which it does nothing for some devices.

    Parameters
    ----------
    demands
        What the query demands, by stream.
    publishers
        The devices that publish by their own rules, by stream.
    """
    for stream, devices in publishers.items():
        of_stream = demands.get(stream, ())
        hints = [
            word
            for word, given in (
                ("AT LEAST EVERY", any(each.slowest_us for each in of_stream)),
                ("LIFETIME", any(each.lifetime_us for each in of_stream)),
                ("WITHIN", any(each.tolerances for each in of_stream)),
            )
            if given
        ]
        if hints:
            does = "does" if len(hints) == 1 else "do"
            yield f"{_listed(hints)} {does} nothing for {_named(devices)} of {stream}: {_they(devices)} by own rules"
        if not any(each.completeness is not None for each in of_stream):
            continue
        recorded = [each for each in devices if not each.driver]
        uncounted = [each for each in devices if each.driver and not each.expected_every_us]
        if recorded:
            replay = "it replays" if len(recorded) == 1 else "they replay"
            yield (
                f"COMPLETENESS is NULL for {_named(recorded)} of {stream}: {replay} a recording as it is, without a "
                "rate (fjord motes run --resample gives it one)"
            )
        if uncounted:
            yield (
                f"COMPLETENESS is NULL for {_named(uncounted)} of {stream}: {_they(uncounted)} by own rules, and the "
                "driver does not say how often (expected_every)"
            )


def _they(devices: Sequence[DeviceEntry]) -> str:
    return "it publishes" if len(devices) == 1 else "they publish"


def _named(devices: Sequence[DeviceEntry]) -> str:
    more = len(devices) - EXAMPLES
    return _listed([*(each.mote for each in devices[:EXAMPLES]), *([f"{more:,} more"] if more > 0 else [])])


def _listed(words: Sequence[str]) -> str:
    """Return words as a list.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), words[-1]])


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What surrounds a query in its cluster.

    Parameters
    ----------
    running
        The plan that runs.
    sizes
        Of relations, by identity.
    memory_bytes, buckets
        What one table of relations may take of a worker's memory; how many buckets there are downstream.
    history_rows
        About how many rows of history a micro-batch reads.
    tuples_per_second
        By stream, of those that the query reads, where it is known.
    rates
        Of the operators of the plan that runs, by name.
    bounds
        Returns in words what a query may need at most, given its fragment and `tuples_per_second`.
    prices
        What steps of operators cost here.
    """

    running: PhysicalPlan
    sizes: Mapping[str, RelationSize]
    memory_bytes: int
    buckets: int
    history_rows: int
    tuples_per_second: Mapping[str, float]
    rates: Callable[[str], Rates]
    bounds: Callable[[Fragment, Mapping[str, float]], str]
    prices: Prices = SHIPPED


def explanation(query: Query, rewritten: Rewritten, reads: tuple[HistoryRead, ...], surroundings: Surroundings) -> str:
    """Return as text the plan of a query, how it would be run, and what it would share with those that run.

    Parameters
    ----------
    query, rewritten
        The query, and its plan as it would be added.
    reads
        The history that it would read first.
    surroundings
        Those of the query.
    """
    node = rewritten.node
    emission = emission_words(node, early=is_early(query))
    lookups = lookup_choices(
        node, surroundings.sizes, memory_bytes=surroundings.memory_bytes, buckets=surroundings.buckets
    )
    selectivities = measured_selectivities(surroundings.running, surroundings.rates)
    partners = expected_partners(node, surroundings.sizes)
    partners |= measured_partners(surroundings.running, surroundings.rates)
    estimate = estimate_text(
        node, surroundings.tuples_per_second, selectivities, surroundings.prices, partners=partners
    )
    if estimate:
        estimate += f"\n{surroundings.bounds(lower_alone(node), surroundings.tuples_per_second)}"
    sections = [
        explained(query, rewritten).rstrip(),
        *([f"It would first read\n{history_text(reads, surroundings.history_rows)}"] if reads else []),
        f"It would run\n{placement_of(node)}",
        *([f"It would process, as estimated\n{estimate}"] if estimate else []),
        *([f"It would publish\n  {emission}"] if emission else []),
        *([f"It would look up\n{lookups}"] if lookups else []),
        f"It would share\n{sharing_of(node, surroundings.running)}",
    ]
    return "\n\n".join(sections) + "\n"

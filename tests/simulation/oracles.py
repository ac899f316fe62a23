"""What must hold of a deployment, whatever went wrong in it; looked at once everything has calmed down.

Safety: each batch that a proxy put on its disk is stored once, as it was; each sample is stored once, as it was sensed;
what is counted as seen is stored. Liveness: what was spooled long ago is stored, samples of all motes go on coming,
watermarks follow, and no process computed for so long that it blocked itself.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocols.wire.batches import (
    EXPECTED_COLUMN,
    FINGERPRINT_COLUMN,
    MISSING_COLUMN,
    MOTE_COLUMN,
    PANE_COLUMN,
    START_COLUMN,
    Batch,
    decode_batch,
    without_writer,
)
from tests.simulation.device_oracles import device_violations
from tests.simulation.hosts import WALL_BEGINS_NS
from tests.simulation.settled_state import STREAM, unsettled
from tests.simulation.violations import Violation, each

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.simulation.proxy_host import BatchId
    from tests.simulation.world import World

PANE_US = 20_000_000
"""Of the counts of missing samples: the window of the query that demands them."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What batches contain.

    Parameters
    ----------
    samples
        By mote and stamp, the values that are not fixed, of each time that it is there.
    counts
        Mote, end of the pane, samples that were due, and missing ones.
    aggregated
        By mote: the first instant, and the first one after it, of samples that only aggregates contain.
    """

    samples: Mapping[tuple[str, int], list[dict[str, object]]]
    counts: tuple[tuple[str, int, int, int], ...]
    aggregated: Mapping[str, list[tuple[int, int]]]


def rows_of(batches: Iterable[Batch]) -> Rows:
    """Return the rows of batches."""
    samples: dict[tuple[str, int], list[dict[str, object]]] = defaultdict(list)
    counts: list[tuple[str, int, int, int]] = []
    aggregated: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for batch in batches:
        columns = {column.name: column.values(batch.rows) for column in batch.columns}
        fingerprints = columns.get(FINGERPRINT_COLUMN)
        expected = columns.get(EXPECTED_COLUMN)
        widths = columns.get(PANE_COLUMN)
        sampled = [name for name in ("speed", "flow") if name in columns]
        for place, (mote, start_us) in enumerate(zip(columns[MOTE_COLUMN], columns[START_COLUMN], strict=True)):
            assert isinstance(mote, str)
            assert isinstance(start_us, int)
            if fingerprints is None or fingerprints[place] is None:
                samples[mote, start_us].append({name: columns[name][place] for name in sampled})
            elif expected is not None and expected[place] is not None:
                counts.append((mote, start_us + 1, expected[place], columns[MISSING_COLUMN][place]))  # type: ignore[arg-type]
            elif widths is not None and isinstance(width_us := widths[place], int):
                # A pane that a change of program ended is stamped with the instant of the change, a sample's.
                end_us = start_us + (start_us % 1_000 == 999)
                aggregated[mote].append((end_us - width_us, end_us))
    return Rows(samples, tuple(counts), aggregated)


def violations(world: World) -> list[Violation]:
    """Return all that is wrong in a world that has calmed down."""
    stored = world.cluster.batches
    of_motes = {identity: batch for identity, batch in stored.items() if identity.stream == STREAM}
    rows = rows_of(of_motes.values())
    return [
        *_batches(world, stored),
        *_samples(world, rows),
        *_counts(world, rows),
        *_promises(world),
        *unsettled(world),
        *_calm(world, rows),
        *_progress(world, rows, of_motes),
        *device_violations(world, stored),
        *_surroundings(world),
        *world.watch.violations(),
        *world.cluster.violations(),
    ]


def _batches(world: World, stored: Mapping[BatchId, Batch]) -> Iterator[Violation]:
    now_ns = world.loop.world.now_ns
    for proxy in world.proxies.values():
        other, lost, late = [], [], []
        for identity, spooled in proxy.spooled.items():
            batch = stored.get(identity)
            age = (now_ns - spooled.at_ns) / 1e9
            if batch is not None:
                # The first ones come without their writers.
                if batch not in [decode_batch(each) for each in (spooled.payload, without_writer(spooled.payload))]:
                    other.append(identity)
            elif proxy.acknowledged(identity):
                lost.append(identity)
            elif age > world.watch.bounds.unacknowledged_seconds:
                late.append((identity, round(age)))
        yield from each("wrong", "batches stored otherwise than they were spooled", other)
        yield from each("lost", "batches acknowledged and not stored", lost)
        yield from each("stalled", "batches spooled long ago and not stored", late)
        unknown = [batch for batch in stored if batch.proxy == proxy.name and batch not in proxy.spooled]
        yield from each("wrong", "batches stored that no proxy has spooled", unknown)


def _promises(world: World) -> Iterator[Violation]:
    """No row of a batch is stamped before the watermark of an earlier one: that was a promise."""
    for proxy in world.proxies.values():
        early, promised_us = [], {}
        for identity, spooled in sorted(proxy.spooled.items()):
            batch, lane = decode_batch(spooled.payload), identity[:3]
            before_us = promised_us.get(lane)
            if batch.rows and before_us is not None:
                stamps = next(column for column in batch.columns if column.name == START_COLUMN).values(batch.rows)
                early += [(identity, stamp) for stamp in stamps if stamp < before_us]  # type: ignore[operator]
            promised_us[lane] = max(batch.watermark_us, before_us or batch.watermark_us)
        yield from each("wrong", "rows stamped before a watermark that was promised", early)


def _samples(world: World, rows: Rows) -> Iterator[Violation]:
    motes = {mote.name: mote for mote in world.motes}
    wrong = []
    for (name, start_us), found in rows.samples.items():
        mote = motes.get(name)
        if mote is None or start_us not in mote.sensed:
            wrong.append((name, start_us, "not sensed"))
            continue
        fields = tuple(field for field, value in found[0].items() if value is not None)
        if mote.value(start_us, fields) != tuple(found[0][field] for field in fields):
            wrong.append((name, start_us, found[0]))
    yield from each("wrong", "samples stored that no mote has taken", wrong)
    yield from each(
        "doubled", "samples stored more than once", [key for key, found in rows.samples.items() if found[1:]]
    )


def _calm(world: World, rows: Rows) -> Iterator[Violation]:
    """Where nothing has gone wrong for a while, and does not soon, nothing may be missing, counted or not."""
    gone = [
        (mote.name, stamp_us)
        for mote in world.motes
        for stamp_us in mote.sensed
        if any(begin_us <= stamp_us < end_us - world.watch.bounds.lag_us for begin_us, end_us in world.watch.settled_us)
        and stamp_us % world.schedule.period_us == 0
        and (mote.name, stamp_us) not in rows.samples
    ]
    yield from each("lost", "samples missing though nothing went wrong", gone)


def _counts(world: World, rows: Rows) -> Iterator[Violation]:
    period_us = world.schedule.period_us
    seen: dict[str, set[int]] = defaultdict(set)
    for mote, start_us in rows.samples:
        if start_us % period_us == 0:
            seen[mote].add(start_us)
    for mote, spans in rows.aggregated.items():
        for begin_us, end_us in spans:
            seen[mote].update(range(-(-begin_us // period_us) * period_us, end_us, period_us))
    stamps = defaultdict(list, {mote: sorted(found) for mote, found in seen.items()})
    silently = []
    for mote, end_us, expected, missing in rows.counts:
        of_mote = stamps[mote]
        have = bisect.bisect_left(of_mote, end_us) - bisect.bisect_left(of_mote, end_us - PANE_US)
        if expected - missing > have:
            silently.append((mote, end_us, f"{expected} due, {missing} missing, {have} stored"))
    yield from each("lost", "panes of which samples are lost and not counted", silently)
    twice = [key for key, times in Counter((mote, end_us) for mote, end_us, _, _ in rows.counts).items() if times > 1]
    yield from each("doubled", "panes counted more than once", twice)
    yield from each("lost", "panes of which samples are not counted at all", _uncounted(world, rows))


def _uncounted(world: World, rows: Rows) -> Iterator[tuple[str, int]]:
    """Yield panes between counted ones in which a mote has taken samples, and that are not counted."""
    counted: dict[str, set[int]] = defaultdict(set)
    for name, end_us, _, _ in rows.counts:
        counted[name].add(end_us)
    for mote in world.motes:
        ends = counted[mote.name]
        if not ends:
            continue
        taken = {
            (stamp_us // PANE_US + 1) * PANE_US for stamp_us in mote.sensed if stamp_us % world.schedule.period_us == 0
        }
        yield from ((mote.name, end_us) for end_us in sorted(taken - ends) if min(ends) < end_us < max(ends))


def _progress(world: World, rows: Rows, stored: Mapping[BatchId, Batch]) -> Iterator[Violation]:
    now_us = _now_us(world)
    newest: dict[str, int] = {}
    for mote, start_us in rows.samples:
        newest[mote] = max(newest.get(mote, 0), start_us)
    behind = [
        (mote.name, f"{(now_us - newest.get(mote.name, 0)) / 1e6:.0f} s")
        for mote in world.motes
        if mote.on and now_us - newest.get(mote.name, 0) > world.watch.bounds.lag_us
    ]
    yield from each("stalled", "motes of which no sample came for long", behind)
    latest: dict[str, Batch] = {}
    for identity, batch in stored.items():
        known = latest.get(identity.proxy)
        if known is None or (batch.watermark_us, batch.sequence) > (known.watermark_us, known.sequence):
            latest[identity.proxy] = batch
    yield from each(
        "stalled",
        "watermarks far behind",
        [
            (name, f"{(now_us - batch.watermark_us) / 1e6:.0f} s")
            for name, batch in sorted(latest.items())
            if batch.sampling and now_us - batch.watermark_us > world.watch.bounds.lag_us
        ],
    )


def _now_us(world: World) -> int:
    return (WALL_BEGINS_NS + world.loop.world.now_ns) // 1_000


def _surroundings(world: World) -> Iterator[Violation]:
    yield from each("stalled", "callbacks that computed for too long", world.loop.slow)
    unhandled = [
        (process, context.get("message"), repr(context.get("exception"))) for process, context in world.loop.unhandled
    ]
    yield from each("wrong", "errors that no code handles", unhandled)
    yield from each("wrong", "frames that are not MQTT", world.broker.malformed)
    for proxy in world.proxies.values():
        yield from each("wrong", f"ends of {proxy.name}", proxy.crashes)
        if not proxy.disk.failed:
            yield from each("wrong", f"ends of {proxy.name} although its disk is fine", proxy.failures)
    yield from each("wrong", "queries refused", world.queries_refused)

"""What must hold between devices and their streams: each message that a proxy had is a tuple once, or counted by name.

Nothing here is the product's but the columns of batches and the names of counters. What a proxy had is what the network
gave to its process; what it made of it is what it put on its disk.

    handed over to a process  -->  tuple, as it was published, stamped by its device or on arrival
                              -->  rejected, or not demanded, and counted by that process under a name
                              -->  lost with the process, if that was killed before it could write it, and only if the
                                   broker keeps no session for it
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from protocols.wire.batches import DEFAULT_RATE_COLUMN, FINGERPRINT_COLUMN, MOTE_COLUMN, START_COLUMN, decode_batch
from tests.simulation.bounds import commit_seconds
from tests.simulation.device_plans import (
    BY_STREAM,
    CLIMATE,
    CLIMATE_DEFAULT_US,
    MAX_DELAY_US,
    MERGED_WITHIN_US,
    MODULUS,
    NEW_COLUMN,
    SAME_WITHIN_US,
)
from tests.simulation.hosts import WALL_BEGINS_NS
from tests.simulation.schedules import SMALL_SPOOL
from tests.simulation.violations import Violation, each

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from protocols.wire.batches import Batch
    from tests.simulation.device_log import Delivery, Published, Sent
    from tests.simulation.proxy_host import BatchId, Life, ProxyHost
    from tests.simulation.world import World

SECOND_NS = 1_000_000_000
PREVIOUS_COLUMN, NEXT_COLUMN = "fjord_previous_us", "fjord_next_us"
NO_NEIGHBOUR_US = -(2**62)
WRITTEN_SECONDS = 4.0
"""So long after a message was handed over, and a flush interval, it is on disk, if anything is put there then."""
SAME_NS = int(0.8 * SAME_WITHIN_US) * 1_000
"""Copies that are handed over within so long are known as such, however long the process is busy."""
MERGED_NS = MERGED_WITHIN_US * 1_000 + int(WRITTEN_SECONDS * SECOND_NS)
"""Halves that are handed over within so long may be one tuple: a process that is busy handles them later, together."""
COUNTER = "ticks"
FEW = 3
"""Messages with a quality of service of 1, before the first of which a proxy may have had no session yet."""
GRID_US = 60_000_000
"""Samples of a device that sends changes only are filled in at least so often."""
TAKEN_UP_NS = 8 * SECOND_NS
"""So long after a demand was handed over it counts."""
DURABLE_NS = 15 * SECOND_NS
"""So long after it the next process knows it, too."""
BEHIND_US = 20_000_000
"""A stream of devices is at most so far behind while nothing goes wrong, and by as much as its devices may be late."""
DROPPED, NOT_DEMANDED, ANY = "samples_dropped", "not_demanded", "any"
REFUSING = ("frames_refused", "packets_refused", "samples_rejected", "samples_late")
LEFT_OUT = ("before_program", "slot_taken", "unchanged")
"""Names under which a driver counts reports of a device that the proxy configures and that are no tuples."""
DOUBLING = "broker doubles"
STEPPING = "wall clock steps"


class Row(NamedTuple):
    """A tuple that a proxy has put on its disk."""

    stream: str
    mote: str
    start_us: int
    values: Mapping[str, Any]
    at_default_rate: bool
    previous_us: int | None
    next_us: int | None
    spooled_ns: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is known by: its mote, and the number that its device gave to the message."""
        return self.stream, self.mote, _number_of(self.values)


def device_violations(world: World, stored: Mapping[BatchId, Batch]) -> Iterator[Violation]:
    """Yield what is wrong between devices and what is stored of them."""
    if world.schedule.devices is None:
        return
    del stored  # that each batch is stored as it was spooled is seen elsewhere
    rows = {name: list(_rows(proxy)) for name, proxy in world.proxies.items()}
    published: dict[tuple[str, str, int], list[Published]] = defaultdict(list)
    for message in world.device_log.published:
        published[_key(message.sent)].append(message)
    for name, proxy in world.proxies.items():
        yield from _tuples(world, rows[name], published)
        yield from _accounts(world, proxy, rows[name])
        yield from _neighbours(rows[name], published)
        yield from _rates(rows[name], published)
        yield from _new_columns(rows[name], published)
        yield from _counters(rows[name], published)
        yield from _silence(world, proxy)


def _rows(proxy: ProxyHost) -> Iterator[Row]:
    """Yield the tuples of a proxy's devices, batch by batch."""
    for identity, spooled in sorted(proxy.spooled.items(), key=lambda found: found[0]):
        if identity.stream not in BY_STREAM:
            continue
        batch = decode_batch(spooled.payload)
        columns = {column.name: column.values(batch.rows) for column in batch.columns}
        nothing = [None] * batch.rows
        fields = (*BY_STREAM[identity.stream].fields, NEW_COLUMN)
        names = [field.name for field in fields if field.name in columns]
        for place in range(batch.rows):
            if columns.get(FINGERPRINT_COLUMN, nothing)[place] is None:
                yield Row(
                    identity.stream,
                    str(columns[MOTE_COLUMN][place]),
                    int(columns[START_COLUMN][place]),  # type: ignore[arg-type]
                    {name: columns[name][place] for name in names},
                    bool(columns[DEFAULT_RATE_COLUMN][place]),
                    columns.get(PREVIOUS_COLUMN, nothing)[place],  # type: ignore[arg-type]
                    columns.get(NEXT_COLUMN, nothing)[place],  # type: ignore[arg-type]
                    spooled.at_ns,
                )


def _number_of(values: Mapping[str, Any]) -> int:
    """Return the number of the message that values are from; a second half has it in its value."""
    number = values.get("n")
    if number is None:
        number = values.get("damp")
    return -1 if number is None else int(number)


def _key(sent: Sent) -> tuple[str, str, int]:
    return sent.stream, sent.mote, sent.number


def _tuples(
    world: World, rows: Iterable[Row], published: Mapping[tuple[str, str, int], list[Published]]
) -> Iterator[Violation]:
    """Each tuple is a message as it was published, and each message is one once."""
    foreign, other, stamped, early = [], [], [], []
    times = Counter(row.key for row in rows if row.previous_us is not None)
    stepped, doubles = world.happened[STEPPING], world.happened[DOUBLING]
    merges = world.schedule.devices is not None and world.schedule.devices.merges
    for row in rows:
        messages = published.get(row.key)
        if not messages:
            foreign.append((row.stream, row.mote, row.values))
            continue
        sent = messages[0].sent
        wrong = {
            name: value
            for name, value in sent.values.items()
            if name in row.values
            and row.values[name] != value
            and name != COUNTER
            and not (row.values[name] is None and (name == NEW_COLUMN.name or sent.configured or not sent.certain))
        }
        if wrong or sent.rejected:
            other.append((row.stream, row.mote, sent.rejected or wrong, row.values))
        if sent.at_us is not None:
            if row.start_us != sent.at_us:
                stamped.append((row.stream, row.mote, sent.number, row.start_us - sent.at_us))
        elif not stepped and row.previous_us is not None and not _arrived(row, messages, merges=merges):
            early.append((row.stream, row.mote, sent.number, row.start_us))
    yield from each("wrong", "tuples stored that no device has published", foreign)
    yield from each("wrong", "tuples stored otherwise than published", other)
    yield from each("wrong", "tuples not stamped with their device's time", stamped)
    yield from each("wrong", "tuples not stamped when their message came", early)
    allowed = {
        key: sum(map(_times, found)) if doubles else _copies(found) if found[0].sent.at_us is not None else len(found)
        for key, found in published.items()
    }
    yield from each(
        "doubled", "messages that are more than one tuple", [k for k, n in times.items() if n > allowed.get(k, n)]
    )


def _copies(messages: Iterable[Published]) -> int:
    """Return how often a message that gateways have copied may be a tuple: once for each time within which it came."""
    handed = [found for message in messages for found in message.deliveries if found.place and not found.retained]
    handed.sort(key=lambda found: found.place)
    return 1 + sum(
        b.process is not a.process or (b.handed_ns or 0) - (a.handed_ns or 0) > SAME_NS for a, b in pairwise(handed)
    )


def _times(published: Published) -> int:
    """Return how often a message may be a tuple, as the broker has sent it as a new one so often."""
    return max(1, sum(not found.again and not found.retained for found in published.deliveries))


def _arrived(row: Row, messages: list[Published], *, merges: bool) -> bool:
    """Return whether a tuple is stamped between when its message was handed over and when it was put on disk.

    One of halves is stamped when the first came, whose number the second may have overwritten.
    """
    earlier_us = MERGED_WITHIN_US if merges and row.stream == "halves" else 0
    for message in messages:
        for found in message.deliveries:
            if found.wall_us is not None and found.handed_ns is not None and not found.retained:
                later_us = (row.spooled_ns - found.handed_ns) // 1_000
                slack_us = 1_000 + abs(later_us) // 1_000
                if found.wall_us - earlier_us <= row.start_us <= found.wall_us + later_us + slack_us:
                    return True
    return False


def _accounts(world: World, proxy: ProxyHost, rows: Iterable[Row]) -> Iterator[Violation]:
    """Each message that was handed over is a tuple or counted."""
    plan = world.schedule.devices
    assert plan is not None
    rows = list(rows)
    there = _known_keys(rows)
    gridded: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row.previous_us is None:
            gridded[row.mote].append(row.start_us)
    unkept, missing = [], defaultdict(list)
    waits_seconds = proxy.settings.flush_interval / 1e6 + WRITTEN_SECONDS
    if plan.merges:
        waits_seconds += MERGED_WITHIN_US / 1e6
    waits_ns = int(waits_seconds * SECOND_NS)
    until_ns = _written_until_ns(proxy, world.loop.world.now_ns, waits_ns)
    for message in world.device_log.published:
        if message.proxy != proxy.name or (_key(message.sent) in there and not message.sent.rejected):
            continue
        handed = [found for found in message.deliveries if found.handed_ns is not None and not found.retained]
        if not handed:
            if message.kept and message.at_ns + waits_ns <= until_ns:
                unkept.append(_shown(message))
            continue
        last = handed[-1]
        life = proxy.lives[last.process.number]
        assert last.handed_ns is not None
        due_ns = last.handed_ns + waits_ns
        if due_ns > until_ns or (not message.kept and _died_before(due_ns, life)):
            continue
        if _may_be_configured(message.sent) and _is_sampled(gridded[message.sent.mote], last):
            continue
        processes = frozenset(found.process.number for found in handed)
        missing[processes, _reasons(world, proxy, message, last)].append(message)
    yield from each("lost", "messages that a broker has kept for a proxy and that it never had", unkept)
    known = [found for found in world.device_log.published if found.proxy == proxy.name and found.deliveries]
    certain = [found for found in known if found.qos]
    if len(certain) > FEW and not any(found.kept for found in certain):
        yield Violation("lost", f"no broker keeps messages of devices while {proxy.name} is away")
    halves = _merged_halves(known) if plan.merges else {}
    for (numbers, reasons), messages in missing.items():
        stream = messages[0].sent.stream
        motes = {found.sent.mote for found in messages}
        lives = [proxy.lives[number] for number in sorted(numbers)]
        counted = sum(_counted(life, reason, stream, motes) for life in lives for reason in {*reasons, DROPPED})
        least = _least_tuples(messages, halves)
        if least > counted:
            shown = [(*_shown(found), f"process {max(numbers)}") for found in messages]
            why = " or ".join(sorted(reasons)) or "anything"
            yield from each("lost", f"messages that are no tuples and not counted ({counted} as {why})", shown)


def _written_until_ns(proxy: ProxyHost, now_ns: int, waits_ns: int) -> int:
    """Return until when what was due is on disk: now, or when a spool was last written to that may be full since.

    A batch or two fill a small one until the cluster has them, and they are deleted. Then what waits is written soon.
    """
    is_small = proxy.settings.spool_size == SMALL_SPOOL
    if not is_small or (proxy.deleted_ns + waits_ns <= now_ns and all(map(proxy.acknowledged, proxy.spooled))):
        return now_ns
    return max((at_ns for life in proxy.lives.values() for at_ns in life.spooled_ns), default=0)


def _least_tuples(messages: Iterable[Published], halves: Mapping[Published, Published]) -> int:
    """Return how many tuples messages are at least: two halves that are merged count as one, whatever becomes of it."""
    places = {message: _handed_last(message) for message in messages}
    merged: set[Published] = set()
    for message in sorted(places, key=lambda each: places[each]):
        before = halves.get(message)
        if before in places and before not in merged:
            merged.add(message)
    return len(places) - len(merged)


def _merged_halves(messages: Iterable[Published]) -> dict[Published, Published]:
    """Return, by the later one, which messages may be halves of one tuple.

    A half waits for the next message of its device with other fields, whether or not both were sent together::

        messages   n=1 damp=2   (n=3) damp=4   n=5 damp=6   (n=7) damp=8      () cannot be read
        tuples     ----------         -------------   ---          ---
    """
    by_mote: dict[str, list[tuple[tuple[int, int], Published]]] = defaultdict(list)
    for message in messages:
        handed = _handed_last(message)
        if message.sent.stream == "halves" and not message.sent.rejected and handed[0]:
            by_mote[message.sent.mote].append((handed, message))
    found = {}
    for of_mote in by_mote.values():
        of_mote.sort(key=lambda each: each[0])
        for ((_, first_ns), first), ((_, second_ns), second) in pairwise(of_mote):
            if second_ns - first_ns <= MERGED_NS and first.sent.values.keys() != second.sent.values.keys():
                found[second] = first
    return found


def _handed_last(message: Published) -> tuple[int, int]:
    """Return as which of all messages one was handed over last, and when; zeros for never."""
    handed = ((each.place, each.handed_ns or 0) for each in message.deliveries if each.place and not each.retained)
    return max(handed, default=(0, 0))


def _is_sampled(stamps_us: list[int], delivery: Delivery) -> bool:
    """Return whether a device sends changes only about when a message came: then its values are samples of a grid."""
    assert delivery.wall_us is not None
    return any(abs(stamp_us - delivery.wall_us) < GRID_US for stamp_us in stamps_us)


def _may_be_configured(sent: Sent) -> bool:
    return sent.configured or not sent.certain


def _known_keys(rows: Iterable[Row]) -> set[tuple[str, str, int]]:
    """Return what tuples are known by; one of two halves by both."""
    found = set()
    for row in rows:
        found.add(row.key)
        damp = row.values.get("damp")
        if damp is not None:
            found.add((row.stream, row.mote, int(damp)))
    return found


def _shown(message: Published) -> tuple[Any, ...]:
    return message.sent.stream, message.sent.mote, message.sent.number, f"{message.at_ns / 1e9:.1f} s"


def _died_before(due_ns: int, life: Life) -> bool:
    """Return whether a message may have been lost with a process: that put nothing on its disk once it was due."""
    return life.ended_ns is not None and not any(at_ns >= due_ns for at_ns in life.spooled_ns)


def _reasons(world: World, proxy: ProxyHost, message: Published, last: Delivery) -> frozenset[str]:
    """Return for which reasons a message may be no tuple."""
    sent = message.sent
    assert last.handed_ns is not None
    assert last.wall_us is not None
    if sent.rejected:
        return frozenset({sent.rejected})
    if _may_be_configured(sent):
        return frozenset({ANY, NOT_DEMANDED})
    found = set()
    if sent.stream == "halves" and world.schedule.devices is not None and world.schedule.devices.merges:
        found.add("field_overwritten")
    if not _surely_demanded(world, proxy, sent.stream, last.handed_ns, last.process.number):
        found.add(NOT_DEMANDED)
    if sent.at_us is not None:
        found.add("duplicate")
    if world.happened[STEPPING]:
        found |= {"clock", "late"}
    if sent.at_us is not None and last.wall_us - sent.at_us > MAX_DELAY_US - WRITTEN_SECONDS * 1_000_000:
        found.add("late")
    return frozenset(found)


def _surely_demanded(world: World, proxy: ProxyHost, stream: str, at_ns: int, process: int) -> bool:
    """Return whether a process knew at an instant that a query reads a stream."""
    known = [demand for demand in world.device_log.demands[proxy.name, stream] if demand.at_ns <= at_ns + TAKEN_UP_NS]
    if not known or not known[-1].any:
        return False
    settled = [demand for demand in known if demand.at_ns <= at_ns - TAKEN_UP_NS]
    if not settled or not all(demand.any for demand in known[len(settled) - 1 :]):
        return False
    last = settled[-1]
    if last.process == process:
        return True
    ended_ns = proxy.lives[last.process].ended_ns
    return not proxy.disk.failed and ended_ns is not None and ended_ns - last.at_ns >= DURABLE_NS


def _counted(life: Life, reason: str, stream: str, motes: Iterable[str]) -> int:
    """Return how often a process has counted something under a name: of all devices, or of these."""
    if reason == DROPPED:
        return life.counted[DROPPED, stream]
    if reason == ANY:
        of_all = sum(count for (name, _), count in life.counted.items() if name in REFUSING)
        return of_all + sum(sum(life.of_devices(mote).get(each, 0) for each in LEFT_OUT) for mote in motes)
    of_devices = sum(life.of_devices(mote).get(reason, 0) for mote in motes)
    by_name: Counter[str] = Counter()
    for (name, label), count in life.counted.items():
        if reason in {name, label} or name.endswith(f"_{reason}"):
            by_name[name] += count
    return max(of_devices, *by_name.values(), 0)


def _neighbours(rows: list[Row], published: Mapping[tuple[str, str, int], list[Published]]) -> Iterator[Violation]:
    """Each tuple names its neighbours among those of its mote that were stored before it."""
    sampled = [row[:3] for row in rows if row.previous_us is None and row.stream != CLIMATE.name]
    yield from each("wrong", "tuples of devices that are marked as sampled", sampled)
    wrong = []
    for (_, mote), of_mote in _by_mote(rows).items():
        stamps: list[int] = []
        for row in _as_they_came(of_mote, published):
            if row.previous_us is None:
                continue
            place = bisect.bisect_right(stamps, row.start_us)
            before_us = stamps[place - 1] if place else NO_NEIGHBOUR_US
            after_us = stamps[place] if place < len(stamps) else None
            if (row.previous_us, row.next_us) != (before_us, after_us):
                wrong.append((mote, row.start_us, (row.previous_us, row.next_us), "not", (before_us, after_us)))
            bisect.insort(stamps, row.start_us)
    yield from each("wrong", "tuples with other neighbours than stored before them", wrong)


def _by_mote(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.stream, row.mote].append(row)
    return found


def _as_they_came(rows: Iterable[Row], published: Mapping[tuple[str, str, int], list[Published]]) -> Iterator[Row]:
    """Yield the tuples of a mote batch by batch, those of one batch in the order in which they were handed over."""
    stored_ns: dict[tuple[str, str, int], int] = {}
    for spooled_ns, batch in groupby(rows, key=lambda row: row.spooled_ns):
        found = [(_place(published.get(row.key, []), stored_ns.get(row.key, -1)), row) for row in batch]
        yield from (row for _, row in sorted(found, key=lambda each: each[0]))
        stored_ns |= dict.fromkeys((row.key for _, row in found), spooled_ns)


def _place(messages: Iterable[Published], after_ns: int) -> int:
    """Return as which of all messages the first of some was handed over: the first after an instant, if there is one.

    A copy by another gateway that comes later than copies may is a tuple of its own, among those that came with it.
    """
    found = [
        min((each.place, each.handed_ns or 0) for each in handed)
        for message in messages
        if (handed := [each for each in message.deliveries if each.place and not each.retained])
    ]
    later = [place for place, handed_ns in found if handed_ns > after_ns]
    return min(later or [place for place, _ in found], default=0)


def _rates(rows: list[Row], published: Mapping[tuple[str, str, int], list[Published]]) -> Iterator[Violation]:
    """A query without SAMPLE gets each tuple of a device that publishes freely, and the first of each period else."""
    of_rows = {row.key: found[0].sent for row in rows if (found := published.get(row.key))}
    free = {key for key, sent in of_rows.items() if not _may_be_configured(sent)}
    left_out = [row.key for row in rows if row.key in free and not row.at_default_rate]
    yield from each("wrong", "tuples of free publishers that a query without SAMPLE does not get", left_out)
    wrong = []
    for (stream, mote), of_mote in _by_mote(rows).items():
        if stream != CLIMATE.name:
            continue
        seen: set[int] = set()
        tamper: object = None
        number = process = 0
        for row in of_mote:
            if row.previous_us is None:
                continue
            period = row.start_us // CLIMATE_DEFAULT_US
            before, process = process, _process_of(published.get(row.key, []))
            last, number = number, row.key[2]
            # A message that is no tuple may have been a change, and the first tuple of a process counts as one.
            changed = row.values.get("tamper") != tamper or number != last + 1 or process != before
            is_configured = row.key in of_rows and of_rows[row.key].configured and of_rows[row.key].certain
            right = row.at_default_rate == (period not in seen) or (row.at_default_rate and changed)
            if is_configured and not right:
                wrong.append((mote, row.start_us, row.at_default_rate))
            seen.add(period)
            tamper = row.values.get("tamper")
    yield from each("wrong", "reports that should be in the default rate, or should not", wrong)


def _new_columns(rows: list[Row], published: Mapping[tuple[str, str, int], list[Published]]) -> Iterator[Violation]:
    """A field that an update of a bridge adds is a column soon, and stays one."""
    never, gone = [], []
    for (_, mote), of_mote in _by_mote(rows).items():
        there: dict[int, list[bool]] = defaultdict(list)
        for row in of_mote:
            found = published.get(row.key)
            if found and found[0].sent.certain and NEW_COLUMN.name in found[0].sent.values:
                there[_process_of(found)].append(row.values.get(NEW_COLUMN.name) is not None)
        if sum(map(len, there.values())) >= FEW and not any(map(any, there.values())):
            never.append(mote)
        gone += [
            (mote, process)
            for process, known in there.items()
            if not all(known[known.index(True) :] if any(known) else ())
        ]
    yield from each("lost", "devices whose new column never came after an update of their bridge", never)
    yield from each("lost", "devices whose new column was lost again", gone)


def _process_of(messages: Iterable[Published]) -> int:
    """Return the number of the process that was handed some messages last; 0 for none."""
    return max((found.process.number for each in messages for found in each.deliveries if found.place), default=0)


def _counters(rows: list[Row], published: Mapping[tuple[str, str, int], list[Published]]) -> Iterator[Violation]:
    """A counter that begins anew goes on in its column: by what it has counted since the tuple before."""
    wrong = []
    for (_, mote), of_mote in _by_mote(rows).items():
        counted = [row for row in _as_they_came(of_mote, published) if row.values.get(COUNTER) is not None]
        for before, after in pairwise(counted):
            (meant,) = {found[0].sent.values[COUNTER] for found in (published.get(after.key, []),) if found} or {None}
            (was,) = {found[0].sent.values[COUNTER] for found in (published.get(before.key, []),) if found} or {None}
            if meant is None or was is None or not 0 <= meant - was < MODULUS:
                continue
            if not _in_order(published, before.key, after.key):
                continue
            if after.values[COUNTER] - before.values[COUNTER] != meant - was:
                wrong.append((mote, after.key[2], before.values[COUNTER], after.values[COUNTER], meant - was))
    yield from each("wrong", "counters that lose or gain when they begin anew", wrong)


def _in_order(
    published: Mapping[tuple[str, str, int], list[Published]], before: tuple[str, str, int], after: tuple[str, str, int]
) -> bool:
    """Return whether the messages of a device from one to another came in order, each once: else it seems to reset."""
    places = [
        found.place
        for number in range(before[2], after[2] + 1)
        for message in published.get((*before[:2], number), [])
        for found in message.deliveries
        if found.place and not found.retained
    ]
    return all(a < b for a, b in pairwise(places))


def _silence(world: World, proxy: ProxyHost) -> Iterator[Violation]:
    """The time of a demanded stream goes on though its devices are silent."""
    newest: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for identity, spooled in proxy.spooled.items():
        if identity.stream in BY_STREAM:
            newest[identity.stream].append((spooled.at_ns, decode_batch(spooled.payload).watermark_us))
    behind = []
    for stream, marks in newest.items():
        marks.sort()
        allowed_us = BEHIND_US + (MAX_DELAY_US if stream == "clocked" else 0)
        if proxy.settings.spool_size == SMALL_SPOOL:  # full until the cluster has stored what is in it
            allowed_us += round(commit_seconds(world.schedule) * 1e6)
        for begin_us, end_us in world.watch.settled_us:
            end_ns = end_us * 1_000 - WALL_BEGINS_NS
            if end_us - begin_us < allowed_us or not _surely_demanded_since(world, proxy, stream, begin_us, end_ns):
                continue
            before = [watermark_us for at_ns, watermark_us in marks if at_ns <= end_ns]
            if before and end_us - max(before) > allowed_us and marks[0][0] < begin_us * 1_000 - WALL_BEGINS_NS:
                behind.append((stream, f"{(end_us - max(before)) / 1e6:.0f} s at {end_ns / 1e9:.0f} s"))
    yield from each("stalled", f"streams of silent devices of {proxy.name} without time", behind)


def _surely_demanded_since(world: World, proxy: ProxyHost, stream: str, begin_us: int, end_ns: int) -> bool:
    process = proxy.host.started
    begin_ns = begin_us * 1_000 - WALL_BEGINS_NS
    return all(_surely_demanded(world, proxy, stream, at_ns, process) for at_ns in (begin_ns, end_ns))

"""Running schedules, one after another, over the same processes, and checking each after recovery.

lead    faults          recovery      settled          checked
|------|==============|-------------|---------------->|
       began          ended          all queries have an answer from after the faults
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError
from cluster.service.client.api_client import ApiUnreachableError, RefusedError
from firmware_sim.phenomena.traffic import Traffic
from tests.faults import checks
from tests.faults.broker_tap import BrokerTap
from tests.faults.checks import Window
from tests.faults.device import acknowledged
from tests.faults.running_parts import FOLLOWED, MOTES, PERIOD_US, PROXY, QUERIES, RunningParts
from tests.faults.samples import Answer
from tests.faults.schedules import Kind, Part, Schedule, Setting
from tests.faults.stored import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.faults.schedules import Fault

STEP_SECONDS = 0.1
LONGEST_RECOVERY_SECONDS = 600.0
"""On an idle machine some twenty suffice; on a busy one Spark alone may need minutes to start."""
SETTLE_SECONDS = 2
PANE_US = 1_000_000
SECOND_US = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT_ONCE_SECONDS = 1.0
"""After so long a proxy that is connected has what the broker has."""
LOSSES_OF_SMALL = frozenset({"commits of results given up", "results given up", "proxy's samples_dropped"})
PROXY_LOSSES = (
    "samples_dropped", "samples_rejected", "batches_rejected", "acks_refused", "resumptions", "demands_refused",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a schedule.

    Parameters
    ----------
    schedule
        The schedule.
    outage, recovery, rows
        Of the rows that a subscriber got: seconds without any, seconds until the first from after the faults, and the
        number of answers compared.
    problems
        Violations; none if all guarantees held.
    logs
        Folder of the logs if there are violations.
    """

    schedule: Schedule
    outage: float
    recovery: float | None
    rows: int
    problems: tuple[str, ...]
    logs: Path | None = None


class Run:
    """Running processes, and the observations of them.

    Parameters
    ----------
    parts
        The processes.
    tap
        Records messages of the broker.
    """

    def __init__(self, parts: RunningParts, tap: BrokerTap) -> None:
        self._parts = parts
        self._tap = tap
        self._results: dict[str, list[dict[str, Any]]] = {query: [] for query in QUERIES}
        self._world = Traffic(MOTES, default_period_us=PERIOD_US)
        self._places = {mote.name: place for place, mote in enumerate(self._world.motes)}
        self._restarted: set[Part] = set()
        self._tap_misses = True
        """Whether the tap may have missed messages: the broker was away, or results were too old to be published."""
        self._checked: dict[str, int] = dict.fromkeys(QUERIES, 0)
        """Numbers of the last results that have been checked, or that the tap may have missed."""
        self._excused: list[tuple[float, float]] = []
        self._begin_us = self._first_us()
        self._sent_since = self._begin_us / 1e6
        """The device's messages of before were compared, or came before a query read them."""

    def schedule(self, schedule: Schedule, shown: Callable[[str], None] = lambda _: None) -> Outcome:
        """Inject the faults of a schedule, and check everything afterwards."""
        began = time.time()
        self._restarted = {fault.part for fault in schedule.faults if fault.kind in (Kind.KILL, Kind.OUTAGE)}
        self._tap_misses = schedule.setting is Setting.SMALL or any(
            each.part is Part.BROKER for each in schedule.faults
        )
        self._excuse(schedule, began)
        self._play(schedule, shown)
        ended = began + schedule.ends
        shown("recovery")
        end_us = self._settle(ended)
        arrivals = [(each.at, _us(each.message["start"]) / 1e6) for each in self._parts.subscribers["rows"].arrivals]
        first = began + min(fault.at for fault in schedule.faults)
        outage = checks.outage(arrivals, first, ended, time.time())
        if end_us is None:
            problems = [f"it has not recovered within {LONGEST_RECOVERY_SECONDS:.0f} s: {self._where()}"]
            problems += self._parts.ended()
            with self._stored(Window(self._begin_us, _last_us(self._results["rows"]))) as stored:
                problems += self._stored_wrong(stored)
            return Outcome(schedule, outage.longest, outage.recovery, 0, tuple(problems))
        window = Window(self._begin_us, end_us)
        problems, rows = self._problems(window)
        if self._tap_misses:
            problems += self._reconnect_tap()
        self._begin_us = end_us
        return Outcome(schedule, outage.longest, outage.recovery, rows, tuple(problems))

    def _play(self, schedule: Schedule, shown: Callable[[str], None]) -> None:
        begins = [(fault.at, 0, fault) for fault in schedule.faults]
        ends = [(fault.ends, 1, fault) for fault in schedule.faults]
        began = time.monotonic()
        under_way: list[Fault] = []
        for at, is_end, fault in sorted(begins + ends, key=lambda each: each[:2]):
            while (left := began + at - time.monotonic()) > 0:
                self._look_after()
                time.sleep(min(left, STEP_SECONDS))
            if is_end:
                self._parts.end(fault)
                under_way.remove(fault)
            else:
                self._parts.begin(fault)
                under_way.append(fault)
            shown(" + ".join(f"{each.kind} {each.part}" for each in under_way))

    def _look_after(self) -> None:
        for subscriber in self._parts.subscribers.values():
            subscriber.look_after()

    def _settle(self, ended: float) -> int | None:
        """Wait until all queries have answers from well after an instant; return how far all is final."""
        end_us = (math.ceil(ended) + SETTLE_SECONDS) * SECOND_US
        deadline = time.monotonic() + max(0.0, ended - time.time()) + LONGEST_RECOVERY_SECONDS
        while time.monotonic() < deadline:
            self._look_after()
            with contextlib.suppress(ApiUnreachableError, RefusedError):
                self._read_results()
            if all(_last_us(rows) >= end_us + SECOND_US for rows in self._results.values()) and all(
                self._parts.subscribers[query].last >= self._results[query][-1]["sequence"] for query in FOLLOWED
            ):
                return end_us
            time.sleep(STEP_SECONDS * 3)
        return None

    def _reconnect_tap(self) -> list[str]:
        """Wait until the tap receives new results: it has missed those from before it was connected again."""
        newest = {query: rows[-1]["sequence"] for query, rows in self._results.items()}
        deadline = time.monotonic() + LONGEST_RECOVERY_SECONDS
        while time.monotonic() < deadline:
            published = {query: max(self._tap.published(query), default=0) for query in QUERIES}
            if all(published[query] > newest[query] for query in QUERIES):
                self._checked = {query: max(published[query], self._checked[query]) for query in QUERIES}
                return []
            time.sleep(STEP_SECONDS)
        return ["the broker tap receives no results"]

    def _first_us(self) -> int:
        """Wait until all motes have sampled for a whole pane; return the instant from which on they have."""
        while (settled := self._settle(time.time() + 1)) is not None:
            before_us = settled - PANE_US
            if len({row["row"]["sensor"] for row in self._results["rows"] if _us(row["start"]) < before_us}) == MOTES:
                return settled
        raise ClusterError("queries do not answer")

    def _read_results(self) -> None:
        for query, rows in self._results.items():
            after = rows[-1]["sequence"] if rows else 0
            self._results[query] += self._parts.api.results(query, after=after, limit=10_000)

    def _where(self) -> str:
        now_us = time.time() * 1e6
        behind = {
            query: f"{(now_us - _last_us(rows)) / 1e6:.1f} s behind" if rows else "no rows"
            for query, rows in self._results.items()
        }
        return ", ".join(f"{query} {text}" for query, text in behind.items())

    def _problems(self, window: Window) -> tuple[list[str], int]:
        """Return the violations, and the number of answers compared."""
        problems = self._parts.ended()
        with self._stored(window) as stored:
            problems += self._stored_wrong(stored)
            samples = stored.samples()
            problems += checks.uncounted(
                samples, stored.missing_samples(), period_us=PERIOD_US, pane_us=PANE_US, window=window,
                exact=not self._restarted & {Part.PROXY, Part.MOTES}, motes=self._places,
            )  # fmt: skip
            if others := stored.others():
                problems.append(f"{others} rows are no samples, though samples were demanded")
            rows = sum(self._compare(query, stored, problems) for query in QUERIES if query != "probes")
        with self._stored(window, "probes") as stored:
            rows += self._compare("probes", stored, problems)
        problems += self._lost_messages(window)
        problems += checks.uncounted_loss(
            self._losses(), LOSSES_OF_SMALL if self._parts.setting is Setting.SMALL else ()
        )
        return problems, rows

    def _compare(self, query: str, stored: Stored, problems: list[str]) -> int:
        """Add what is wrong with the answers of a query; return how many were compared."""
        found = self._results[query]
        answers = [each for each in _answers(found) if each.start_us in stored.window]
        problems += [f"{query}: {each}" for each in self._wrong(query, found, stored.window)]
        problems += [f"{query}: {each}" for each in checks.wrong_answers(answers, stored.answers(query))]
        return len(answers)

    def _lost_messages(self, window: Window) -> list[str]:
        """Return the device's messages that are neither rows nor counted."""
        before = window.end_us / 1e6 - SETTLE_SECONDS
        sent = [each for each in acknowledged(self._parts.device_log) if self._sent_since <= each.at < before]
        self._sent_since = before
        rows = [row["row"]["n"] for row in self._results["probes"] if "row" in row]
        counted = int(self._losses()["proxy's samples_dropped"]) if self._parts.setting is Setting.SMALL else 0
        return checks.lost_messages(sent, rows, counted=counted, excused=self._broker_may_lose)

    def _broker_may_lose(self, at: float) -> bool:
        """Return whether what the broker had at an instant may be lost: it was killed before a proxy had it."""
        return any(begin <= at < end for begin, end in self._excused)

    def _excuse(self, schedule: Schedule, began: float) -> None:
        """Note when a broker that is killed may have had messages that no proxy had: Mosquitto saves them seldom."""
        away = {Part.PROXY, Part.PROXY_LINK}
        for fault in schedule.faults:
            if fault.part is Part.BROKER and fault.kind in {Kind.KILL, Kind.OUTAGE, Kind.FORGET}:
                others = [each for each in schedule.faults if each.part in away and each.at < fault.at]
                first = min((each.at for each in others), default=fault.at)
                self._excused.append((began + first - AT_ONCE_SECONDS, began + fault.at))

    def _stored(self, window: Window, stream: str = "traffic") -> contextlib.closing[Stored]:
        return contextlib.closing(Stored(self._parts.folder / "cluster" / "streams" / stream, window))

    def _stored_wrong(self, stored: Stored) -> Iterable[str]:
        """Yield violations in what is stored, independently of queries."""
        samples = stored.samples()
        yield from checks.doubled(samples)
        yield from checks.falsified(samples, self._sensed)
        for received in self._tap.received().values():
            yield from checks.missing_acknowledged(samples, received.samples, received.through, stored.window)
        yield from self._tap.contradictions

    def _wrong(self, query: str, found: list[dict[str, Any]], window: Window) -> Iterable[str]:
        yield from checks.gaps([row["sequence"] for row in found])
        yield from checks.shown("errors", [row["error"] for row in found if "error" in row])
        if query in FOLLOWED:
            yield from checks.disordered([_us(row["start"]) for row in found])
            arrivals = list(self._parts.subscribers[query].arrivals)
            yield from checks.undelivered(found, [each.message for each in arrivals])
        # Newer ones may be on their way.
        final = [row["sequence"] for row in found if _us(row["start"]) < window.end_us]
        if not self._tap_misses:
            published, before = self._tap.published(query), self._checked[query]
            yield from checks.unpublished([number for number in final if number > before], published)
        self._checked[query] = max(final)

    def _losses(self) -> dict[str, float]:
        """Return the counts of losses; of restarted processes, since their restart."""
        status = self._parts.api.status()
        proxy = self._parts.proxy_metrics()
        return {
            "rows stored late": status["rows_late"],
            "rows rejected": status["rows_rejected"],
            "commits of results given up": status["results"]["lost"]["commits"],
            "results given up": status["results"]["lost"]["rows"],
            "commits lost": status["storage"]["lost_commits"],
            **{f"proxy's {name}": proxy.get(name, 0.0) for name in PROXY_LOSSES},
        }

    def _sensed(self, mote: str, instant_us: int) -> tuple[float, float]:
        speed, flow = self._world.sense(self._places[mote], instant_us, ("speed", "flow"))
        return float(str(speed)), float(str(flow))


def run_group(
    schedules: Iterable[Schedule], folder: Path, shown: Callable[[Schedule, str], None] = lambda *_: None
) -> Iterable[Outcome]:
    """Run schedules of one setting over the same parts, up to the first that fails; yield the outcome of each.

    Parameters
    ----------
    schedules
        Schedules of one setting.
    folder
        Of data and logs.
    shown
        Called with a text for each event.
    """
    first, *others = schedules
    shown(first, "start")
    with RunningParts(folder, first.setting) as parts, BrokerTap(parts.broker, PROXY, QUERIES) as tap:
        run = Run(parts, tap)
        for schedule in (first, *others):
            outcome = run.schedule(schedule, lambda what, each=schedule: shown(each, what))
            yield outcome
            if outcome.problems:
                return


def _answers(rows: Iterable[dict[str, Any]]) -> list[Answer]:
    return [
        Answer(_us(row["start"]), None if row["end"] is None else _us(row["end"]), tuple(row["row"].values()))
        for row in rows
        if "row" in row
    ]


def _last_us(rows: list[dict[str, Any]]) -> int:
    return _us(rows[-1]["start"]) if rows else 0


def _us(instant: str) -> int:
    return (datetime.fromisoformat(instant) - EPOCH) // timedelta(microseconds=1)

"""Rows per second through the ingest, by the size of batches, beside subscribers that do nothing with them.

In the same run and in turn, a process sends batches of 1, 10, 100 and 1,000 rows with a quality of service of 0, as
proxies do, and takes what a cluster acknowledges for stored. They go to

* the ingest of a cluster, which stores, syncs and acknowledges them;
* link: Fjord's own link to the broker, which only counts them;
* bare: an aiomqtt 2 subscriber that only counts them; both get batches of 10 rows.

A row counts once its batch is acknowledged, and so on disk. There are always enough batches on their way that more of
them would not be faster: 256 of 1,000 rows, 8,192 of 10 rows, which is fewer rows but more messages.
A subscriber that does nothing would make `small_over_large` what `link_over_large` is. Processor time of each process
says what bounds it (benchmarks/README.md).

    python benchmarks/ingest.py [--quick] [--json] [--rounds 5] [--seconds 6] [--proxies 32] [--folder .]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from deltalake import DeltaTable
from ingest_load import Load, Shared, send
from ingest_takers import BARE_PREFIX, LINK_PREFIX, run_bare, run_ingest, run_link
from reports import write_report

from protocols.event_log import configure_logging
from proxy.broker import running_broker

SMALL, LARGE = 10, 1_000
SIZES = (1, SMALL, 100, LARGE)
MOST_ROWS_IN_FLIGHT, MOST_IN_FLIGHT, LEAST_IN_FLIGHT = 8_000, 256, 8
"""Of each proxy."""
SETTLE_SECONDS = 1.0
"""Not measured at the beginning of each measurement; less if it is short."""
TIME_LIMIT_SECONDS = 60.0
context = multiprocessing.get_context("spawn")


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="three rounds of 0.8 seconds: within a minute")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=6.0, help="of each measurement in each round")
    arguments.add_argument("--proxies", type=int, default=32)
    arguments.add_argument("--folder", type=Path, default=None, help="on the disk to measure; else a temporary one")
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.seconds = 3, 0.8
    configure_logging("error")
    with tempfile.TemporaryDirectory(prefix="fjord-ingest-", dir=options.folder) as folder:
        contenders = asyncio.run(measure(Path(folder), options.rounds, options.seconds, options.proxies))
        stored = [each for each in contenders if not each.prefix]
        lost = [each.acknowledged * each.rows - stored_rows(Path(folder, f"rows{each.rows}")) for each in stored]
    report = described(contenders) | {"lost_rows": sum(max(0, each) for each in lost), "rounds": options.rounds}
    write_report(report, "ingest", lambda path: plot(contenders, path), as_json=options.json)


@dataclass
class Contender:
    """A receiver that gets batches of one size, and its measurements in each round."""

    name: str
    rows: int
    process: psutil.Process
    shared: Shared
    prefix: str = ""
    acknowledged: int = 0
    batches_per_second: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)
    """Of the receiver, for each batch."""
    broker_us: list[float] = field(default_factory=list)
    sender_us: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    """Of all processors, the part that the three used."""

    def load(self, proxies: int, number: int) -> Load:
        """Return what is sent to it in a round."""
        in_flight = min(MOST_IN_FLIGHT, max(LEAST_IN_FLIGHT, MOST_ROWS_IN_FLIGHT // self.rows))
        return Load(self.rows, proxies, in_flight, f"{self.name}{number}", self.prefix)

    def done(self) -> int:
        """Return how many batches it has received, or acknowledged."""
        return self.shared.taken.value if self.prefix else self.shared.stored.value


async def measure(folder: Path, rounds: int, seconds: float, proxies: int) -> list[Contender]:
    """Let all take turns; return the contenders with their measurements."""
    async with running_broker(engine="mosquitto") as broker:
        with ExitStack() as stack:
            ingest = started(stack, run_ingest, broker.port, str(folder))
            link, bare = started(stack, run_link, broker.port), started(stack, run_bare, broker.port)
            contenders = [
                *(Contender(f"rows{rows}", rows, *ingest) for rows in SIZES),
                Contender("link", SMALL, *link, prefix=LINK_PREFIX),
                Contender("bare", SMALL, *bare, prefix=BARE_PREFIX),
            ]
            for number in range(rounds):
                for each in contenders if number % 2 else contenders[::-1]:
                    await asyncio.to_thread(measure_round, each, broker.port, each.load(proxies, number), seconds)
    return contenders


def started(stack: ExitStack, run: Callable[..., None], *arguments: object) -> tuple[psutil.Process, Shared]:
    """Start a receiver and wait until it listens; it ends with `stack`."""
    shared = Shared(context.Value("q", 0), context.Value("q", 0), context.Value("q", 0), context.Event())
    process = context.Process(target=run, args=(*arguments, shared), daemon=True)
    process.start()
    stack.callback(process.join, TIME_LIMIT_SECONDS)
    stack.callback(shared.stop.set)
    wait_for(lambda: shared.ready.value > 0, "a receiver does not start")
    return psutil.Process(process.pid), shared


def measure_round(contender: Contender, port: int, load: Load, seconds: float) -> None:
    """Send batches to one contender for some time and record the measurements."""
    broker = next(each for each in psutil.Process().children(recursive=True) if "mosquitto" in each.name())
    first = contender.done()
    with sending(port, load, contender.shared) as sender:
        wait_for(lambda: contender.done() > first, "no batch arrives")
        time.sleep(SETTLE_SECONDS * min(1.0, seconds / 2))
        # From the end of a commit to the end of another.
        parts = (contender.process, broker, sender)
        before = (*next_progress(contender), *map(used_us, parts))
        time.sleep(seconds)
        after = (*next_progress(contender), *map(used_us, parts))
    if not contender.prefix:
        contender.acknowledged += contender.done() - first
    passed, batches, *used = (late - early for late, early in zip(after, before, strict=True))
    contender.batches_per_second.append(batches / passed)
    contender.busy.append(sum(used) / 1e6 / passed / (psutil.cpu_count() or 1))
    for spent, found in zip(used, (contender.processor_us, contender.broker_us, contender.sender_us), strict=True):
        found.append(spent / max(1, batches))


def next_progress(contender: Contender) -> tuple[float, int]:
    """Wait for the next progress of a receiver; return when it was, and how far it is."""
    done = contender.done()
    wait_for(lambda: contender.done() > done, "no batch arrives any more")
    return time.monotonic(), contender.done()


@contextmanager
def sending(port: int, load: Load, receiver: Shared) -> Iterator[psutil.Process]:
    """Send batches from a process of its own while the block runs; yield it."""
    shared = Shared(receiver.ready, receiver.taken, receiver.stored, context.Event())
    process = context.Process(target=send, args=(port, load, shared), daemon=True)
    process.start()
    try:
        yield psutil.Process(process.pid)
    finally:
        shared.stop.set()
        process.join(TIME_LIMIT_SECONDS)


def stored_rows(table: Path) -> int:
    """Return how many rows a stream's table has."""
    files = DeltaTable(str(table)).get_add_actions(flatten=True)
    return sum(count.as_py() for count in files.column("num_records"))


def used_us(process: psutil.Process) -> float:
    """Return the processor time that a process has used."""
    times = process.cpu_times()
    return (times.user + times.system) * 1e6


def wait_for(reached: Callable[[], bool], problem: str) -> None:
    """Wait for a condition; fail after too long."""
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        time.sleep(0.005)


def described(contenders: list[Contender]) -> dict[str, Any]:
    """Return the report. Rates are medians over the rounds, with the least and the greatest."""
    by_name = {each.name: [rate * each.rows for rate in each.batches_per_second] for each in contenders}
    small, large = by_name[f"rows{SMALL}"], by_name[f"rows{LARGE}"]
    pairs = {
        "small_over_large": (small, large),
        "small_over_link": (small, by_name["link"]),
        "small_over_bare_aiomqtt2": (small, by_name["bare"]),
        "link_over_large": (by_name["link"], large),
    }
    report: dict[str, Any] = {}
    for name, (some, others) in pairs.items():
        ratios = [one / other for one, other in zip(some, others, strict=True)]
        report |= {name: round(statistics.median(ratios), 3), f"{name}_spread": spread(ratios, 3)}
    for each in contenders:
        figures = {
            "rows_per_s": round(statistics.median(by_name[each.name])),
            "rows_per_s_spread": spread(by_name[each.name], 0),
            "processor_s_per_1000_batches": round(statistics.median(each.processor_us) / 1e3, 3),
            "broker_s_per_1000_batches": round(statistics.median(each.broker_us) / 1e3, 3),
            "sender_s_per_1000_batches": round(statistics.median(each.sender_us) / 1e3, 3),
            "processors_busy": round(statistics.median(each.busy), 2),
        }
        if each.prefix:
            report.setdefault("compared", {})[each.name] = figures
        else:
            report |= {f"{each.name}_{name}": value for name, value in figures.items()}
    return report


def spread(values: list[float], digits: int) -> list[float]:
    """Return the least and the greatest value."""
    return [round(min(values), digits), round(max(values), digits)]


def plot(contenders: list[Contender], path: Path) -> None:
    """Draw rows per second and processor time by the size of batches."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (rates, times) = plt.subplots(1, 2, figsize=(11, 4))
    stored = [each for each in contenders if not each.prefix]
    sizes = [each.rows for each in stored]
    rates.plot(sizes, [each.rows * statistics.median(each.batches_per_second) for each in stored], marker="o")
    for each in contenders:
        if each.prefix:
            rates.plot(each.rows, each.rows * statistics.median(each.batches_per_second), "s", label=each.name)
    rates.set(xscale="log", yscale="log", xlabel="rows of a batch", ylabel="rows per second")
    rates.legend()
    times.plot(sizes, [statistics.median(each.processor_us) for each in stored], marker="o")
    times.set(xscale="log", xlabel="rows of a batch", ylabel="microseconds of processor time a batch", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()

"""A whole proxy against a bare subscriber: packets per second through the broker, what is lost, and memory.

In the same run and in turn, a publisher sends the same packets, with a quality of service of 1, to

* bare: an aiomqtt 2 subscriber that only counts them;
* link: Fjord's own link to the broker, which only counts them;
* proxy: a whole proxy, with its stores on disk, 300 queries on the motes' stream, and a process that acknowledges
  its batches;
* keyed: the same, with a key for each mote and for the proxy, connected by TLS with a certificate (`keyed_over_plain`).

The broker's processor time is measured too: one core of it is the upper limit for all of them.

    python benchmarks/proxy.py [--quick] [--json] [--rounds 7] [--packets 60000] [--motes 1000]
"""

from __future__ import annotations

import argparse
import multiprocessing.process
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from proxy_broker import broker_with_tls
from proxy_load import KEYED, QUERIES, SAMPLES_PER_PACKET, Publisher, Shared, announcement, announcements, publish
from proxy_merging import merging
from proxy_processes import TIME_LIMIT_SECONDS, context, new_shared, start_process, wait_for
from proxy_recording import recording
from proxy_takers import run_acknowledger, run_bare, run_link, run_proxy
from reports import write_report

from protocols.event_log import configure_logging
from protocols.wire.frames import encode
from protocols.wire.packets import decode_announcement
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits

KIBIBYTE, MEBIBYTE = 1024, 1024**2
IDLE_SENSORS, FEW_IDLE_SENSORS = 10_000, 3_000


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer rounds, packets and queries: within a minute")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--packets", type=int, default=60_000, help="in each round, to each")
    arguments.add_argument("--motes", type=int, default=1_000)
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.packets = 3, 18_000
    configure_logging("warning")
    size = Size(options.rounds, options.packets, options.motes)
    with tempfile.TemporaryDirectory(prefix="fjord-proxy-") as folder:
        contenders, report = throughput(Path(folder), size)
    quick = options.quick
    report |= idle_sensors(FEW_IDLE_SENSORS if quick else IDLE_SENSORS)
    report |= merging(queries=100, rounds=1) if quick else merging()
    report |= recording(options.rounds if quick else 4 * options.rounds)
    write_report(report, "proxy", lambda path: plot(contenders, path), as_json=options.json)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run: rounds, packets in each round to each contender, and motes that send them."""

    rounds: int
    packets: int
    motes: int


@dataclass
class Contender:
    """A receiver of packets: its processes, and its measurements in each round."""

    name: str
    process: multiprocessing.process.BaseProcess
    shared: Shared
    sent: int = 0
    lost: int = 0
    rates: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)
    resident_bytes: list[int] = field(default_factory=list)


def throughput(folder: Path, size: Size) -> tuple[list[Contender], dict[str, Any]]:
    """Let all take turns; return the contenders with their measurements, and the report."""
    with broker_with_tls(folder, KEYED) as ports, ExitStack() as stack:
        keyed = start(stack, partial(run_proxy, deployment=str(ports.folder)), ports.tls, KEYED, str(folder / KEYED))
        contenders = [
            start(stack, run_bare, ports.plain, "bare"),
            start(stack, run_link, ports.plain, "link"),
            keyed,
            start(stack, run_proxy, ports.plain, "proxy", str(folder / "proxy")),
        ]
        take_turns(stack, ports.plain, contenders, size)
    return contenders, describe(contenders, size)


def start(stack: ExitStack, run: Callable[..., None], port: int, name: str, *more: str) -> Contender:
    """Start a contender; it ends with `stack`."""
    shared = new_shared()
    return Contender(name, start_process(stack, run, port, name, *more, shared), shared)


def take_turns(stack: ExitStack, port: int, contenders: list[Contender], size: Size) -> None:
    """Prepare all contenders, and measure each in each round."""
    proxies = contenders[-2:]
    for proxy in proxies:
        start_process(stack, run_acknowledger, port, proxy.name, proxy.shared)
    for each in contenders:
        wait_for(lambda ready=each.shared.ready: ready.value > 0, f"{each.name} is not ready")
    for proxy in proxies:
        publisher = Publisher(port)
        publisher.publish(announcements(proxy.name, size.motes), context.Value("q", 0))
        publisher.close()
        wait_for(lambda ready=proxy.shared.ready: ready.value > size.motes, "the proxy does not know the motes")
    for _ in range(size.rounds):
        for each in contenders:
            measure_round(each, port, size)
    for proxy in proxies:
        rows = proxy.sent * SAMPLES_PER_PACKET
        wait_for(
            lambda rows=rows, stored=proxy.shared.rows: stored.value >= rows,
            f"rows of {proxy.name} did not reach the cluster",
            fail=False,
        )


def measure_round(contender: Contender, port: int, size: Size) -> None:
    """Send packets to one contender and record the measurements."""
    began = context.Value("d", 0.0)
    which = (contender.name, size.motes, contender.sent, size.packets)
    contender.sent += size.packets
    taken, expected = contender.shared.taken, contender.sent - contender.lost
    watched, broker = psutil.Process(contender.process.pid), broker_process()
    before, broker_before = used_us(watched), used_us(broker)
    publishing = context.Process(target=publish, args=(port, which, began, contender.shared), daemon=True)
    publishing.start()
    wait_for(lambda: taken.value >= expected, f"{contender.name} did not take all packets", fail=False)
    ended = time.monotonic()
    publishing.join(TIME_LIMIT_SECONDS)
    after, broker_after = used_us(watched), used_us(broker)
    contender.lost += expected - taken.value
    contender.rates.append(size.packets / (ended - began.value))
    contender.processor_us.append((after - before) / size.packets)
    contender.broker_us.append((broker_after - broker_before) / size.packets)
    contender.resident_bytes.append(watched.memory_info().rss)


def broker_process() -> psutil.Process:
    """Return the broker, which this process has started."""
    return next(each for each in psutil.Process().children(recursive=True) if "mosquitto" in each.name())


def used_us(process: psutil.Process) -> float:
    """Return the processor time that a process has used."""
    times = process.cpu_times()
    return (times.user + times.system) * 1e6


def describe(contenders: list[Contender], size: Size) -> dict[str, Any]:
    """Return the report."""
    keyed, proxy = contenders[-2:]
    medians = {each.name: statistics.median(each.rates) for each in contenders}
    resident = proxy.resident_bytes
    return {
        "over_bare_aiomqtt2": round(medians["proxy"] / medians["bare"], 2),
        "link_over_bare_aiomqtt2": round(medians["link"] / medians["bare"], 2),
        "keyed_over_plain": round(medians[KEYED] / medians["proxy"], 2),
        "lost": proxy.lost,
        "keyed_lost": keyed.lost,
        "keyed_lost_rows": keyed.sent * SAMPLES_PER_PACKET - keyed.shared.rows.value,
        "lost_rows": proxy.sent * SAMPLES_PER_PACKET - proxy.shared.rows.value,
        "memory_growth_mb": round((resident[-1] - resident[0]) / MEBIBYTE, 1),
        "memory_mb": round(resident[-1] / MEBIBYTE, 1),
        **{f"{name}_packets_per_s": round(rate) for name, rate in medians.items()},
        **{
            f"{each.name}_processor_us_per_packet": round(statistics.median(each.processor_us), 1)
            for each in contenders
        },
        "broker_processor_us_per_packet": round(statistics.median(proxy.broker_us), 1),
        "samples_per_packet": SAMPLES_PER_PACKET,
        "queries": QUERIES,
        "motes": size.motes,
        "packets": proxy.sent,
        "rounds": size.rounds,
    }


def idle_sensors(sensors: int) -> dict[str, Any]:
    """Return how much a process grows by for each mote that has announced itself and sends nothing."""
    with context.Pool(1) as pool:
        grown_bytes = pool.apply(learn_sensors, (sensors,))
    return {"idle_sensors": sensors, "idle_sensor_kb": round(grown_bytes / sensors / KIBIBYTE, 2)}


def learn_sensors(motes: int) -> int:
    """Let a fleet learn motes from their announcements; return by how many bytes this process has grown."""
    payloads = [encode(announcement(place)) for place in range(motes)]
    fleet = Fleet("idle", FleetLimits(motes=motes), now_us=0)
    before = psutil.Process().memory_info().rss
    for payload in payloads:
        fleet.receive_announcement(decode_announcement(payload), radio_us=0, received_us=0)
    grown = psutil.Process().memory_info().rss - before
    if sum(fleet.states().values()) != motes:
        raise RuntimeError("the fleet has not learnt all motes")
    return grown


def plot(contenders: list[Contender], path: Path) -> None:
    """Draw packets per second by round, and the proxy's memory."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (rates, memory) = plt.subplots(1, 2, figsize=(11, 4))
    for each in contenders:
        rates.plot(range(1, len(each.rates) + 1), each.rates, marker="o", label=each.name)
    rates.set(xlabel="round", ylabel="packets per second", ylim=(0, None))
    rates.legend()
    resident = [size / MEBIBYTE for size in contenders[-1].resident_bytes]
    memory.plot(range(1, len(resident) + 1), resident, marker="o")
    memory.set(xlabel="round", ylabel="resident MiB of the proxy", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()

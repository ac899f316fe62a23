"""What `--record` adds to the processor time of a proxy.

Two proxies, of which one is recorded, have a broker each and get the same packets in turn, in bursts of four, each
after the one before: so a turn of the event loop handles few packets, and what is noted of it weighs most. One
command measures nothing else:

    python benchmarks/proxy_recording.py [ROUNDS]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from proxy_load import Publisher, Shared, announcements, packets
from proxy_processes import context, new_shared, start_process, wait_for
from proxy_takers import run_acknowledger, run_proxy, run_recorded_proxy

from proxy.broker import running_broker

ROUNDS = 28
MOTES = 100
BURST, BURSTS = 4, 200
"""Packets that are sent together, and how often in each round."""
SETTLE_SECONDS = 0.15
"""After a round: batches are cut, written and acknowledged, and the last of the log is written."""


@dataclass(slots=True)
class Measured:
    """A proxy, and its processor time in each round."""

    shared: Shared
    publisher: Publisher
    packets: list[bytes]
    used_ns: list[int] = field(default_factory=list)


def recording(rounds: int = ROUNDS) -> dict[str, Any]:
    """Return `recorded_over_bare`: processor time of a proxy that is recorded over that of one that is not."""
    with tempfile.TemporaryDirectory(prefix="fjord-recording-") as folder:
        bare, recorded = asyncio.run(_with_brokers(Path(folder), rounds))
    ratios = [one / other for one, other in zip(recorded.used_ns, bare.used_ns, strict=True)]
    sent = BURST * BURSTS
    return {
        "recorded_over_bare": round(statistics.median(ratios), 3),
        "recorded_over_bare_in_sum": round(sum(recorded.used_ns) / sum(bare.used_ns), 3),
        "bare_us_per_packet_of_bursts": round(statistics.median(bare.used_ns) / sent / 1e3, 1),
        "recording_rounds": rounds,
    }


async def _with_brokers(folder: Path, rounds: int) -> list[Measured]:
    async with running_broker(engine="mosquitto") as one, running_broker(engine="mosquitto") as other:
        with ExitStack() as stack:
            return await asyncio.to_thread(
                _take_turns,
                [
                    _start(stack, run_proxy, one.port, folder / "bare", rounds),
                    _start(stack, run_recorded_proxy, other.port, folder / "recorded", rounds),
                ],
                rounds,
            )


def _start(stack: ExitStack, run: Callable[..., None], port: int, folder: Path, rounds: int) -> Measured:
    """Start a proxy, and let it know its motes."""
    name, shared = folder.name, new_shared()
    start_process(stack, run, port, name, str(folder), shared)
    start_process(stack, run_acknowledger, port, name, shared)
    wait_for(lambda: shared.ready.value > 0, f"{name} is not ready")
    publisher = Publisher(port)
    stack.callback(publisher.close)
    publisher.publish(announcements(name, MOTES), context.Value("q", 0))
    wait_for(lambda: shared.ready.value > MOTES, f"{name} does not know the motes")
    return Measured(shared, publisher, packets(name, MOTES, 0, (rounds + 1) * BURST * BURSTS))


def _take_turns(proxies: list[Measured], rounds: int) -> list[Measured]:
    """Measure each proxy in each round; a first one is not counted."""
    for turn in range(rounds + 1):
        for each in proxies if turn % 2 else reversed(proxies):
            before = each.shared.processor_ns.value
            first = turn * BURST * BURSTS
            for place in range(first, first + BURST * BURSTS, BURST):
                each.publisher.publish(each.packets[place : place + BURST], each.shared.taken)
            expected = first + BURST * BURSTS
            wait_for(lambda shared=each.shared, all_of=expected: shared.taken.value >= all_of, "packets are missing")
            time.sleep(SETTLE_SECONDS)
            if turn:
                each.used_ns.append(each.shared.processor_ns.value - before)
    return proxies


if __name__ == "__main__":
    print(json.dumps(recording(*map(int, sys.argv[1:2]))))

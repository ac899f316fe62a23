"""Recovery after ``kill -9``: from the kill of a part to the first row of a sample that was taken after it.

Motes, a proxy, a cluster and a broker run as separate processes, and one query passes every sample on. In turn the
publisher, the proxy, the broker and the cluster (and with it Spark's Java and workers) are killed. The publisher is
restarted by its cluster; the others are started again at once, as a service manager would. Rows are numbered, so that a
subscriber sees whether one never came (`rows_missing`).

    python benchmarks/recovery.py [--quick] [--json] [--motes 64] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from archived_classes import classes_are_archived
from reports import write_report

from cluster.demo.parts import Child, Children, Parts
from cluster.service.client.api_client import ApiClient
from cluster.service.publishing.supervised_publishers import MODULE
from protocols.event_log import configure_logging
from protocols.mqtt.link import Message, MqttLink, Subscription
from protocols.wire import topics

QUERY = "SELECT sensor, speed FROM traffic"
VICTIMS = ("publisher", "proxy", "broker", "cluster")
SETTLE_SECONDS = 8.0
"""Between kills: by then rows come as before."""
LIMIT_SECONDS = 180.0


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="kill the publisher and the cluster, once each")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--motes", type=int, default=64)
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    victims = ("publisher", "cluster") if options.quick else VICTIMS
    rounds = 1 if options.quick else options.rounds
    configure_logging("critical")  # that the broker is away is no news here
    archived = classes_are_archived(quick=options.quick)
    with tempfile.TemporaryDirectory(prefix="fjord-recovery-") as folder, Children(Path(folder) / "logs") as children:
        deployment = Deployment(children, Path(folder), options.motes)
        asyncio.run(deployment.suffer(victims, rounds))
    report = described(deployment, options.motes) | {"classes_archived": archived}
    write_report(report, "recovery", lambda path: plot(deployment.recoveries_s, path), as_json=options.json)


class Deployment:
    """Parts that are killed in turn, and a subscriber of the query's rows."""

    def __init__(self, children: Children, folder: Path, motes: int) -> None:
        self.recoveries_s: dict[str, list[float]] = {}
        self.numbers: set[int] = set()
        self._children = children
        self._parts = Parts.on_free_ports(children, folder)
        self._broker = self._parts.start_broker()
        began = time.monotonic()
        self._cluster = self._parts.start_cluster()
        self.start_s = time.monotonic() - began
        self._proxy = self._parts.start_proxy("roadside")
        self._parts.start_motes("roadside", "--motes", str(motes))
        self._parts.wait_for_stream("traffic", self._proxy)
        self._sampled_after_s = self._arrived_s = float("inf")
        self._recovered = asyncio.Event()

    async def suffer(self, victims: Sequence[str], rounds: int) -> None:
        """Kill each victim in each round, and note how long rows took to come again."""
        link = MqttLink(
            self._parts.broker, client_id="fjord-recovery", subscriptions=[Subscription(topics.results("samples"))]
        )
        receiving = asyncio.create_task(link.run(self._receive))
        await link.connected.wait()
        with ApiClient(self._parts.api_address) as api:
            await asyncio.to_thread(api.add, QUERY, "samples")
        kills: Mapping[str, Callable[[], None]] = {
            "publisher": self._kill_publisher,
            "proxy": self._kill_proxy,
            "broker": self._kill_broker,
            "cluster": self._kill_cluster,
        }
        self._sampled_after_s = time.time()
        await self._rows_come()
        for _ in range(rounds):
            for victim in victims:
                await asyncio.sleep(SETTLE_SECONDS)
                self._recovered.clear()
                began = time.time()
                self._sampled_after_s = began
                restarting = asyncio.create_task(asyncio.to_thread(kills[victim]))
                arrived = await self._rows_come()
                self.recoveries_s.setdefault(victim, []).append(arrived - began)
                await restarting
        await asyncio.sleep(SETTLE_SECONDS)
        receiving.cancel()
        with suppress(asyncio.CancelledError):
            await receiving

    async def _receive(self, message: Message) -> None:
        answer: dict[str, Any] = json.loads(message.payload)
        if "row" not in answer:
            return
        self.numbers.add(answer["sequence"])
        if datetime.fromisoformat(answer["start"]).timestamp() >= self._sampled_after_s:
            self._arrived_s = time.time()
            self._sampled_after_s = float("inf")
            self._recovered.set()

    async def _rows_come(self) -> float:
        await asyncio.wait_for(self._recovered.wait(), LIMIT_SECONDS)
        return self._arrived_s

    def _kill_publisher(self) -> None:
        for each in psutil.Process(self._cluster.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if MODULE in each.cmdline():
                    each.send_signal(signal.SIGKILL)

    def _kill_proxy(self) -> None:
        self._kill(self._proxy)
        self._proxy = self._parts.start_proxy("roadside")

    def _kill_broker(self) -> None:
        self._kill(self._broker)
        self._broker = self._parts.start_broker()

    def _kill_cluster(self) -> None:
        self._kill(self._cluster)
        self._cluster = self._parts.start_cluster()

    def _kill(self, child: Child) -> None:
        self._children.forget(child)
        child.process.kill()
        child.process.wait()


def described(deployment: Deployment, motes: int) -> dict[str, Any]:
    """Return the figures: medians and spreads of seconds by victim."""
    found: dict[str, Any] = {}
    for victim, seconds in deployment.recoveries_s.items():
        found[f"recovery_{victim}_s"] = round(statistics.median(seconds), 2)
        found[f"recovery_{victim}_s_spread"] = [round(min(seconds), 2), round(max(seconds), 2)]
    newest = max(deployment.numbers)
    return found | {
        "recovery_cluster_over_start": round(found["recovery_cluster_s"] / deployment.start_s, 2),
        "start_s": round(deployment.start_s, 2),
        "rows": newest,
        "rows_missing": newest - len(deployment.numbers),
        "motes": motes,
        "rounds": max(map(len, deployment.recoveries_s.values())),
    }


def plot(recoveries_s: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draw each recovery by victim."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4))
    for place, seconds in enumerate(recoveries_s.values()):
        axes.plot([place] * len(seconds), seconds, "o", alpha=0.6)
    axes.set_xticks(range(len(recoveries_s)), list(recoveries_s))
    axes.set(xlabel="killed", ylabel="seconds until a later sample's row", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()

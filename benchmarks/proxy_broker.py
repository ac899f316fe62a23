"""The broker of benchmarks/proxy.py: a Mosquitto with one port as it is, and one with TLS and rules of access.

What publishes uses the first, whichever proxy receives: so two proxies differ in what they themselves do.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.demo.parts import accepts, free_port
from protocols.child_process import ending_with_this_process
from protocols.deployment.broker_configuration import BrokerPart
from protocols.deployment.folder import DeploymentFolder
from protocols.deployment.identities import FORMAT, Deployment
from protocols.deployment.names import Names, ProxyPart
from protocols.mqtt.link import BrokerAddress
from proxy.broker.mosquitto import find_mosquitto

SECONDS = 30


@dataclass(frozen=True, slots=True)
class Ports:
    """Where it listens.

    Parameters
    ----------
    plain, tls
        Ports on 127.0.0.1.
    folder
        The folder of its deployment, with a certificate for each proxy.
    """

    plain: int
    tls: int
    folder: Path


@contextlib.contextmanager
def broker_with_tls(folder: Path, proxy: str) -> Iterator[Ports]:
    """Run it, with a certificate for a proxy; on entry it accepts connections."""
    program = find_mosquitto()
    if program is None:
        raise SystemExit("this benchmark needs Mosquitto")
    ports = Ports(free_port(), free_port(), folder / "deployment")
    user = "root" if os.geteuid() == 0 else None
    broker = BrokerPart(("127.0.0.1",), str(ports.folder / "broker"), port=ports.tls, user=user)
    names = Names(proxies=(ProxyPart(proxy),))
    DeploymentFolder.create(ports.folder, Deployment(FORMAT, broker, names, ("127.0.0.1",), 365), time.time())
    file = folder / "mosquitto.conf"
    secured = (ports.folder / "broker" / "mosquitto.conf").read_text()
    file.write_text(f"per_listener_settings true\n{secured}listener {ports.plain} 127.0.0.1\nallow_anonymous true\n")
    with subprocess.Popen(
        ending_with_this_process([program, "-c", file]), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while not all(accepts(BrokerAddress(port=each)) for each in (ports.plain, ports.tls)):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("Mosquitto does not listen")
                time.sleep(0.02)
            yield ports
        finally:
            process.terminate()
            process.wait(SECONDS)

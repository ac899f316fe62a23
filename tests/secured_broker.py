"""Deployments that `fjord security` makes, and a Mosquitto with the configuration of one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import replace

from cluster.demo.parts import accepts, free_port
from protocols.child_process import ending_with_this_process
from protocols.deployment.broker_configuration import BrokerPart
from protocols.deployment.folder import DeploymentFolder
from protocols.deployment.identities import FORMAT, Deployment, identities
from protocols.mqtt.link import BrokerAddress
from protocols.security.tls import TlsFiles
from proxy.broker.mosquitto import find_mosquitto

SECONDS = 30


def deployed(folder, names, *, days=365, now=None, hosts=("127.0.0.1", "localhost")):
    """Make a deployment, whose broker listens on a free port of this machine."""
    user = "root" if os.geteuid() == 0 else None
    broker = BrokerPart(hosts, str(folder.absolute() / "broker"), port=free_port(), user=user)
    wanted = Deployment(FORMAT, broker, names, ("127.0.0.1", "localhost"), days)
    return DeploymentFolder.create(folder, wanted, time.time() if now is None else now)


def files_of(opened, name):
    """The files for TLS of a part of a deployment."""
    each = next(each for each in identities(opened.deployment) if each.name == name)
    folder = opened.path
    return TlsFiles(str(folder / each.folder / "ca.crt"), str(folder / each.certificate), str(folder / each.key))


def address_of(opened, name, **changes):
    """The address of the broker, with the files of a part."""
    return BrokerAddress("127.0.0.1", opened.deployment.broker.port, tls=replace(files_of(opened, name), **changes))


@contextlib.contextmanager
def running_mosquitto(opened, log):
    """Run Mosquitto as `fjord security init` has configured it; `log` is the file of what it prints."""
    program = find_mosquitto()
    assert program is not None, "install Mosquitto"
    address = BrokerAddress("127.0.0.1", opened.deployment.broker.port)
    with log.open("ab") as output, subprocess.Popen(
        ending_with_this_process([program, "-c", opened.path / "broker" / "mosquitto.conf"]),
        stdin=subprocess.DEVNULL, stdout=output, stderr=output,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + SECONDS
            while not accepts(address):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            yield process
        finally:
            process.terminate()
            process.wait(SECONDS)

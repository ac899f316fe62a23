"""The page about securing a deployment, followed word for word; a part without a certificate is refused after it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cluster.demo.parts import accepts, free_port
from protocols.child_process import ending_with_this_process
from protocols.mqtt.link import BrokerAddress
from proxy.broker.mosquitto import find_mosquitto
from tests.system.followed_page import Reload, Terminals, differences, steps_of, type_in
from tests.system.page_reader import ROOT
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark]

PAGE = ROOT / "docs" / "how-to" / "secure-a-deployment.md"
SECONDS = 400
OPEN = {"127.0.0.1", "::1"}
"""Addresses that only programs of this machine reach."""


class Reader:
    """Types the commands of the page, each terminal in a process of its own, with ports of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker_port, self.api_port = free_port(), free_port()
        self.terminals: dict[str, subprocess.Popen[bytes]] = {}
        programs = folder / "bin"
        programs.mkdir()
        (programs / "fjord").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m protocols.command_line "$@"\n')
        (programs / "fjord").chmod(0o755)
        found = find_mosquitto()
        assert found is not None, "install Mosquitto"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FJORD_")},
            "PATH": f"{programs}:{os.environ['PATH']}:{found.parent}",
            "PYTHONPATH": str(ROOT),
        }

    def open_terminal(self, command: str) -> None:
        name = re.sub(r"\W+", "-", command.rsplit("fjord ", maxsplit=1)[-1])
        # `env` and `mosquitto` take the place of the shell, so that they get the signals.
        with (self.folder / f"{name}.log").open("wb") as log:
            self.terminals[name] = subprocess.Popen(
                ending_with_this_process(["bash", "-c", f"exec {command}"]), cwd=self.folder, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        if command.startswith("mosquitto"):
            wait_for(lambda: accepts(BrokerAddress("localhost", self.broker_port)), seconds=SECONDS)
        elif command.endswith("fjord cluster"):
            self.wait_for("fjord stream list", "no streams|name|traffic|^$")

    def wait_for(self, command: str, words: str) -> None:
        def reached() -> bool:
            for name, process in self.terminals.items():
                assert process.poll() is None, (self.folder / f"{name}.log").read_text()
            done = subprocess.run(
                ["bash", "-c", f"env $(cat secure/cluster/environment) {command}"], cwd=self.folder,
                env=self.environment, capture_output=True, text=True, timeout=150, check=False,
            )  # fmt: skip
            return done.returncode == 0 and re.search(words, done.stdout) is not None

        wait_for(reached, seconds=SECONDS)

    def type(self, command: str) -> list[str]:
        if command.startswith("fjord security init"):
            user = " --broker-user root" if os.geteuid() == 0 else ""
            ports = f"--broker-port {self.broker_port} --api-port {self.api_port}"
            command = command.replace("init secure", f"init secure {ports}{user}")
        return type_in(command, self.folder, self.environment)

    def end(self) -> None:
        for process in reversed(self.terminals.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def listening(reader: Reader) -> dict[str, list[tuple[str, int]]]:
    """Return the addresses that all processes of a deployment listen on, by program."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for terminal in reader.terminals.values():
        top = psutil.Process(terminal.pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # one that has ended meanwhile listens on nothing
                words, program = process.cmdline(), process.name()
                command = next((word for word in words if word in {"cluster", "proxy", "motes"}), "")
                name = program if program in {"mosquitto", "java"} else f"fjord {command}"
                open_now = process.net_connections("inet")
                listens = {tuple(each.laddr) for each in open_now if each.status == psutil.CONN_LISTEN}
                # A process that was forked has the sockets of its parent.
                found[name] += sorted(listens - set(found[name]))
    return {name: addresses for name, addresses in found.items() if addresses}


def documented() -> dict[str, int]:
    """Return how many sockets each program listens on, as the security page says."""
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \| ", page, re.MULTILINE)
    return dict(sum((Counter({name: int(number)}) for name, number in rows), Counter()))


def test_the_page_secures_a_deployment(tmp_path: Path) -> None:
    reader, commands = Reader(tmp_path), 0
    try:
        for step in steps_of(PAGE, ""):
            if isinstance(step, Terminals):
                for command in step.commands:
                    reader.open_terminal(command)
                reader.wait_for("fjord stream list", "traffic")
            elif isinstance(step, Reload):
                reader.terminals["mosquitto-c-secure-broker-mosquitto-conf"].send_signal(signal.SIGHUP)
                time.sleep(1)
            else:
                found = reader.type(step.command)
                assert not differences(step.printed, found), (step.command, found)
                commands += 1
        assert commands == 9
        assert {name: len(found) for name, found in listening(reader).items()} == documented()
        assert {ip.removeprefix("::ffff:") for found in listening(reader).values() for ip, _ in found} <= OPEN
        # A part that is not invited is refused, with the reason.
        (tmp_path / "none").write_text("FJORD_BROKER_CA=secure/authority/ca.crt\n")
        uninvited = (
            f"env $(cat none) fjord --log-level warning motes run --broker localhost:{reader.broker_port} --duration 3s"
        )
        printed = "\n".join(type_in(uninvited, tmp_path, reader.environment))
        assert "broker is away" in printed
        assert "certificate" in printed
        logs = "".join(each.read_text() for each in tmp_path.glob("*.log"))
        assert "PRIVATE" not in logs
    finally:
        reader.end()

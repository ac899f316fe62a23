"""Following a page of documentation: terminals, commands, and the services that these need."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from cluster.demo.parts import Child, Children, Parts, accepts, is_ready
from cluster.service.client.api_client import ApiClient
from tests.system.followed_page import Step, Terminals, differences, steps_of, type_in

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
STREAM_SECONDS = 30.0
"""Seconds until motes are announced: a reader needs longer to change to another terminal."""


class Reader:
    """Runs the commands of a page in terminals, with ports and folders of a test.

    Parameters
    ----------
    children
        Holds the running commands.
    folder
        Working folder of the commands.
    environment
        Variables for the database.
    """

    def __init__(self, children: Children, folder: Path, environment: dict[str, str]) -> None:
        self.parts = Parts.on_free_ports(children, folder)
        (folder / "examples").symlink_to(ROOT / "examples")
        programs = folder / "bin"
        programs.mkdir()
        (programs / "python").symlink_to(sys.executable)
        fjord = programs / "fjord"
        fjord.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m protocols.command_line "$@"\n')
        fjord.chmod(0o755)
        self.environment = {
            **os.environ,
            **environment,
            "PATH": f"{programs}:{environment.get('PATH', os.environ['PATH'])}",
            "PYTHONPATH": str(ROOT),
            "FJORD_BROKER": str(self.parts.broker),
            # A reader types in the repository; here, its examples are linked to from elsewhere.
            "FJORD_RELATION_FOLDERS": str(ROOT / "examples"),
            "FJORD_API": self.parts.api_address,
            "FJORD_TAIL_FORMAT": "table",  # as on a terminal
            "FJORD_API_PORT": self.parts.api_address.rpartition(":")[2],
        }

    def open_terminal(self, command: str) -> None:
        """Start a command that keeps running, and wait as the page requires."""
        fjord, name, *rest = command.split()
        assert fjord == "fjord"
        if name == "broker":
            rest = ["--port", str(self.parts.broker.port), *rest]
        child = self.parts.children.start(name, [name, *rest], self.environment)
        if name == "broker":
            self.parts.children.wait_until(lambda: accepts(self.parts.broker), child, seconds=SECONDS)
        if name == "cluster":
            self._wait_for_cluster(child)

    def follow(self, page: Path, chosen: str = "") -> int:
        """Run the commands of a page, compare their output, and return the number of commands."""
        commands = 0
        for step in steps_of(page, chosen):
            if isinstance(step, Terminals):
                for command in step.commands:
                    self.open_terminal(command)
                continue
            assert isinstance(step, Step)
            found = self.type(step.command)
            assert not differences(step.printed, found), (step.command, found)
            commands += 1
        return commands

    def type(self, command: str) -> list[str]:
        """Type a command and return the lines it prints."""
        name, is_variable, value = command.partition("=")
        if is_variable and name.isidentifier():
            self.environment[name] = value
            return []
        deadline = time.monotonic() + STREAM_SECONDS
        while True:
            lines = type_in(command, self.parts.folder, self.environment)
            if not any("there is no stream '" in line for line in lines) or time.monotonic() > deadline:
                return lines
            time.sleep(0.5)

    def _wait_for_cluster(self, child: Child) -> None:
        with ApiClient(self.parts.api_address) as api:
            self.parts.children.wait_until(lambda: is_ready(api), child, seconds=SECONDS)

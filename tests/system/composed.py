"""The services of compose files, started without containers: the same commands, with the same environment variables.

Folders of containers are folders of a test, by each service's volumes; ports are free ones.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from cluster.demo.parts import accepts
from protocols.child_process import ending_with_this_process
from protocols.mqtt.link import BrokerAddress
from proxy.broker.mosquitto import find_mosquitto
from tests.system.waiting import wait_for

SECONDS = 60
COMMAND_SECONDS = 150
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
HOME = "/var/lib/fjord"
API_PORT = "8642"


class Override(list[Any]):
    """A list that takes the place of the one in an earlier file."""


class Loader(yaml.SafeLoader):
    """Reads compose files, with their own tags."""


Loader.add_constructor("!override", lambda loader, node: Override(loader.construct_sequence(node, deep=True)))


def merged(base: Any, over: Any) -> Any:
    """Return a file's values with those of the next file in their place, as Compose merges them."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {key: merged(base.get(key), over[key]) if key in over else base[key] for key in {**base, **over}}
    if isinstance(base, list) and isinstance(over, list) and not isinstance(over, Override):
        return [*base, *over]
    return over


class Composed:
    """Services, as far as a test can start them. They end with this context.

    Parameters
    ----------
    folder
        For volumes.
    files
        The compose files, the later ones over the earlier.
    variables
        What Compose would find in its environment.
    api_port
        Where the API listens in place of 8642, which each container has for itself.
    """

    def __init__(self, folder: Path, files: list[Path], variables: Mapping[str, str], api_port: int) -> None:
        self._folder, self._api_port = folder, api_port
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        values: Any = {}
        for file in files:
            values = merged(values, yaml.load(file.read_text(), Loader))
        self._here = files[0].parent
        self.services: dict[str, Any] = self._filled(values["services"], variables)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def check(self) -> None:
        """Fail if a service has ended."""
        for name, process in self._running.items():
            assert process.poll() is None, (self._folder / f"{name}.log").read_text()

    def start(self, service: str) -> None:
        """Start a service whose image runs `fjord`."""
        command = self.services[service]["command"]
        folder = self.folder_of(service, HOME)
        folder.mkdir(parents=True, exist_ok=True)
        python = [sys.executable, "-m", "protocols.command_line", *command]
        self._start(service, python, cwd=folder, env=self.environment(service))

    def start_broker(self, address: BrokerAddress) -> None:
        """Start Mosquitto with the file that its container has, on this address in place of the one in the file."""
        program = find_mosquitto()
        assert program is not None, "install Mosquitto"
        text = self._folder_text("broker", self.folder_of("broker", "/mosquitto/config/mosquitto.conf").read_text())
        text = re.sub(r"^listener .*$", f"listener {address.port} 127.0.0.1", text, flags=re.MULTILINE)
        if os.geteuid() == 0:
            text += "user root\n"
        file = self._folder / "mosquitto.conf"
        file.write_text(text)
        (self._folder / "broker-data").mkdir()
        self._start("broker", [program, "-c", file])
        wait_for(lambda: accepts(address), seconds=SECONDS)

    def environment(self, service: str) -> dict[str, str]:
        """Return the environment of a service, and what a process on this machine needs besides."""
        given = {name: self._folder_text(service, str(value)) for name, value in self._environment(service).items()}
        needed = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "HOME") if name in os.environ}
        port = {"FJORD_API_PORT": str(self._api_port)} if service == "cluster" else {}
        return {**needed, "PYTHONPATH": str(Path(__file__).parents[2]), **given, **port}

    def run_in(self, service: str, *arguments: str, **more: str) -> str:
        """Run `fjord` in a service, as `docker compose exec` does; return what it prints."""
        return self._run([sys.executable, "-m", "protocols.command_line", *arguments], service, **more)

    def check_health(self, service: str) -> None:
        """Run the check of a service's health that its file has; it fails if that does."""
        kind, program, *rest = self.services[service]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        self._run([sys.executable, *(each.replace(API_PORT, str(self._api_port)) for each in rest)], service)

    def folder_of(self, service: str, path: str) -> Path:
        """Return where a path of a container is on this machine."""
        return Path(self._folder_text(service, path))

    def _start(self, name: str, command: list[Any], **options: Any) -> None:
        with (self._folder / f"{name}.log").open("wb") as output:
            self._running[name] = subprocess.Popen(
                ending_with_this_process(command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, **options,
            )  # fmt: skip

    def _run(self, command: list[str], service: str, **more: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder_of(service, HOME), env={**self.environment(service), **more},
            capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _environment(self, service: str) -> dict[str, Any]:
        found: dict[str, Any] = self.services[service].get("environment", {})
        return found

    def _folder_text(self, service: str, text: str) -> str:
        """Return a text with paths of a container replaced."""
        for volume in self.services[service].get("volumes", []):
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                place = self._here / source
            elif source.startswith("/"):
                place = Path(source)
            else:
                place = self._folder / source
            text = text.replace(target, str(place))
        text = text.replace(f"localhost:{API_PORT}", f"localhost:{self._api_port}")
        return text.replace(HOME, str(self._folder / service))

    def _filled(self, value: Any, variables: Mapping[str, str]) -> Any:
        if isinstance(value, dict):
            return {name: self._filled(each, variables) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each, variables) for each in value]
        if isinstance(value, str):
            return VARIABLE.sub(lambda found: variables.get(found[1]) or found[2] or "", value).replace("$$", "$")
        return value

"""Mosquitto as a child process with a private configuration."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from protocols.child_process import child_environment, ending_with_this_process
from protocols.event_log import get_logger
from protocols.security.private_files import LINK_HINT, file_link, make_private, warn_of_open
from proxy.broker.errors import BrokerError, BrokerFailedError, PortInUseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxy.broker.choice import BrokerSettings

_START_LIMIT_SECONDS: Final = 10.0
_STOP_LIMIT_SECONDS: Final = 5.0
_REMEMBERED_LINES: Final = 20
_SYSTEM_FOLDERS: Final = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"
# Mosquitto drops messages past this queue (1000 by default) when a subscriber is slow; its bytes are those of QoS 1.
_QUEUED_MESSAGES_PER_CLIENT: Final = 100_000
_QUEUED_BYTES_PER_CLIENT: Final = 256 * 1024**2
_MESSAGES_IN_FLIGHT_PER_CLIENT: Final = 1_000
# A client with a larger packet is disconnected; `message_size_limit` would drop it without a word.
_LARGEST_PACKET_BYTES: Final = 16 * 1024**2

# Its user is configured, see `configuration`.
_EXPECTED_WARNING: Final = "Warning: Mosquitto should not be run as root"

_log = get_logger(__name__)


def find_mosquitto(search_path: str | None = None) -> Path | None:
    """Find the Mosquitto program: on PATH, or where systems keep it for administrators."""
    folders = os.environ.get("PATH", os.defpath) if search_path is None else search_path
    found = shutil.which("mosquitto", path=folders)
    if found is None and search_path is None:
        found = shutil.which("mosquitto", path=_SYSTEM_FOLDERS)
    return None if found is None else Path(found)


def configuration(settings: BrokerSettings, *, as_root: bool) -> str:
    """Text of a mosquitto.conf.

    Parameters
    ----------
    settings
        What the broker should be; the port must be set.
    as_root
        Whether root starts it. Mosquitto would then change its user, and the kernel forgets to end a child with its
        parent when the child does that; so it is configured to stay.
    """
    lines = [
        f"listener {settings.port} {settings.host}",
        f"allow_anonymous {'true' if settings.password_file is None else 'false'}",
        f"max_queued_messages {_QUEUED_MESSAGES_PER_CLIENT}",
        f"max_queued_bytes {_QUEUED_BYTES_PER_CLIENT}",
        f"max_inflight_messages {_MESSAGES_IN_FLIGHT_PER_CLIENT}",
        f"max_packet_size {_LARGEST_PACKET_BYTES}",
        "set_tcp_nodelay true",
        "log_dest stderr",
        "log_timestamp false",
        "log_type error",
        "log_type warning",
        "log_type notice",
        "log_type information",
        "connection_messages false",
    ]
    if as_root:
        lines.append("user root")
    if settings.password_file is not None:
        lines.append(f"password_file {settings.password_file.resolve()}")
    if settings.persist is not None:
        lines += ["persistence true", f"persistence_location {settings.persist.resolve()}/", "autosave_interval 30"]
    else:
        lines.append("persistence false")
    return "\n".join(lines) + "\n"


class MosquittoProcess:
    """A running Mosquitto. It ends with this process, even if that is killed."""

    def __init__(self, process: asyncio.subprocess.Process, settings: BrokerSettings) -> None:
        self._process = process
        self._settings = settings
        self._ready = asyncio.Event()
        self._lines: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        self._reading = asyncio.create_task(self._read_log(), name="mosquitto log")

    async def wait_ready(self) -> None:
        """Wait until it listens.

        Raises
        ------
        PortInUseError
            Something else got the port first.
        BrokerFailedError
            It ended, or did not listen within ten seconds.
        """
        ready = asyncio.create_task(self._ready.wait(), name="mosquitto ready")
        try:
            await asyncio.wait(
                {ready, self._reading}, timeout=_START_LIMIT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ready.cancel()
        if self._ready.is_set():
            return
        if any("Address already in use" in line for line in self._lines):
            raise PortInUseError(self._settings.host, self._settings.port)
        raise BrokerFailedError(" / ".join(self._lines) or "Mosquitto printed nothing")

    async def wait_ended(self) -> str:
        """Wait until it ends by itself and return why."""
        code = await self._process.wait()
        await self._reading
        return f"Mosquitto ended with code {code}: {self._lines[-1] if self._lines else 'it printed nothing'}"

    async def stop(self) -> None:
        """End it: politely, then by force after five seconds."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), _STOP_LIMIT_SECONDS)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self._reading

    async def _read_log(self) -> None:
        stream = self._process.stderr
        if stream is None:
            return
        while line := (await stream.readline()).decode(errors="replace").strip():
            self._lines.append(line)
            if line.startswith(("Error", "Warning")) and not line.startswith(_EXPECTED_WARNING):
                _log.warning("mosquitto", line=line)
            else:
                _log.debug("mosquitto", line=line)
            # Written once all listeners are open.
            if line.startswith("mosquitto version") and line.endswith("running"):
                self._ready.set()


@contextlib.asynccontextmanager
async def running_mosquitto(program: Path, settings: BrokerSettings) -> AsyncIterator[MosquittoProcess]:
    """Run Mosquitto for the duration of the context; on entry it accepts connections."""
    if settings.persist is not None:
        if (link := file_link(settings.persist)) is not None:
            raise BrokerError(f"in the broker's folder, {link} is a link to a file", hint=LINK_HINT)
        make_private(settings.persist)
        warn_of_open(settings.persist)
    async with contextlib.AsyncExitStack() as stack:
        # It reads the file once; removed as soon as it listens, the file cannot be left behind by a kill.
        with tempfile.TemporaryDirectory(prefix="fjord-broker-") as folder:
            file = Path(folder) / "mosquitto.conf"
            file.write_text(configuration(settings, as_root=os.geteuid() == 0))
            process = await asyncio.create_subprocess_exec(
                *ending_with_this_process([program, "-c", file]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=child_environment(),
                start_new_session=True,  # Ctrl-C reaches us only; we end the broker last
            )
            running = MosquittoProcess(process, settings)
            stack.push_async_callback(running.stop)
            await running.wait_ready()
        yield running

"""Java's calls into this process, which are let in from processes of the same user only.

Spark's Java calls functions of Python, such as those of a sink, over a socket of the loopback device. Its library asks
for no token there: Java's side of it has none to show after Spark has named it the port. Any user of this machine
could call them. The kernel knows whose the other end of a connection is.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any, Final

from protocols.event_log import get_logger, is_logged

log = get_logger(__name__)

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""Where Linux lists connections, with their owners."""
MOST_READINGS: Final = 8
"""Of these tables: a line may be missing while others come and go, since the kernel writes them piece by piece."""
_MAPPED: Final = "0000000000000000FFFF0000"
"""Before an address of IPv4, as IPv6 writes it, in these tables."""
_LOCAL, _REMOTE, _OWNER = 1, 2, 7
"""Fields of a line."""


def owner_of(lines: Iterable[str], local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """Return the user of one end of a connection; None if it is not listed.

    Parameters
    ----------
    lines
        Of the tables of connections.
    local, remote
        Addresses of IPv4, and ports: that of the end, and of the other one.

    Examples
    --------
    >>> line = "0: 0100007F:9C41 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 65534 0 4711"
    >>> owner_of([line], ("127.0.0.1", 40001), ("127.0.0.1", 8080))
    65534
    """
    ends = [{_written(*end), _MAPPED + _written(*end)} for end in (local, remote)]
    for line in lines:
        fields = line.split()
        if len(fields) > _OWNER and fields[_LOCAL] in ends[0] and fields[_REMOTE] in ends[1]:
            return int(fields[_OWNER])
    return None


def _written(address: str, port: int) -> str:
    number = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    return f"{number:08X}:{port:04X}"


def is_own(connection: socket.socket) -> bool:
    """Return whether the other end of a connection over the loopback device is of this process's user.

    It is not if it is closed. This never raises: py4j would accept no further connection.
    """
    try:
        ends = connection.getpeername(), connection.getsockname()
        for _ in range(MOST_READINGS):
            lines = [line for table in TABLES if table.exists() for line in table.read_text("ascii").splitlines()]
            owner = owner_of(lines, *ends)
            if owner is not None:
                return owner == os.geteuid()
    except OSError:
        return False
    return False


class _Refused:
    """A connection that is closed instead of served."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def start(self) -> None:
        """Close it."""
        self.socket.close()

    def close(self) -> None:
        """It is closed already."""


def refuse_other_users(gateway: Any) -> None:
    """Let only processes of this user call functions of this process; before anything has been registered to be called.

    Where the kernel does not list connections (other systems than Linux), nothing is refused, and the log reports it.

    Parameters
    ----------
    gateway
        PySpark's connection to Java.
    """
    from py4j.clientserver import PythonServer  # noqa: PLC0415 - needs JAVA_HOME to be set

    if not TABLES[0].exists():
        log.warning("other users of this machine can call functions of this process", reason=f"there is no {TABLES[0]}")
        return

    times = count(1)

    class CheckedServer(PythonServer):  # type: ignore[misc]  # it has no types
        def _create_connection(self, connection: socket.socket, stream: Any) -> Any:
            if is_own(connection):
                return super()._create_connection(connection, stream)
            refused = next(times)
            if is_logged(refused):
                log.error("a connection of another user to Java's callbacks was refused", times=refused)
            stream.close()
            return _Refused(connection)

    def make_server(_: object) -> CheckedServer:
        return CheckedServer(
            gateway._gateway_client,  # noqa: SLF001 - as py4j makes its own server
            gateway.java_parameters,
            gateway.python_parameters,
            gateway.gateway_property,
        )

    gateway._create_callback_server = make_server  # noqa: SLF001 - where py4j makes its own server

"""The socket and the server of the HTTP API."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from typing import Any

import uvicorn

from cluster.errors import ClusterError


class ApiServer(uvicorn.Server):
    """A server that leaves signals to the command."""

    def install_signal_handlers(self) -> None:
        """Do nothing."""

    def capture_signals(self) -> Any:
        """Do nothing, under uvicorn's newer name."""
        return nullcontext()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises
    ------
    ClusterError
        If the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ClusterError(
            f"the API cannot listen on {host}:{port}: {error.strerror}",
            hint="another cluster may run there; choose another --api-port",
        ) from error
    return listening

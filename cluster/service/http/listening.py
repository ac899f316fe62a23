"""The socket and the server of the HTTP API."""

from __future__ import annotations

import socket
import ssl
from contextlib import nullcontext
from typing import Any

import uvicorn

from cluster.errors import ClusterError
from cluster.service.access.admission import MOST_HEAD_BYTES
from cluster.service.http.connection import BoundedConnection
from cluster.service.http.connection_bounds import ConnectionBounds
from cluster.service.http.handshake import Handshake
from protocols.security.tls import TlsFiles, server_context


class ApiServer(uvicorn.Server):
    """A server that leaves signals to the command."""

    def install_signal_handlers(self) -> None:
        """Do nothing."""

    def capture_signals(self) -> Any:
        """Do nothing, under uvicorn's newer name."""
        return nullcontext()


def api_config(app: Any, bounds: ConnectionBounds, *, tls: TlsFiles | None = None) -> uvicorn.Config:
    """Return the settings of the web server.

    Parameters
    ----------
    app
        The API.
    bounds
        Of all connections to it.
    tls
        Its certificate and key, and the authority of clients' certificates; None for no TLS.

    Raises
    ------
    CertificateFileError
        If a file cannot be used.
    """
    return uvicorn.Config(
        app,
        http=_secured(bounds, server_context(tls)) if tls is not None else _bounded(bounds),
        ws="none",
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )


def _bounded(bounds: ConnectionBounds) -> type[BoundedConnection]:
    class Connection(BoundedConnection):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.bounds = bounds

    return Connection


def _secured(bounds: ConnectionBounds, context: ssl.SSLContext) -> type[Handshake]:
    connection = _bounded(bounds)

    class SecuredConnection(Handshake):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(connection(*arguments, **named), context)

    return SecuredConnection


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

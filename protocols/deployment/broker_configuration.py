"""The configuration of Mosquitto for a deployment: TLS, a certificate from every client, and access rules. Pure."""

from __future__ import annotations

import msgspec

from protocols.mqtt.messages import DEFAULT_TLS_PORT
from protocols.security.certificates import check_host
from protocols.security.errors import SecurityError

HIGHEST_PORT = 65_535


class BrokerPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The broker.

    Parameters
    ----------
    hosts
        Names and addresses by which clients call it; the first is the one in their environment.
    folder
        Path of its folder on its machine.
    port, listen
        Where it listens; by default on the loopback address.
    data
        Folder for what it keeps over a restart; None for nothing.
    user
        User that it runs as, if root starts it; None leaves that to Mosquitto.
    password_port, password_listen
        Where it listens for devices that show a password, without TLS; None for nowhere.
    """

    hosts: tuple[str, ...]
    folder: str
    port: int = DEFAULT_TLS_PORT
    listen: str = "127.0.0.1"
    data: str | None = None
    user: str | None = None
    password_port: int | None = None
    password_listen: str = "127.0.0.1"  # noqa: S105 - an address

    def check(self) -> BrokerPart:
        """Return it if a configuration can be made of it.

        Raises
        ------
        SecurityError
            If there is no host, or a value cannot be in the file.
        """
        if not self.hosts:
            raise SecurityError("the broker has no name", hint="name its machine with --broker-host")
        for host in (*self.hosts, self.listen, self.password_listen):
            check_host(host)
        for port in (self.port, *([] if self.password_port is None else [self.password_port])):
            if not 0 < port <= HIGHEST_PORT:
                raise SecurityError(f"{port} is not a port")
        if self.port == self.password_port:
            raise SecurityError(f"port {self.port} is that of certificates", hint="name another for passwords")
        for text in (self.folder, self.data, self.user):
            if text is not None and (not text.isprintable() or not text.strip()):
                raise SecurityError(f"{text[:120]!r} cannot be in the broker's configuration")
        return self


def configuration_text(broker: BrokerPart) -> str:
    """Return its ``mosquitto.conf``. Bounds are those of the broker that `fjord broker` starts."""
    folder = broker.folder.rstrip("/")
    lines = [
        "# Made by `fjord security init`; docs/security.md says what it protects. It is not overwritten.",
        f"listener {broker.port} {broker.listen}",
        f"cafile {folder}/ca.crt",
        f"certfile {folder}/broker.crt",
        f"keyfile {folder}/broker.key",
        f"crlfile {folder}/revoked.crl",
        "# A client without a certificate of this authority gets no further than the handshake.",
        "require_certificate true",
        "use_identity_as_username true",
        "allow_anonymous false",
        *password_lines(broker),
        f"acl_file {folder}/acl",
        "max_queued_messages 100000",
        "max_queued_bytes 268435456",
        "max_inflight_messages 1000",
        "max_packet_size 16777216",
        "set_tcp_nodelay true",
        "log_dest stderr",
        "log_type error",
        "log_type warning",
        "log_type notice",
        "connection_messages false",
    ]
    if broker.data is None:
        lines.append("persistence false")
    else:
        lines += ["persistence true", f"persistence_location {broker.data.rstrip('/')}/", "autosave_interval 30"]
    if broker.user is not None:
        lines.append(f"user {broker.user}")
    return "\n".join(lines) + "\n"


def password_lines(broker: BrokerPart) -> list[str]:
    """Return the lines about devices that show a password; what stands behind them counts for both listeners."""
    if broker.password_port is None:
        return []
    return [
        "# For devices that cannot show a certificate. What they send is not encrypted, their password neither.",
        f"listener {broker.password_port} {broker.password_listen}",
        f"password_file {broker.folder.rstrip('/')}/passwords",
    ]

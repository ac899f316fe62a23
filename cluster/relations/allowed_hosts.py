"""Which PostgreSQL servers relations may connect to, and with whose credentials: never with those of the process.

libpq completes an address from the environment and from files in the user's home folder: passwords, certificates,
services. Any server that an address names would be sent them. So every host of an address has to be allowed, and
every setting that could name a file or a credential is given explicitly.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from cluster.relations.source import SourceRefusedError, SourceSchemaError

SETTINGS: Final = frozenset(
    {
        *("host", "port", "user", "password", "dbname", "options", "client_encoding"),
        *("application_name", "fallback_application_name", "connect_timeout"),
        *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
        *("sslmode", "sslrootcert", "sslsni", "sslnegotiation", "channel_binding"),
        *("ssl_min_protocol_version", "ssl_max_protocol_version", "min_protocol_version", "max_protocol_version"),
        *("target_session_attrs", "load_balance_hosts"),
    }
)
"""What an address may set. None of them names a file or a credential of the process."""
NOWHERE: Final = "/dev/null/none"
"""A file that cannot exist. An empty name would mean the one in the home folder."""
WITHOUT_THE_PROCESS: Final = {
    "password": "",
    "passfile": NOWHERE,
    "sslcert": NOWHERE,
    "sslkey": NOWHERE,
    "sslcertmode": "disable",
    "hostaddr": "",
    "options": "",
    "gssencmode": "disable",
    "gssdelegation": "0",
    "require_auth": "!gss,!sspi",
}
"""What takes the place of passwords, certificates and tickets of the user that the cluster runs as."""
SERVICE: Final = "PGSERVICE"
"""The variable whose settings libpq puts before those of an address."""
_FIELD: Final = re.compile(r"((?:[^:\\]|\\.)*)(?::|$)")
_FIELDS: Final = 5


class AllowedHosts:
    """The servers that relations may connect to.

    Parameters
    ----------
    hosts
        Names and addresses of hosts, and folders of sockets, besides this machine's loopback names and its default
        socket.
    credentials
        A file of passwords in the form of ``~/.pgpass``: ``host:port:database:user:password``. Each is sent to its
        host only. None for none.
    environment
        Gives the host and port of an address that names none, as for other clients of PostgreSQL: not credentials.

    Raises
    ------
    SourceRefusedError
        If the file of credentials cannot be used.
    """

    def __init__(
        self,
        hosts: Iterable[str] = (),
        *,
        credentials: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._hosts = frozenset(_folded(host) for host in hosts)
        self._credentials = credentials
        self._environment = environment
        if credentials is not None:
            check_credentials(credentials)

    def settings(self, address: str) -> dict[str, str]:
        """Return the settings of a connection to a server.

        Parameters
        ----------
        address
            ``postgresql://user@host/database``, as libpq reads it.

        Raises
        ------
        SourceSchemaError
            If it is no address.
        SourceRefusedError
            If one of its hosts is not allowed, or it has a setting that names a file or a credential.
        """
        if self._environment.get(SERVICE):
            raise SourceRefusedError(
                f"{SERVICE} is set, and libpq would send what it names to any server",
                hint=f"start the cluster without {SERVICE}",
            )
        try:
            given = {name: str(value) for name, value in conninfo_to_dict(address).items()}
        except psycopg.Error:  # its text quotes the address
            raise SourceSchemaError(
                "the address cannot be read",
                hint="it is written postgresql://user@host:port/database, other characters as %20",
            ) from None
        for name, value in given.items():
            if name not in SETTINGS or (name == "sslrootcert" and value != "system"):
                raise SourceRefusedError(
                    f"an address cannot set {name}",
                    hint="passwords are given by `fjord cluster --relation-credentials`",
                )
        host = given.get("host") or self._environment.get("PGHOST", "")
        for each in host.split(","):
            self._check(each)
        known = {option.keyword.decode() for option in Conninfo.get_defaults()}
        closed = {name: value for name, value in WITHOUT_THE_PROCESS.items() if name in known}
        if self._credentials is not None:
            check_credentials(self._credentials)
            closed["passfile"] = str(self._credentials)
        return {**closed, **({"host": host} if host else {}), **{name: each for name, each in given.items() if each}}

    def _check(self, host: str) -> None:
        # Without a host, libpq connects to the socket of this machine.
        if host and not _is_loopback(host) and _folded(host) not in self._hosts:
            raise SourceRefusedError(
                f"host {host[:200]!r} is not one that relations may connect to",
                hint="name it with `fjord cluster --relation-host`",
            )


def check_credentials(path: Path) -> None:
    """Reject a file of credentials that others can read, or that has passwords for any host.

    Raises
    ------
    SourceRefusedError
        If it is such a file, or none. The error quotes nothing of it.
    """
    try:
        mode, lines = path.stat().st_mode, path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SourceRefusedError(f"the credentials {path} cannot be read: {reason}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise SourceRefusedError(f"the credentials {path} can be read by others", hint=f"chmod 600 {path}")
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = _FIELD.findall(line)[:_FIELDS]
        if len(fields) < _FIELDS or fields[0] in ("", "*"):
            raise SourceRefusedError(
                f"line {number} of the credentials {path} does not name a host",
                hint="a line is HOST:PORT:DATABASE:USER:PASSWORD; all but the host may be *",
            )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"


def _folded(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.rstrip("/") if host.startswith("/") else host.casefold()

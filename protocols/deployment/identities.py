"""Where each certificate of a deployment lies, what it is for, and when it expires. Pure.

::

    FOLDER/deployment.json                     names, and which certificates were made; no keys
    FOLDER/authority/ca.crt ca.key             stays here, and nowhere else
    FOLDER/broker/                             for the broker's machine, with mosquitto.conf, acl and revoked.crl
    FOLDER/cluster/                            for the cluster's machine: two certificates
    FOLDER/proxies/NAME/ gateways/NAME/ subscribers/NAME/ devices/NAME/

Each folder but the first has ``ca.crt``, ``NAME.crt``, ``NAME.key``, and ``environment`` unless it is the broker's;
those of the cluster, a proxy and a gateway have ``cluster.keys``, ``proxy-NAME.keys`` and ``motes-PROXY.keys``, too,
which seal frames. ``authority`` has all of these.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from protocols.deployment.broker_configuration import BrokerPart
from protocols.deployment.names import DevicePart, GatewayPart, Names, Part, ProxyPart, SubscriberPart
from protocols.sealing.keys import CLUSTER_FILE, file_of_motes, file_of_proxy
from protocols.security.certificates import Purpose, check_host
from protocols.security.errors import SecurityError
from protocols.security.pem_files import date_text
from protocols.security.tls import DAY_SECONDS

AUTHORITY, BROKER, API = "authority", "broker", "api"
STATE, CA, CA_KEY = "deployment.json", "authority/ca.crt", "authority/ca.key"
KEYS = "authority"
"""Where the keys of all parts that seal frames are kept: beside the authority, which is copied to no machine either."""
API_PORT = 8642
FORMAT = 1


class Issued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A certificate that was made.

    Parameters
    ----------
    name
        Whose it is.
    serial
        Its number, in hexadecimal digits.
    expires
        When, in seconds since 1970.
    revoked
        Since when it is revoked, likewise; None if it is not.
    """

    name: str
    serial: str
    expires: float
    revoked: float | None = None


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `fjord security` knows of a deployment.

    Parameters
    ----------
    format
        Of the file.
    broker, names
        The parts.
    api_hosts
        Names and addresses by which clients call the HTTP API.
    days
        How long certificates are valid.
    issued
        All certificates that were made, in order.
    api_port
        The port of the HTTP API.
    """

    format: int
    broker: BrokerPart
    names: Names
    api_hosts: tuple[str, ...]
    days: int
    issued: tuple[Issued, ...] = ()
    api_port: int = API_PORT

    def check(self) -> Deployment:
        """Return it if it is one; raises FjordError."""
        if self.format != FORMAT:
            raise SecurityError(f"the deployment has format {self.format}, this version reads {FORMAT}")
        self.broker.check()
        self.names.check()
        for host in self.api_hosts:
            check_host(host)
        return self

    def newest(self, name: str) -> Issued | None:
        """Return the certificate of a name that was made last, if it has one that is not revoked."""
        found = [each for each in self.issued if each.name == name]
        return found[-1] if found and found[-1].revoked is None else None


@dataclass(frozen=True, slots=True)
class Identity:
    """What one certificate is for.

    Parameters
    ----------
    name, role
        Whose it is, and of which kind.
    folder
        Where it lies in the folder of the deployment.
    purpose
        Whether a server shows it, or a client.
    hosts
        Names and addresses of a server.
    """

    name: str
    role: str
    folder: str
    purpose: Purpose = Purpose.CLIENT
    hosts: tuple[str, ...] = ()

    @property
    def certificate(self) -> str:
        """Its file."""
        return f"{self.folder}/{self.name}.crt"

    @property
    def key(self) -> str:
        """The file of its key."""
        return f"{self.folder}/{self.name}.key"


def identities(deployment: Deployment) -> Iterator[Identity]:
    """Yield all certificates that a deployment has, but that of its authority."""
    yield Identity(BROKER, "broker", "broker", Purpose.SERVER, deployment.broker.hosts)
    yield Identity(deployment.names.cluster, "cluster", "cluster")
    yield Identity(API, "API", "cluster", Purpose.SERVER, deployment.api_hosts)
    yield from (identity_of(each) for each in deployment.names.parts if not has_password(each))


def has_password(part: Part) -> bool:
    """Return whether a part shows a password, and no certificate."""
    return isinstance(part, DevicePart) and part.password


def password_file(name: str) -> str:
    """Return the file of a device's password, in the folder of the deployment."""
    return f"devices/{name}/password"


def identity_of(part: Part) -> Identity:
    """Return the certificate of a part."""
    match part:
        case ProxyPart():
            role, folder = "proxy", "proxies"
        case GatewayPart():
            role, folder = "gateway", "gateways"
        case SubscriberPart():
            role, folder = "subscriber", "subscribers"
        case DevicePart():
            role, folder = "device", "devices"
    return Identity(part.name, role, f"{folder}/{part.name}")


def environments(deployment: Deployment, folder: str) -> dict[str, dict[str, str]]:
    """Return the environment of each machine by its folder, with files where they are now."""
    found = {}
    cluster = deployment.names.cluster
    found["cluster"] = {
        "FJORD_CLUSTER": cluster,
        **_broker(deployment, folder, "cluster", cluster),
        "FJORD_API_CERTIFICATE": f"{folder}/cluster/{API}.crt",
        "FJORD_API_KEY": f"{folder}/cluster/{API}.key",
        "FJORD_API_PORT": str(deployment.api_port),
        "FJORD_CLUSTER_KEYS": f"{folder}/cluster/{CLUSTER_FILE}",
        **_api(deployment, folder, "cluster"),
    }
    for part in deployment.names.parts:
        own = identity_of(part).folder
        match part:
            case ProxyPart():
                more = {
                    "FJORD_PROXY_NAME": part.name,
                    "FJORD_PROXY_KEYS": f"{folder}/{own}/{file_of_proxy(part.name)}",
                }
            case GatewayPart():
                more = {
                    "FJORD_PROXY": part.proxy,
                    "FJORD_MOTES_KEYS": f"{folder}/{own}/{file_of_motes(part.proxy)}",
                }
            case SubscriberPart():
                more = _api(deployment, folder, own)
            case DevicePart():
                more = {}
        found[own] = {**_broker(deployment, folder, own, part.name), **more}
        if has_password(part):
            host = deployment.broker.hosts[0]
            found[own] = {"FJORD_BROKER": _address(host, deployment.broker.password_port or deployment.broker.port)}
    return found


def keys_of_machines(deployment: Deployment) -> dict[str, str]:
    """Return the files with keys that seal frames, in the folders of machines, and which of all such files each is."""
    found = {f"cluster/{CLUSTER_FILE}": CLUSTER_FILE}
    proxies = {each.name for each in deployment.names.proxies}
    for part in deployment.names.parts:
        match part:
            case ProxyPart():
                name = file_of_proxy(part.name)
            case GatewayPart() if part.proxy in proxies:
                name = file_of_motes(part.proxy)
            case _:
                continue
        found[f"{identity_of(part).folder}/{name}"] = name
    return found


def environment_text(variables: dict[str, str]) -> str:
    r"""Return an environment as a file that a shell, systemd and Docker read.

    Examples
    --------
    >>> environment_text({"FJORD_BROKER": "gateway:8883"})
    'FJORD_BROKER=gateway:8883\n'
    """
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


def due_for_renewal(deployment: Deployment, before: float) -> Iterable[str]:
    """Return the names whose newest certificate expires before an instant."""
    for name in (AUTHORITY, *(each.name for each in identities(deployment))):
        newest = deployment.newest(name)
        if newest is not None and newest.expires < before:
            yield name


def _broker(deployment: Deployment, folder: str, own: str, name: str) -> dict[str, str]:
    return {
        "FJORD_BROKER": _address(deployment.broker.hosts[0], deployment.broker.port),
        "FJORD_BROKER_CA": f"{folder}/{own}/ca.crt",
        "FJORD_BROKER_CERTIFICATE": f"{folder}/{own}/{name}.crt",
        "FJORD_BROKER_KEY": f"{folder}/{own}/{name}.key",
    }


def _api(deployment: Deployment, folder: str, own: str) -> dict[str, str]:
    address = _address(deployment.api_hosts[0], deployment.api_port)
    return {"FJORD_API": f"https://{address}", "FJORD_API_CA": f"{folder}/{own}/ca.crt"}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def expiry_report(deployment: Deployment, now: float) -> list[dict[str, Any]]:
    """Return a line for each certificate in use, and one for each name that has been revoked.

    Parameters
    ----------
    deployment
        The deployment.
    now
        Seconds since 1970.
    """
    places = {AUTHORITY: ("authority", CA)} | {
        each.name: (each.role, each.certificate) for each in identities(deployment)
    }
    found = []
    for name, (role, file) in places.items():
        newest = deployment.newest(name)
        if newest is not None:
            days = int((newest.expires - now) // DAY_SECONDS)
            found.append(
                {
                    "name": name,
                    "role": role,
                    "expires": date_text(newest.expires),
                    "days_left": days,
                    "left": str(days) if newest.expires > now else "expired",
                    "file": file,
                    "revoked": False,
                }
            )
    gone = {each.name: each for each in deployment.issued if each.revoked is not None and each.name not in places}
    for name, each in gone.items():
        found.append(
            {
                "name": name,
                "role": "",
                "expires": date_text(each.expires),
                "days_left": int((each.expires - now) // DAY_SECONDS),
                "left": "revoked",
                "file": "",
                "revoked": True,
            }
        )
    return found

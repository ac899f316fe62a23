"""The configuration of Mosquitto for a deployment: TLS, certificates, and access to topics. Pure.

**Which user of the broker reads and writes which topics.**

A user writes only what it is the source of, and reads only what it needs. Mosquitto grants every subscription, and
delivers of it what the user may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import msgspec

from protocols.deployment.names import DevicePart, GatewayPart, Names, Part, ProxyPart, SubscriberPart
from protocols.mqtt.messages import DEFAULT_TLS_PORT
from protocols.security.certificates import check_host
from protocols.security.errors import SecurityError
from protocols.wire import topics

ANY = "+"


class Access(Enum):
    """What a rule allows."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that one user may do.

    Parameters
    ----------
    user
        Its name, which is that in its certificate.
    access
        Whether it reads or writes.
    filter
        Which topics.
    """

    user: str
    access: Access
    filter: str


def rules_of(names: Names) -> list[Rule]:
    """Return all rules of a deployment; what they do not name is forbidden."""
    return [
        *_rules(names.cluster, _cluster(names.cluster)),
        *(rule for part in names.parts for rule in part_rules(part)),
    ]


def part_rules(part: Part) -> list[Rule]:
    """Return the rules of a part."""
    match part:
        case ProxyPart():
            found = _proxy(part)
        case GatewayPart():
            found = _gateway(part)
        case SubscriberPart():
            found = _subscriber(part)
        case DevicePart():
            found = _devices(part.reads, part.writes)
    return list(_rules(part.name, found))


def acl_text(rules: Iterable[Rule]) -> str:
    """Return rules as Mosquitto's ``acl_file``.

    Examples
    --------
    >>> print(acl_text([Rule("wall", Access.READ, "fjord/v1/results/slow")]))
    # Made by `fjord security`, which overwrites what is changed here.
    # Before the first user nothing is allowed: anonymous clients may do nothing.
    <BLANKLINE>
    user wall
    topic read fjord/v1/results/slow
    <BLANKLINE>
    """
    lines = [
        "# Made by `fjord security`, which overwrites what is changed here.",
        "# Before the first user nothing is allowed: anonymous clients may do nothing.",
    ]
    user = None
    for rule in rules:
        if rule.user != user:
            user = rule.user
            lines += ["", f"user {user}"]
        lines.append(f"topic {rule.access.value} {rule.filter}")
    return "\n".join(lines) + "\n"


Found = Iterator[tuple[Access, str]]


def _rules(user: str, found: Found) -> Iterator[Rule]:
    yield from (Rule(user, access, each) for access, each in found)


def _cluster(cluster: str) -> Found:
    yield Access.WRITE, topics.cluster_status(cluster)
    yield Access.WRITE, topics.cluster_claim(cluster)
    yield Access.WRITE, topics.acks(ANY)
    yield Access.WRITE, topics.demand(ANY)
    yield Access.WRITE, topics.demand_piece(ANY, ANY)
    yield Access.WRITE, topics.results(ANY)
    yield Access.WRITE, topics.query_errors(ANY)
    yield Access.READ, topics.batches(ANY)
    yield Access.READ, topics.resumptions(ANY)
    yield Access.READ, topics.proxy_status(ANY)
    yield Access.READ, topics.proxy_clock(ANY)
    yield Access.READ, topics.proxy_spool(ANY)
    yield Access.READ, topics.proxy_waits(ANY)
    yield Access.READ, topics.stream_offer(ANY, ANY)
    yield Access.READ, topics.mote_entry(ANY, ANY)
    yield Access.READ, topics.demand_report(ANY, ANY)
    yield Access.READ, topics.demand_request(ANY, ANY)
    # Whether another cluster has its name.
    yield Access.READ, topics.cluster_status(cluster)
    yield Access.READ, topics.cluster_claim(cluster)


def _proxy(part: ProxyPart) -> Found:
    name = part.name
    yield Access.WRITE, topics.proxy_status(name)
    yield Access.WRITE, topics.proxy_claim(name)
    yield Access.WRITE, topics.batches(name)
    yield Access.WRITE, topics.resumptions(name)
    yield Access.WRITE, topics.proxy_clock(name)
    yield Access.WRITE, topics.proxy_spool(name)
    yield Access.WRITE, topics.proxy_waits(name)
    yield Access.WRITE, topics.proxy_backlog(name, ANY)
    yield Access.WRITE, topics.stream_offer(name, ANY)
    yield Access.WRITE, topics.mote_entry(name, ANY)
    yield Access.WRITE, topics.demand_report(name, ANY)
    yield Access.WRITE, topics.demand_request(name, ANY)
    yield Access.WRITE, topics.control(name, ANY)
    yield Access.READ, topics.packet(name, ANY)
    yield Access.READ, topics.announcement(name, ANY)
    yield Access.READ, topics.acks(name)
    yield Access.READ, topics.demand(ANY)
    yield Access.READ, topics.demand_piece(ANY, ANY)
    yield Access.READ, topics.cluster_status(ANY)
    yield Access.READ, topics.proxy_claim(name)
    yield Access.READ, topics.proxy_backlog(name, ANY)
    # Which motes other proxies have: a mote belongs to one.
    yield Access.READ, topics.proxy_status(ANY)
    yield Access.READ, topics.mote_entry(ANY, ANY)
    yield from _devices(part.reads, part.writes)


def _gateway(part: GatewayPart) -> Found:
    for mote in part.motes:
        yield Access.WRITE, topics.packet(part.proxy, mote)
        yield Access.WRITE, topics.announcement(part.proxy, mote)
        yield Access.READ, topics.control(part.proxy, mote)


def _subscriber(part: SubscriberPart) -> Found:
    for query in (ANY,) if part.queries is None else part.queries:
        yield Access.READ, topics.results(query)
        yield Access.READ, topics.query_errors(query)


def _devices(reads: Iterable[str], writes: Iterable[str]) -> Found:
    yield from ((Access.READ, each) for each in reads)
    yield from ((Access.WRITE, each) for each in writes)


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

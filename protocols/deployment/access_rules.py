"""Which user of the broker reads and writes which topics. Pure.

A user writes only what it is the source of, and reads only what it needs. Mosquitto grants every subscription, and
delivers of it what the user may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from protocols.deployment.names import DevicePart, GatewayPart, Names, Part, ProxyPart, SubscriberPart
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

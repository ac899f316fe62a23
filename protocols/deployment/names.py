"""The parts of a deployment by name: what access rules and certificates are made from. Pure.

Each part has a certificate with its name, which is the name of its user at the broker, so no two parts have one name.
Names are those of topics: no wildcard, space or end of a line can get into a rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from protocols.security.errors import SecurityError
from protocols.wire.topics import PREFIX, check_name, check_part_name

RESERVED = frozenset({"authority", "broker", "api"})
"""Certificates that belong to no user of the broker."""
LONGEST_FILTER = 1_000


class ProxyPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A proxy.

    Parameters
    ----------
    name
        Of the proxy.
    reads, writes
        Filters of topics of devices of other makers, which its drivers read and write.
    """

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


class GatewayPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What connects motes to the broker: a gateway for several, or a mote by itself.

    Parameters
    ----------
    name
        Of the gateway.
    proxy
        Owner of the motes.
    motes
        Their names.
    """

    name: str
    proxy: str
    motes: tuple[str, ...]


class SubscriberPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that reads results.

    Parameters
    ----------
    name
        Of the program.
    queries
        Those whose results and errors it may read; None for all.
    """

    name: str
    queries: tuple[str, ...] | None = None


class DevicePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device of another maker, or a bridge of such devices, with topics of its own.

    Parameters
    ----------
    name
        Of the device.
    reads, writes
        Filters of its topics.
    password
        Whether it shows a password, as it cannot show a certificate.
    """

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    password: bool = False


Part = ProxyPart | GatewayPart | SubscriberPart | DevicePart


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All parts of a deployment besides the broker.

    Parameters
    ----------
    cluster
        The cluster, and its publishers, which are the same user.
    proxies, gateways, subscribers, devices
        The others.
    """

    cluster: str = "cluster"
    proxies: tuple[ProxyPart, ...] = ()
    gateways: tuple[GatewayPart, ...] = ()
    subscribers: tuple[SubscriberPart, ...] = ()
    devices: tuple[DevicePart, ...] = ()

    @property
    def parts(self) -> Iterator[Part]:
        """All parts but the cluster."""
        yield from self.proxies
        yield from self.gateways
        yield from self.subscribers
        yield from self.devices

    @property
    def users(self) -> tuple[str, ...]:
        """Names of all users of the broker."""
        return self.cluster, *(each.name for each in self.parts)

    def with_part(self, part: Part) -> Names:
        """Return these names with one more part; one of this name is replaced."""
        kept = self.without(part.name)
        match part:
            case ProxyPart():
                return msgspec.structs.replace(kept, proxies=(*kept.proxies, part))
            case GatewayPart():
                return msgspec.structs.replace(kept, gateways=(*kept.gateways, part))
            case SubscriberPart():
                return msgspec.structs.replace(kept, subscribers=(*kept.subscribers, part))
            case DevicePart():
                return msgspec.structs.replace(kept, devices=(*kept.devices, part))

    def without(self, name: str) -> Names:
        """Return these names without a part."""
        return Names(
            self.cluster,
            tuple(each for each in self.proxies if each.name != name),
            tuple(each for each in self.gateways if each.name != name),
            tuple(each for each in self.subscribers if each.name != name),
            tuple(each for each in self.devices if each.name != name),
        )

    def with_motes(self, motes: Iterable[tuple[str, str, str]]) -> Names:
        """Return these names with motes, each as its gateway, proxy and name.

        Raises
        ------
        SecurityError
            If there is no such proxy, or a gateway would have motes of two.
        """
        found, proxies = self, {each.name for each in self.proxies}
        for gateway, proxy, mote in motes:
            known = next((each for each in found.gateways if each.name == gateway), GatewayPart(gateway, proxy, ()))
            if proxy not in proxies:
                raise SecurityError(f"there is no proxy {proxy}", hint="add it before its motes")
            if known.proxy != proxy:
                raise SecurityError(
                    f"gateway {gateway} has motes of proxy {known.proxy}, not of {proxy}", hint="name another gateway"
                )
            if mote not in known.motes:
                found = found.with_part(GatewayPart(gateway, proxy, (*known.motes, mote)))
        return found

    def check(self) -> Names:
        """Return these names if access rules can be made of them.

        Raises
        ------
        TopicError
            If a name cannot be part of a topic.
        SecurityError
            If two parts have one name, or a filter is none or reaches into Fjord's topics.
        """
        for user, count in Counter(self.users).items():
            check_part_name(user)
            if count > 1 or user in RESERVED:
                raise SecurityError(
                    f"the name {user} belongs to another part", hint="a part has its name as user of the broker alone"
                )
        for gateway in self.gateways:
            check_part_name(gateway.proxy)
            for name in gateway.motes:
                check_name(name)
        for subscriber in self.subscribers:
            for query in subscriber.queries or ():
                check_name(query, "query")
        for part in self.parts:
            if isinstance(part, ProxyPart | DevicePart):
                for each in (*part.reads, *part.writes):
                    check_filter(each)
        return self


def parse_mote(text: str) -> tuple[str, str, str]:
    """Return gateway, proxy and name of a mote, written as ``PROXY/MOTE`` or ``PROXY/MOTE@GATEWAY``.

    Raises
    ------
    FjordError
        If it is written in another way, or one of the names cannot be part of a topic.

    Examples
    --------
    >>> parse_mote("roadside/m7"), parse_mote("roadside/m8@mast")
    (('roadside-motes', 'roadside', 'm7'), ('mast', 'roadside', 'm8'))
    """
    names, at, gateway = text.partition("@")
    proxy, slash, mote = names.partition("/")
    if not slash or (at and not gateway):
        raise SecurityError(f"{text[:120]!r} is not a mote", hint="write PROXY/MOTE, or PROXY/MOTE@GATEWAY")
    check_part_name(proxy, "proxy")
    return check_part_name(gateway or f"{proxy}-motes", "gateway"), proxy, check_name(mote, "mote")


def parse_subscriber(text: str) -> SubscriberPart:
    """Return a subscriber, written as ``NAME`` or ``NAME=QUERY,QUERY``.

    Raises
    ------
    TopicError
        If one of the names cannot be part of a topic.

    Examples
    --------
    >>> parse_subscriber("wall=slow,fast")
    SubscriberPart(name='wall', queries=('slow', 'fast'))
    """
    name, has_queries, queries = text.partition("=")
    named = tuple(check_name(each.strip(), "query") for each in queries.split(",")) if has_queries else None
    return SubscriberPart(check_part_name(name, "subscriber"), named)


def check_filter(text: str) -> str:
    """Return a filter of topics of devices if it may be in an access rule.

    Raises
    ------
    SecurityError
        If it is none, or matches topics of Fjord.

    Examples
    --------
    >>> check_filter("+/events/rpc")
    '+/events/rpc'
    """
    levels = text.split("/")
    is_filter = (
        0 < len(text) <= LONGEST_FILTER
        and text.isprintable()
        and text == text.strip()
        and all(each in {"+", "#"} or not set("+#") & set(each) for each in levels)
        and "#" not in levels[:-1]
    )
    if not is_filter or text.startswith("$"):
        raise SecurityError(
            f"{text[:120]!r} is not a filter of topics", hint="for instance zigbee2mqtt/# or tele/+/SENSOR"
        )
    own = PREFIX.split("/")
    reach = levels[: len(own)]
    if levels == ["#"] or (
        (len(levels) > len(own) or levels[-1] == "#")
        and all(each in {"+", "#", name} for each, name in zip(reach, own, strict=False))
    ):
        raise SecurityError(f"{text!r} matches topics of Fjord", hint="name the topics of the devices")
    return text

"""The MQTT topics of Fjord, built and parsed in one place.

========================================  =========================  =======  ================================
topic                                     from -> to                 kept     payload
========================================  =========================  =======  ================================
``motes/<proxy>/<mote>/packet``           mote -> proxy              no       ``packets.Packet``
``motes/<proxy>/<mote>/announcement``     mote -> proxy              no       ``packets.Announcement``
``motes/<proxy>/<mote>/control``          proxy -> mote              no       ``packets.Control``
``proxies/<proxy>/batches``               proxy -> cluster           no       ``batches.Batch``
``proxies/<proxy>/acks``                  cluster -> proxy           no       ``batches.Ack``
``proxies/<proxy>/resumptions``           proxy -> cluster           no       ``batches.Resumption``
``proxies/<proxy>/status``                proxy -> all               yes      ``catalog.Status``
``proxies/<proxy>/claim``                 proxy -> proxy             no       ``catalog.Status``
``proxies/<proxy>/backlog/<marker>``      proxy -> proxy             no       nothing
``proxies/<proxy>/clock``                 proxy -> cluster           no       ``catalog.ProxyClock``
``proxies/<proxy>/spool``                 proxy -> cluster           no       ``catalog.ProxySpool``
``proxies/<proxy>/waits``                 proxy -> cluster           no       ``catalog.ProxyWaits``
``proxies/<proxy>/streams/<stream>``      proxy -> all               yes      ``catalog.StreamOffer``
``proxies/<proxy>/motes/<mote>``          proxy -> all               yes      ``catalog.MoteEntry``
``proxies/<proxy>/demands/<stream>``      proxy -> all               yes      see ``demand_reports``
``clusters/<cluster>/status``             cluster -> all             yes      ``catalog.Status``
``clusters/<cluster>/claim``              cluster -> cluster         no       ``catalog.Status``
``proxies/<proxy>/requests/<stream>``     proxy -> cluster           no       ``demand_pieces.DemandRequest``
``demands/<stream>``                      cluster -> proxies         yes      ``demand_pieces.DemandHead``
``demands/<stream>/<number>``             cluster -> proxies         yes      ``demand_pieces.DemandPiece``
``results/<query>``                       cluster -> subscribers     no       JSON, see docs/reference/protocol.md
``errors/<query>``                        cluster -> subscribers     no       JSON, see docs/reference/protocol.md
========================================  =========================  =======  ================================

Every topic starts with ``fjord/v1/``. "Kept" means an MQTT retained message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from protocols.errors import TopicError
from protocols.wire.names import ASCII_NAME, fault_of_name

PREFIX = "fjord/v1"

_PLAIN = re.compile(ASCII_NAME)


def check_name(name: str, what: str = "name") -> str:
    """Return `name` if it may be part of a topic, else raise.

    A name has 1 to 64 letters of Unicode, digits, ``_``, ``.`` or ``-``, and neither begins nor ends with a dot or a
    dash (:mod:`protocols.wire.names`), so that no wildcard, separator or space is in a topic.

    Raises
    ------
    TopicError
        If the name is not of this kind.
    """
    if (fault := fault_of_name(name)) is not None:
        raise TopicError(
            f"{what} {name[:80]!r} cannot be part of a topic: {fault}",
            hint="use 1 to 64 letters, digits, '_', '.' or '-', beginning and ending with none of the last two",
        )
    return name


def check_part_name(name: str, what: str = "name") -> str:
    """Return the name of a proxy, a cluster or another user of the broker, as :func:`check_name` does.

    Its letters are ASCII, since certificates, files of keys and lines of access rules have it.
    """
    check_name(name, what)
    if _PLAIN.fullmatch(name) is None:
        raise TopicError(
            f"{what} {name[:80]!r} cannot be part of a topic that has access rules",
            hint="use letters from A to Z, digits, '_', '.' or '-', beginning and ending with a letter or digit",
        )
    return name


def packet(proxy: str, mote: str) -> str:
    """Topic of the packets of one mote; ``+`` may stand for any mote."""
    return f"{PREFIX}/motes/{_user(proxy)}/{_part(mote)}/packet"


def announcement(proxy: str, mote: str) -> str:
    """Topic of the announcements of a mote."""
    return f"{PREFIX}/motes/{_user(proxy)}/{_part(mote)}/announcement"


def control(proxy: str, mote: str) -> str:
    """Topic of the control frames for a mote, sent in its listen windows only."""
    return f"{PREFIX}/motes/{_user(proxy)}/{_part(mote)}/control"


def batches(proxy: str) -> str:
    """Topic of the batches of a proxy."""
    return f"{PREFIX}/proxies/{_user(proxy)}/batches"


def acks(proxy: str) -> str:
    """Topic on which the cluster acknowledges batches of a proxy."""
    return f"{PREFIX}/proxies/{_user(proxy)}/acks"


def resumptions(proxy: str) -> str:
    """Topic on which a proxy announces the first batch that it still has, if the cluster has lost acknowledged ones."""
    return f"{PREFIX}/proxies/{_user(proxy)}/resumptions"


def proxy_status(proxy: str) -> str:
    """Topic of a proxy's birth and death."""
    return f"{PREFIX}/proxies/{_user(proxy)}/status"


def proxy_claim(proxy: str) -> str:
    """Topic on which a proxy that starts asks whether another one has its name."""
    return f"{PREFIX}/proxies/{_user(proxy)}/claim"


def proxy_backlog(proxy: str, marker: str) -> str:
    """Topic of a message to itself that a proxy receives after all that has waited for it at the broker."""
    return f"{PREFIX}/proxies/{_user(proxy)}/backlog/{_part(marker)}"


def proxy_clock(proxy: str) -> str:
    """Topic of the times that a proxy's clock shows."""
    return f"{PREFIX}/proxies/{_user(proxy)}/clock"


def proxy_spool(proxy: str) -> str:
    """Topic of the size of a proxy's spool."""
    return f"{PREFIX}/proxies/{_user(proxy)}/spool"


def proxy_waits(proxy: str) -> str:
    """Topic of what the streams of a proxy wait for."""
    return f"{PREFIX}/proxies/{_user(proxy)}/waits"


def stream_offer(proxy: str, stream: str) -> str:
    """Topic on which a proxy offers a stream."""
    return f"{PREFIX}/proxies/{_user(proxy)}/streams/{_part(stream)}"


def mote_entry(proxy: str, mote: str) -> str:
    """Topic of the catalog entry of one mote."""
    return f"{PREFIX}/proxies/{_user(proxy)}/motes/{_part(mote)}"


def demand_report(proxy: str, stream: str) -> str:
    """Topic of a proxy's report of the demands on a stream that it leaves out."""
    return f"{PREFIX}/proxies/{_user(proxy)}/demands/{_part(stream)}"


def cluster_status(cluster: str) -> str:
    """Topic of a cluster's birth and death."""
    return f"{PREFIX}/clusters/{_user(cluster)}/status"


def cluster_claim(cluster: str) -> str:
    """Topic on which a cluster that starts asks whether another one has its name."""
    return f"{PREFIX}/clusters/{_user(cluster)}/claim"


def demand(stream: str) -> str:
    """Topic of the demands of all queries on a stream."""
    return f"{PREFIX}/demands/{_part(stream)}"


def demand_piece(stream: str, number: int | str) -> str:
    """Topic of one piece of the demands on a stream; ``+`` may stand for any."""
    return f"{PREFIX}/demands/{_part(stream)}/{_part(str(number))}"


def demand_request(proxy: str, stream: str) -> str:
    """Topic on which a proxy asks for pieces of the demands on a stream again."""
    return f"{PREFIX}/proxies/{_user(proxy)}/requests/{_part(stream)}"


def results(query: str) -> str:
    """Topic of a query's result rows."""
    return f"{PREFIX}/results/{_part(query)}"


def query_errors(query: str) -> str:
    """Topic of a query's errors."""
    return f"{PREFIX}/errors/{_part(query)}"


@dataclass(frozen=True, slots=True)
class ParsedTopic:
    """A parsed topic: its kind (the function that builds it) and the names in it, in order."""

    kind: str
    names: tuple[str, ...]


@lru_cache(maxsize=65_536)
def parse(topic: str) -> ParsedTopic:
    """Parse a topic; cached, since messages come on few of them.

    Raises
    ------
    TopicError
        If it is none of the topics above.

    Examples
    --------
    >>> parse("fjord/v1/motes/roadside/m7/packet")
    ParsedTopic(kind='packet', names=('roadside', 'm7'))
    """
    if not topic.startswith(PREFIX + "/"):
        raise TopicError(f"{topic[:120]!r} is not a topic of Fjord", hint=f"topics start with {PREFIX}/")
    levels = topic[len(PREFIX) + 1 :].split("/")
    kind: str
    names: tuple[str, ...]
    match levels:
        case ["motes", proxy, mote, ("packet" | "announcement" | "control") as kind]:
            names = (proxy, mote)
        case ["proxies", proxy, ("batches" | "acks" | "resumptions") as kind]:
            names = (proxy,)
        case ["proxies", proxy, ("status" | "claim" | "clock" | "spool" | "waits") as last]:
            kind, names = f"proxy_{last}", (proxy,)
        case ["proxies", proxy, "backlog", marker]:
            kind, names = "proxy_backlog", (proxy, marker)
        case ["proxies", proxy, "streams", stream]:
            kind, names = "stream_offer", (proxy, stream)
        case ["proxies", proxy, "motes", mote]:
            kind, names = "mote_entry", (proxy, mote)
        case ["proxies", proxy, "demands", stream]:
            kind, names = "demand_report", (proxy, stream)
        case ["clusters", cluster, ("status" | "claim") as last]:
            kind, names = f"cluster_{last}", (cluster,)
        case ["proxies", proxy, "requests", stream]:
            kind, names = "demand_request", (proxy, stream)
        case ["demands", stream]:
            kind, names = "demand", (stream,)
        case ["demands", stream, number]:
            kind, names = "demand_piece", (stream, number)
        case ["results", query]:
            kind, names = "results", (query,)
        case ["errors", query]:
            kind, names = "query_errors", (query,)
        case _:
            raise TopicError(
                f"{topic[:120]!r} is not a topic of Fjord", hint="see docs/reference/protocol.md for the list"
            )
    _check_names(levels[0], names, topic)
    return ParsedTopic(kind, names)


def _check_names(first: str, names: tuple[str, ...], topic: str) -> None:
    what = f"name in topic {topic[:120]!r},"
    of_part = first in ("motes", "proxies", "clusters")
    for place, name in enumerate(names):
        (check_part_name if of_part and not place else check_name)(name, what)


def _part(name: str) -> str:
    return name if name == "+" else check_name(name)


def _user(name: str) -> str:
    return name if name == "+" else check_part_name(name)

"""Other proxies at the same broker: which motes are theirs. A mote has one proxy, or its samples would count twice.

Pure. It relies on the retained messages of other proxies: their statuses, and the catalog entries of their motes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protocols.errors import FrameError
from protocols.wire.catalog import Presence, Status, decode_mote_entry, decode_status
from protocols.wire.topics import ParsedTopic

MOST_PROXIES = 1_000
MOST_ENTRIES = 200_000
"""Of all other proxies together; further ones are ignored, and so their motes can be claimed by this proxy."""


@dataclass(frozen=True, slots=True)
class NeighbourChanges:
    """The changes that follow from a message of another proxy.

    Parameters
    ----------
    given_up
        Motes of ours that a proxy claims which has been online longer; the fleet keeps those with keys of their own.
    freed
        Motes that no other proxy has any more.
    """

    given_up: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()


NO_CHANGES = NeighbourChanges()


class Neighbours:
    """The other proxies, as one proxy sees them.

    Parameters
    ----------
    proxy
        Its own name.
    since_us
        Since when it has been online, as in its status.
    most_proxies, most_entries
        How many are remembered.
    """

    def __init__(
        self, proxy: str, since_us: int, *, most_proxies: int = MOST_PROXIES, most_entries: int = MOST_ENTRIES
    ) -> None:
        self._self = (since_us, proxy)
        self._most_proxies = most_proxies
        self._most_entries = most_entries
        self._online: dict[str, int] = {}
        self._motes: dict[str, set[str]] = {}
        self._proxies: dict[str, set[str]] = {}
        self._streams: dict[tuple[str, str], str] = {}
        self._entries = 0

    def claimant(self, mote: str, *, ours: bool, stream: str | None = None) -> str | None:
        """Return the proxy that a mote belongs to; None if it is ours, or free to be.

        A mote that is not in our catalog belongs to the proxy that has it. Where both have it, the one that has been
        online longer keeps it. A mote of another stream is another mote of the same name; without `stream`, streams
        are not compared.
        """
        online = (
            (self._online[each], each)
            for each in self._proxies.get(mote, ())
            if each in self._online and stream in (None, self._streams.get((each, mote)))
        )
        first = min(online, default=None)
        if first is None or (ours and self._self < first):
            return None
        return first[1]

    def received(self, topic: ParsedTopic, payload: bytes, ours: Callable[[str], bool]) -> NeighbourChanges:
        """Return what follows from a status or a mote's entry; `ours` returns whether a mote is in our catalog.

        Raises
        ------
        FrameError
            If it is no status or entry, or does not match its topic.
        """
        proxy = topic.names[0]
        if proxy == self._self[1]:
            return NO_CHANGES  # our own message
        if topic.kind == "proxy_status":
            return self._status(proxy, payload, ours)
        return self._entry(proxy, topic.names[1], payload, ours)

    def _status(self, proxy: str, payload: bytes, ours: Callable[[str], bool]) -> NeighbourChanges:
        status = decode_status(payload) if payload else None
        if status is not None and status.name != proxy:
            raise FrameError("proxy", f"status of {status.name!r} on the topic of proxy {proxy!r}")
        if status is None or status.presence is not Presence.ONLINE:
            was_online = self._online.pop(proxy, None) is not None
            return NeighbourChanges(freed=self._free(self._motes.get(proxy, ()))) if was_online else NO_CHANGES
        return self._began(status, ours)

    def _began(self, status: Status, ours: Callable[[str], bool]) -> NeighbourChanges:
        if status.name not in self._online and len(self._online) >= self._most_proxies:
            return NO_CHANGES
        self._online[status.name] = status.since_us
        return NeighbourChanges(given_up=self._lost(self._motes.get(status.name, ()), ours))

    def _entry(self, proxy: str, mote: str, payload: bytes, ours: Callable[[str], bool]) -> NeighbourChanges:
        known = self._motes.get(proxy)
        if not payload:
            if known is None or mote not in known:
                return NO_CHANGES
            self._forget(proxy, mote)
            return NeighbourChanges(freed=self._free((mote,)))
        if known is not None and mote in known:
            return NO_CHANGES  # entries are repeated; only their existence matters here
        entry = decode_mote_entry(payload)
        if (entry.proxy, entry.mote) != (proxy, mote):
            detail = f"entry of mote {entry.mote!r} of {entry.proxy!r} on the topic of {mote!r} of {proxy!r}"
            raise FrameError("mote", detail)
        if self._entries >= self._most_entries or (known is None and len(self._motes) >= self._most_proxies):
            return NO_CHANGES
        self._entries += 1
        self._streams[proxy, mote] = entry.stream
        self._motes.setdefault(proxy, set()).add(mote)
        self._proxies.setdefault(mote, set()).add(proxy)
        return NeighbourChanges(given_up=self._lost((mote,), ours))

    def _forget(self, proxy: str, mote: str) -> None:
        self._entries -= 1
        self._streams.pop((proxy, mote), None)
        for of, name, other in ((self._motes, proxy, mote), (self._proxies, mote, proxy)):
            of[name].discard(other)
            if not of[name]:
                del of[name]

    def _lost(self, motes: set[str] | tuple[str, ...], ours: Callable[[str], bool]) -> tuple[str, ...]:
        return tuple(sorted(mote for mote in motes if ours(mote) and self.claimant(mote, ours=True) is not None))

    def _free(self, motes: set[str] | tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(mote for mote in motes if self.claimant(mote, ours=False) is None))

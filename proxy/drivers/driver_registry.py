"""The drivers of a proxy, the motes that each of them drives, and what became of these motes' messages. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from protocols.acquisition.program_reports import Abilities
from protocols.event_log import get_logger
from protocols.wire.packets import Announcement
from proxy.drivers.driver import Capabilities, Driver, KnownDevice

log = get_logger(__name__)

T = TypeVar("T")

MOST_STRANGERS = 1_000
"""Names without a mote whose rejections are counted: anyone can publish on a new topic."""
_LONGEST_TROUBLE = 512
_LONGEST_TOPIC = 120


@dataclass(frozen=True, slots=True)
class DrivenMote:
    """The driver of a mote.

    Parameters
    ----------
    mote
        Its name.
    driver
        The name of the driver that owns it.
    device
        The driver's own name for it.
    boot
        Of the last announcement that the driver made of it.
    """

    mote: str
    driver: str
    device: str
    boot: int


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of motes and streams from before a restart of the proxy.

    Parameters
    ----------
    driven, announcements
        The catalog's.
    boots, states
        By mote: the boot of the last packet that is stored, and what the driver kept.
    watermarks_us
        The low watermark of each stream that has one.
    """

    driven: tuple[DrivenMote, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    boots: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, bytes] = field(default_factory=dict)
    watermarks_us: Mapping[str, int | None] = field(default_factory=dict)


NOTHING_BEFORE = Before()


def abilities(capabilities: Capabilities) -> Abilities:
    """Return what the merge of demands may use of a device; only Fjord's own motes run several reports at once.

    Examples
    --------
    >>> from proxy.drivers.driver import PASSIVE
    >>> abilities(PASSIVE).aggregates
    False
    """
    return Abilities(
        filters=capabilities.filters,
        sends_on_change=capabilities.sends_on_change,
        aggregates=capabilities.aggregates,
        detects_events=capabilities.detects_events,
        several=capabilities.listens and capabilities.aggregates and capabilities.detects_events,
        keeps_time=capabilities.listens,
    )


def pattern_of(topic_filter: str) -> re.Pattern[str]:
    """Return the pattern of the topics that an MQTT topic filter matches.

    Examples
    --------
    >>> bool(pattern_of("a/+/c").fullmatch("a/b/c")), bool(pattern_of("a/#").fullmatch("a")), bool(
    ...     pattern_of("a/#").fullmatch("ab/c")
    ... )
    (True, True, False)
    """
    levels = topic_filter.split("/")
    end = ""
    if levels[-1] == "#":
        levels.pop()
        end = "(/.*)?" if levels else ".*"
    found = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels)
    return re.compile(found + end, re.DOTALL)


def fewest_filters(filters: Iterable[str]) -> tuple[str, ...]:
    """Return topic filters without those whose topics another one matches, too.

    A broker may send a message once for each filter of a client that matches it.

    Examples
    --------
    >>> fewest_filters(["a/+/c", "a/b/c", "a/#", "b/+", "b/+"])
    ('a/#', 'b/+')
    """
    found = dict.fromkeys(filters)
    return tuple(each for each in found if not any(other != each and _covers(other, each) for other in found))


def _covers(wide: str, narrow: str) -> bool:
    """Return whether a topic filter matches all topics that another one matches."""
    levels, others = wide.split("/"), narrow.split("/")
    if others[0].startswith("$") and levels[0] != others[0]:
        return False  # topics of the broker itself: no wildcard stands for them
    if levels[-1] == "#":
        levels.pop()
        others = others[: len(levels)]
    return len(levels) == len(others) and all(
        level == other or (level == "+" and other != "#") for level, other in zip(levels, others, strict=True)
    )


def _topics_of(filters: Sequence[str]) -> tuple[tuple[str, ...], Callable[[str], re.Match[str] | None]]:
    """Return what topics that one of these filters matches begin with, and what matches them."""
    beginnings = tuple(re.split(r"/?[+#]", each, maxsplit=1)[0] for each in filters)
    pattern = "|".join(f"(?:{pattern_of(each).pattern})" for each in filters) or r"(?!)"
    return beginnings, re.compile(pattern, re.DOTALL).fullmatch


class DriverRegistry:
    """The drivers of one proxy. A driver owns a mote from when it first announces it, also after a restart.

    Parameters
    ----------
    drivers
        Of the proxy.
    before
        What is known from before a restart. Motes announced as of boot 0 are those of drivers, too: earlier versions
        kept no owners, and announced no driven device otherwise. Whichever driver meets such a device owns it.
    """

    def __init__(self, drivers: Iterable[Driver] = (), before: Before = NOTHING_BEFORE) -> None:
        self.drivers = tuple(drivers)
        named = {each.name: each for each in self.drivers}
        self._topics = [(each, *_topics_of(each.subscriptions)) for each in self.drivers]
        """Drivers, each with what its topics begin with, and what matches them."""
        self._of = {each.mote: named[each.driver] for each in before.driven if each.driver in named}
        left = {each.mote for each in before.driven if each.driver not in named}
        owned = {each.mote for each in before.driven}
        self._free = {
            each.mote: each
            for each in before.announcements
            if each.mote in left or (each.boot == 0 and each.mote not in owned)
        }
        """Announcements of motes that were driven, and that no driver owns now."""
        self._left = Counter(each.driver for each in before.driven if each.driver not in named)
        self._states = dict(before.states)
        self._clashes: dict[str, str] = {}
        self._rejections: dict[str, Counter[str]] = {}
        self._strangers = 0

    def __contains__(self, mote: str) -> bool:
        """Return whether a mote is driven."""
        return mote in self._of

    @property
    def motes(self) -> tuple[tuple[str, Driver], ...]:
        """All driven motes, with their drivers."""
        return tuple(self._of.items())

    def driver_of(self, mote: str) -> Driver | None:
        """Return the driver of a mote; None if the mote is not driven."""
        return self._of.get(mote)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The fewest topic filters for all topics of the drivers."""
        return fewest_filters(each for driver in self.drivers for each in driver.subscriptions)

    @property
    def left(self) -> Mapping[str, int]:
        """How many devices there are of drivers that are not configured any more, by the driver's name."""
        return self._left

    def reading(self, topic: str) -> list[Driver]:
        """Return the drivers that read messages on a topic."""
        return [
            driver for driver, beginnings, matches in self._topics if topic.startswith(beginnings) and matches(topic)
        ]

    def has_no_key(self, mote: str) -> bool:
        """Return whether a mote is driven, or was before the restart: no key of its own seals its frames."""
        return mote in self._of or mote in self._free

    def abilities_of(self, mote: str) -> Abilities:
        """Return what a mote can do: everything, if it is not driven."""
        driver = self._of.get(mote)
        return Abilities() if driver is None else abilities(driver.capabilities_of(mote))

    def delay_of(self, mote: str) -> int | None:
        """Return by how much values of a driven device may be delayed, in microseconds; None if it is not driven."""
        driver = self._of.get(mote)
        return None if driver is None else driver.capabilities_of(mote).max_delay_us

    def capabilities_of(self, mote: str) -> Capabilities | None:
        """Return what a driven device can do; None if the mote is not driven."""
        driver = self._of.get(mote)
        return None if driver is None else driver.capabilities_of(mote)

    def same_driver(self, mote: str, other: str) -> bool:
        """Return whether one driver drives both motes: what it announces of their stream holds for both."""
        driver = self._of.get(mote)
        # A device of an earlier version belongs to whichever driver meets it: to this one, as it feeds its stream.
        return driver is not None and (driver is self._of.get(other) or (other in self._free and other not in self._of))

    def claim(self, driver: Driver, mote: str, announced: Announcement | None) -> str:
        """Let a driver drive a mote; return why it may not, or an empty text.

        Parameters
        ----------
        driver, mote
            Which driver for which mote.
        announced
            The announcement that the fleet has of the mote.
        """
        other = self._of.get(mote)
        if other is driver:
            return ""
        if other is not None and other.owns(mote):
            return f"mote {mote!r} is a device of driver {other.name!r}: give {driver.name!r} a prefix"
        free = self._free.get(mote)
        if other is None and announced is not None and (free is None or free.boot != announced.boot):
            return f"mote {mote!r} is one of Fjord's own: give driver {driver.name!r} a prefix"
        self._of[mote] = driver
        return ""

    def owner(self, driver: Driver, announcement: Announcement) -> DrivenMote:
        """Return that a driver owns the mote that it has announced, for the catalog."""
        mote = announcement.mote
        device = _asked(driver, mote, lambda driver, mote: driver.device_of(mote), "")
        return DrivenMote(mote, driver.name, device, announcement.boot)

    def known_devices(self, driver: Driver, before: Before) -> list[KnownDevice]:
        """Return the devices that a driver owned before the restart, each with a new boot, and those of no driver."""
        announcements = {each.mote: each for each in before.announcements}
        free = [KnownDevice(each.mote, "", before.boots.get(each.mote, 0) + 1, each) for each in self._free.values()]
        return free + [
            KnownDevice(
                each.mote,
                each.device,
                max(each.boot, announcements[each.mote].boot, before.boots.get(each.mote, 0)) + 1,
                announcements[each.mote],
                before.states.get(each.mote, b""),
                before.watermarks_us.get(announcements[each.mote].stream.name),
            )
            for each in before.driven
            if each.driver == driver.name and each.mote in announcements
        ]

    def changed_states(self, motes: Iterable[str]) -> dict[str, bytes]:
        """Return what drivers keep of these motes, if it is not what was returned before: to be stored now."""
        found: dict[str, bytes] = {}
        for mote in motes:
            driver = self._of.get(mote)
            if driver is None:
                continue
            state = _asked(driver, mote, lambda driver, mote: driver.state_of(mote), b"")
            if state != self._states.get(mote, b""):
                self._states[mote] = found[mote] = state
        return found

    def clashed(self, driver: Driver, mote: str, topic: str) -> bool:
        """Note that a driver met a device whose name another mote has; return whether that is the first of the name.

        Parameters
        ----------
        driver, mote
            Which driver for which mote.
        topic
            Of the device; empty if it is not known.
        """
        if mote in self._clashes or len(self._clashes) >= MOST_STRANGERS:
            return False
        device = topic[:_LONGEST_TOPIC] or driver.device_of(mote)[:_LONGEST_TOPIC] or mote
        self._clashes[mote] = f"another device `{device}` of driver {driver.name!r} has this name: give it a prefix"
        return True

    def rejected(self, mote: str, reason: str) -> None:
        """Count a rejection of what a device sent, by its reason."""
        counts = self._rejections.get(mote)
        if counts is None:
            if mote not in self._of:
                if self._strangers >= MOST_STRANGERS:
                    return
                self._strangers += 1
            counts = self._rejections[mote] = Counter()
        counts[reason] += 1

    def counts_of(self, mote: str) -> Mapping[str, int]:
        """Return what became of a device's messages, by reason: the driver's own counts, and rejections.

        A rejection that the driver has counted itself is counted once.
        """
        driver = self._of.get(mote)
        none: Mapping[str, int] = {}
        own = none if driver is None else _asked(driver, mote, lambda driver, mote: driver.counts_of(mote), none)
        return Counter(own) | self._rejections.get(mote, Counter())

    def trouble_of(self, mote: str) -> str:
        """Return what keeps messages of a device from their stream, and what to do about it; empty for nothing."""
        driver = self._of.get(mote)
        own = "" if driver is None else _asked(driver, mote, lambda driver, mote: driver.trouble_of(mote), "")
        return "; ".join(each for each in (self._clashes.get(mote), own) if each)[:_LONGEST_TROUBLE]


def _asked(driver: Driver, mote: str, question: Callable[[Driver, str], T], otherwise: T) -> T:
    """Return a driver's answer about a mote; a fault of the driver must not end what asks."""
    try:
        return question(driver, mote)
    except Exception:
        log.exception("a driver failed", driver=driver.name)
        return otherwise

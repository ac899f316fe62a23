"""Schedules of faults: kinds, parts, beginnings and durations, all drawn from a seed.

Pure. A schedule has one to three faults; several ones overlap::

    seconds    0    1    2    3    4    5    6    7    8    9
    stop proxy           |==============|
    cut cluster's link             |====================|

The first fault goes through all possible ones as seeds go up, so that consecutive seeds cover all of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Part(StrEnum):
    """The part that has a fault."""

    BROKER = "broker"
    PROXY = "proxy"
    CLUSTER = "cluster"
    MOTES = "motes"
    DEVICE = "device"
    """Of another maker: it publishes JSON as it likes."""
    SUBSCRIBER = "subscriber"
    PUBLISHER = "publisher"
    """A process of the cluster's; the cluster starts it again."""
    WORKER_1 = "first worker"
    WORKER_2 = "second worker"
    """Of a standalone Spark cluster, each with its executor."""
    PROXY_LINK = "proxy's link"
    CLUSTER_LINK = "cluster's link"


class Kind(StrEnum):
    """The kind of a fault."""

    KILL = "kill"
    """SIGKILL, and a new start."""
    FORGET = "forget"
    """The same, and its files are removed."""
    OUTAGE = "outage"
    """Killed, and away for longer than any retention time."""
    STOP = "stop"
    """SIGSTOP and SIGCONT, with all its children."""
    CUT = "cut"
    """Connections are reset, and new ones refused."""
    HOLD = "hold"
    """Nothing is forwarded; connections stay open, and waiting data are forwarded afterwards."""
    DELAY = "delay"
    """Everything is forwarded late."""
    FULL = "full disk"
    """Its files cannot grow."""
    EXECUTOR = "executor"
    """An executor of a standalone Spark cluster is killed."""


class Setting(StrEnum):
    """How the parts run."""

    LOCAL = "local"
    SHORT = "short"
    """Replaced files and old commits are kept for seconds only, unless they still have to be read."""
    SMALL = "small"
    """In addition there is little room: for the spool, samples in memory, results for a broker that is away."""
    STANDALONE = "standalone"
    """Spark has a master and two workers in processes of their own."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Parameters
    ----------
    kind, part
        The kind, and the part.
    at
        Seconds after the schedule begins.
    seconds
        Its duration; 0 for an instantaneous one.
    delay
        The delay of data, in seconds.
    """

    kind: Kind
    part: Part
    at: float
    seconds: float
    delay: float = 0.0

    @property
    def ends(self) -> float:
        """Seconds after the schedule begins."""
        return self.at + self.seconds

    def __str__(self) -> str:
        late = f" by {self.delay:g} s" if self.delay else ""
        return f"{self.kind} {self.part}{late} {self.at:g}-{self.ends:g} s"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The faults of one run.

    Parameters
    ----------
    seed
        The seed that it was drawn from.
    setting
        How the parts run.
    faults
        In the order in which they begin.
    """

    seed: int
    setting: Setting
    faults: tuple[Fault, ...]

    @property
    def ends(self) -> float:
        """When the last fault ends, in seconds after the schedule begins."""
        return max(fault.ends for fault in self.faults)

    def __str__(self) -> str:
        return ", ".join(str(fault) for fault in self.faults)


WORKERS = (Part.WORKER_1, Part.WORKER_2)

POSSIBLE: tuple[tuple[Kind, Part], ...] = (
    (Kind.KILL, Part.BROKER),
    (Kind.STOP, Part.PROXY),
    (Kind.CUT, Part.CLUSTER_LINK),
    (Kind.KILL, Part.CLUSTER),
    (Kind.HOLD, Part.PROXY_LINK),
    (Kind.FULL, Part.CLUSTER),
    (Kind.KILL, Part.SUBSCRIBER),
    (Kind.OUTAGE, Part.BROKER),
    (Kind.DELAY, Part.CLUSTER_LINK),
    (Kind.KILL, Part.PROXY),
    (Kind.EXECUTOR, Part.CLUSTER),
    (Kind.STOP, Part.BROKER),
    (Kind.CUT, Part.PROXY_LINK),
    (Kind.FULL, Part.PROXY),
    (Kind.STOP, Part.CLUSTER),
    (Kind.FORGET, Part.BROKER),
    (Kind.HOLD, Part.CLUSTER_LINK),
    (Kind.OUTAGE, Part.CLUSTER),
    (Kind.KILL, Part.MOTES),
    (Kind.DELAY, Part.PROXY_LINK),
    (Kind.KILL, Part.PUBLISHER),
    (Kind.KILL, Part.WORKER_1),
    (Kind.STOP, Part.PUBLISHER),
    (Kind.KILL, Part.WORKER_2),
    (Kind.KILL, Part.DEVICE),
)
"""All possible faults."""

SECONDS: Mapping[Kind, tuple[float, float]] = MappingProxyType(
    {
        Kind.KILL: (0.2, 5.0),
        Kind.FORGET: (0.2, 5.0),
        Kind.OUTAGE: (10.0, 16.0),
        Kind.STOP: (1.0, 12.0),
        Kind.CUT: (0.5, 10.0),
        Kind.HOLD: (0.5, 10.0),
        Kind.DELAY: (3.0, 10.0),
        Kind.FULL: (2.0, 8.0),
        Kind.EXECUTOR: (0.0, 0.0),
    }
)
"""How long a fault lasts, at least and at most."""
_HOW_MANY = (1, 1, 1, 2, 2, 2, 3)
_SETTINGS = (*[Setting.LOCAL] * 6, *[Setting.SHORT] * 2, Setting.SMALL, Setting.STANDALONE)
_OF_OUTAGES = (Setting.SHORT, Setting.SMALL)
_FIRST_AT = (1.0, 3.0)
_LONGEST_DELAY = 0.6


def drawn(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    dice = random.Random(seed)
    kind, part = POSSIBLE[seed % len(POSSIBLE)]
    setting = _setting(dice, kind, part)
    first = _fault(dice, kind, part, dice.uniform(*_FIRST_AT))
    faults = [first]
    for _ in range(dice.choice(_HOW_MANY) - 1):
        taken = {fault.part for fault in faults}
        left = [each for each in POSSIBLE if each[1] not in taken and _happens_in(setting, *each)]
        faults.append(_fault(dice, *dice.choice(left), dice.uniform(first.at, first.at + max(first.seconds, 1.0))))
    return Schedule(seed, setting, tuple(sorted(faults, key=lambda fault: fault.at)))


def _setting(dice: random.Random, kind: Kind, part: Part) -> Setting:
    chosen = dice.choice(_SETTINGS)
    if kind is Kind.OUTAGE:
        return dice.choice(_OF_OUTAGES)
    return chosen if _happens_in(chosen, kind, part) else Setting.STANDALONE


def _happens_in(setting: Setting, kind: Kind, part: Part) -> bool:
    if kind is Kind.OUTAGE:
        return setting in _OF_OUTAGES
    return setting is Setting.STANDALONE or not (kind is Kind.EXECUTOR or part in WORKERS)


def _fault(dice: random.Random, kind: Kind, part: Part, at: float) -> Fault:
    seconds = round(dice.uniform(*SECONDS[kind]), 1)
    delay = round(dice.uniform(0.05, _LONGEST_DELAY), 2) if kind is Kind.DELAY else 0.0
    return Fault(kind, part, round(at, 1), seconds, delay)


def grouped(schedules: list[Schedule], largest: int) -> list[list[Schedule]]:
    """Return schedules in groups that can run on the same parts, with at most `largest` in each."""
    groups: list[list[Schedule]] = []
    for setting in Setting:
        alike = [each for each in schedules if each.setting is setting]
        groups += [alike[start : start + largest] for start in range(0, len(alike), largest)]
    return groups

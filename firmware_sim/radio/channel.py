"""A radio channel with faults: loss, in bursts too, garbling, duplication, reordering, latency, collisions, retries."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from protocols.power.constants_file import convert, read_table
from protocols.text.plain_text import read_text_file

Probability = Annotated[float, Meta(ge=0, le=1)]


class Bernoulli(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="bernoulli"
):
    """Each transmission is lost with the same probability, independently of the one before."""

    share: Probability = 0.0

    @property
    def mean(self) -> float:
        """The lost share in the long run."""
        return self.share


class GilbertElliott(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="gilbert_elliott"
):
    """A link that is good or bad, and stays so for a while (Gilbert 1960, Elliott 1963).

    Parameters
    ----------
    turns_bad, turns_good
        Probability of changing from good to bad, and back, before each transmission.
    lost_when_good, lost_when_bad
        The lost share in each state.
    """

    turns_bad: Annotated[float, Meta(gt=0, le=1)]
    turns_good: Annotated[float, Meta(gt=0, le=1)]
    lost_when_good: Probability = 0.0
    lost_when_bad: Probability = 1.0

    @property
    def mean(self) -> float:
        """The lost share in the long run."""
        bad = self.turns_bad / (self.turns_bad + self.turns_good)
        return bad * self.lost_when_bad + (1 - bad) * self.lost_when_good


LossModel = Bernoulli | GilbertElliott


class Link:
    """The link of one mote: the next loss depends on its state.

    Parameters
    ----------
    model
        The model of losses.
    generator
        The random generator.
    """

    def __init__(self, model: LossModel, generator: np.random.Generator) -> None:
        self._model = model
        self._generator = generator
        self._bad = False

    def loses(self) -> bool:
        """Return whether the next transmission is lost."""
        model = self._model
        if isinstance(model, Bernoulli):
            return bool(self._generator.random() < model.share)
        change, chance = self._generator.random(2)
        if change < (model.turns_good if self._bad else model.turns_bad):
            self._bad = not self._bad
        return bool(chance < (model.lost_when_bad if self._bad else model.lost_when_good))


SECOND_US = 1_000_000


class RadioFaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The faults of a radio; by default there are none.

    Parameters
    ----------
    loss
        How transmissions are lost: `kind = "bernoulli"` or `kind = "gilbert_elliott"`.
    garbled
        Share of delivered packets with a few wrong bits.
    duplicated
        Share delivered twice.
    reordered
        Share held back for `reordered_by_us`, so that later ones overtake them.
    latency_us, jitter_us
        The delay of every packet, and the most that is added at random.
    collisions_above_load
        Share of time for which the channel may be busy before packets begin to collide; None for no collisions.
    maximum_attempts
        How often a mote repeats a lost packet; None for the number of its radio.
    """

    loss: LossModel = Bernoulli()
    garbled: Probability = 0.0
    duplicated: Probability = 0.0
    reordered: Probability = 0.0
    reordered_by_us: Annotated[int, Meta(ge=0)] = 500_000
    latency_us: Annotated[int, Meta(ge=0)] = 0
    jitter_us: Annotated[int, Meta(ge=0)] = 0
    collisions_above_load: Annotated[float, Meta(ge=0, le=1)] | None = None
    maximum_attempts: Annotated[int, Meta(ge=1, le=16)] | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A packet that arrives, perhaps changed."""

    at_us: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Carried:
    """The fate of a packet: how often it was sent, and what arrives."""

    attempts: int
    deliveries: tuple[Delivery, ...]


@dataclass(slots=True)
class ChannelCounters:
    """The channel's counts of faults; attempts count each transmission."""

    attempts: int = 0
    packets: int = 0
    lost: int = 0
    collided: int = 0
    garbled: int = 0
    duplicated: int = 0
    reordered: int = 0


class Channel:
    """A channel shared by many motes. The same seed and the same packets give the same faults.

    Parameters
    ----------
    faults
        The faults of the channel.
    seed
        The seed of all random values.
    """

    def __init__(self, faults: RadioFaults, *, seed: int = 1) -> None:
        self._faults = faults
        self._generator = np.random.default_rng(seed)
        self._links: dict[str, Link] = {}
        self._busy: deque[tuple[int, float]] = deque()
        self._busy_us = 0.0
        self.counters = ChannelCounters()

    @property
    def load(self) -> float:
        """The share of the last second in which a mote sent."""
        return self._busy_us / SECOND_US

    def carry(self, mote: str, payload: bytes, *, at_us: int, airtime_us: float, maximum_attempts: int = 1) -> Carried:
        """Return the fate of a packet that a mote begins to send at an instant.

        Parameters
        ----------
        mote
            The mote that sends.
        payload
            The bytes that are sent.
        at_us, airtime_us
            The instant, and how long one transmission takes.
        maximum_attempts
            Most transmissions before the mote gives up, unless the faults have another number.
        """
        faults = self._faults
        most = faults.maximum_attempts or maximum_attempts
        link = self._links.get(mote)
        if link is None:
            link = self._links[mote] = Link(faults.loss, self._generator)
        self.counters.packets += 1
        for attempt in range(1, most + 1):
            self.counters.attempts += 1
            collided = self._collides(at_us, airtime_us)
            self.counters.collided += collided
            if not (link.loses() or collided):
                arrives_us = at_us + math.ceil(airtime_us * attempt)
                return Carried(attempt, self._deliveries(arrives_us, payload))
        self.counters.lost += 1
        return Carried(most, ())

    def _deliveries(self, arrives_us: int, payload: bytes) -> tuple[Delivery, ...]:
        faults, chances = self._faults, self._generator.random(4)
        arrives_us += faults.latency_us + int(chances[0] * faults.jitter_us)
        if chances[1] < faults.garbled:
            self.counters.garbled += 1
            payload = self._garble(payload)
        if chances[2] < faults.reordered:
            self.counters.reordered += 1
            arrives_us += faults.reordered_by_us
        first = Delivery(arrives_us, payload)
        if chances[3] < faults.duplicated:
            self.counters.duplicated += 1
            return first, Delivery(arrives_us + faults.jitter_us + 1, payload)
        return (first,)

    def _garble(self, payload: bytes) -> bytes:
        """Flip one to eight bits."""
        if not payload:
            return payload
        wrong = bytearray(payload)
        bits = len(wrong) * 8
        many = min(bits, int(self._generator.integers(1, 9)))
        places = self._generator.choice(bits, size=many, replace=False)
        for place in places:
            wrong[int(place) // 8] ^= 1 << int(place) % 8
        return bytes(wrong)

    def _collides(self, at_us: int, airtime_us: float) -> bool:
        """Return whether another mote sends at the same time: ALOHA with the load that carrier sense cannot avoid."""
        free = self._faults.collisions_above_load
        if free is None:
            return False
        while self._busy and self._busy[0][0] <= at_us - SECOND_US:
            self._busy_us -= self._busy.popleft()[1]
        load = max(0.0, self.load - free)
        self._busy.append((at_us, airtime_us))
        self._busy_us += airtime_us
        return bool(self._generator.random() < -math.expm1(-2.0 * load))


def read_faults(path: Path) -> RadioFaults:
    """Return the faults described in a TOML file.

    Raises
    ------
    SettingsError
        If it cannot be read or understood; the error has the place.
    """
    text = read_text_file(path, "the radio file")
    return convert(read_table(text, str(path)), RadioFaults, text=text, origin=str(path))

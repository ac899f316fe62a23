"""The meter of one mote: adds up the energy of its activities as they happen, and draws it from its battery."""

from __future__ import annotations

import math

import numpy as np

from firmware_sim.power.battery import RATED_C, Battery, Charges, Supply
from protocols.power.costs import (
    COMPONENTS,
    Energy,
    always_mw,
    listen_cost,
    named,
    packet_cost,
    resting_mw,
    sample_cost,
    synchronisation_cost,
)
from protocols.power.estimate import pause_us
from protocols.power.profiles import DeviceProfile, find_profile, is_preset
from protocols.wire.programs import SLEEP, SamplingProgram

SETTLES_AFTER_US = 60_000_000
"""How often the battery is checked."""


class Meter:
    """Energy of one mote. Times are the radio clock's, that is, real time.

    Parameters
    ----------
    profile
        The device profile of the mote.
    battery
        Its battery; None for an endless supply.
    temperature_c
        The temperature of the battery.
    """

    def __init__(
        self, profile: DeviceProfile, battery: Battery | None = None, *, temperature_c: float = RATED_C
    ) -> None:
        self.profile = profile
        self._usable_joules = None if battery is None else _usable_joules(profile, battery)
        self._charges = None if battery is None else Charges([Supply(profile, battery, temperature_c)])
        self._temperature_c = np.array([temperature_c])
        self._settled = np.zeros(len(COMPONENTS))
        self._waiting = np.zeros(len(COMPONENTS))
        self._busy_us = 0.0
        self._since_us: int | None = None
        self.died_us: int | None = None
        """When the battery became empty; None if it is not."""
        self._program = SLEEP
        self._sample = sample_cost(profile, 1, 1)
        self.run(SLEEP)

    @property
    def dead(self) -> bool:
        """True if the battery is empty."""
        return self.died_us is not None

    @property
    def device(self) -> str:
        """The name of its preset; empty if its profile is another one."""
        name = self.profile.name
        return name if is_preset(name) and find_profile(name) == self.profile else ""

    @property
    def usable_joules(self) -> float | None:
        """The energy of a full battery at 20 degC before the mote stops; None without one, or if it gives none."""
        return self._usable_joules or None

    @property
    def joules(self) -> Energy:
        """All energy up to the last settlement, by component."""
        return self._settled.copy()

    @property
    def drained_joules(self) -> float | None:
        """The energy that the battery gave to the mote; None without a battery."""
        return None if self._charges is None else float(self._charges.drawn[0])

    @property
    def battery_share(self) -> float | None:
        """Remaining usable charge, 0 to 1; None without a battery."""
        return None if self._charges is None else min(1.0, max(0.0, float(self._charges.share_left[0])))

    def by_name(self) -> dict[str, float]:
        """Return the joules by component's name, and their total."""
        return named(self._settled)

    def run(self, program: SamplingProgram) -> None:
        """Switch to a program; settle first."""
        self._program = program
        fields = max(1, len(program.fields))
        self._sample = sample_cost(self.profile, fields, max(program.period_us, 1))

    def sampled(self) -> None:
        """Count one sample."""
        self._waiting += self._sample.joules
        self._busy_us += self._sample.busy_us

    def sent(self, payload_bits: float, *, repeats: int = 0) -> int:
        """Count one packet and, separately, its repeats; return how long one is on the air, in microseconds."""
        cost = packet_cost(self.profile, payload_bits)
        self._waiting += cost.joules
        self._busy_us += cost.busy_us
        if repeats:
            self.repeated(payload_bits, repeats)
        return math.ceil(self.profile.radio.airtime_us(payload_bits))

    def repeated(self, payload_bits: float, times: int) -> None:
        """Count repeats of a packet that was not acknowledged."""
        once, again = packet_cost(self.profile, payload_bits), packet_cost(self.profile, payload_bits, 2.0)
        self._waiting += (again.joules - once.joules) * times
        self._busy_us += (again.busy_us - once.busy_us) * times

    def listened(self, for_us: float) -> None:
        """Count one listen window."""
        cost = listen_cost(self.profile, for_us)
        self._waiting += cost.joules
        self._busy_us += cost.busy_us

    def pass_time(self, radio_us: int) -> None:
        """Settle if it is time to."""
        if self._since_us is None:
            self._since_us = radio_us
        elif radio_us - self._since_us >= SETTLES_AFTER_US:
            self.settle(radio_us)

    def settle(self, radio_us: int) -> None:
        """Add the energy of rest, and draw all energy from the battery."""
        if self._since_us is None:
            self._since_us = radio_us
        elapsed_us = radio_us - self._since_us
        if elapsed_us <= 0 or self.dead:
            return
        self._synchronise(self._since_us, radio_us)
        resting_us = max(elapsed_us - self._busy_us, 0.0)
        self._busy_us = max(self._busy_us - elapsed_us, 0.0)
        self._waiting += resting_mw(self.profile, pause_us(self._program)) * (resting_us * 1e-9)
        self._waiting += always_mw(self.profile) * (elapsed_us * 1e-9)
        share = 1.0
        if self._charges is not None:
            drawn = np.array([self._waiting.sum()])
            share = float(self._charges.step(drawn, elapsed_us / 1e6, self._temperature_c)[0])
            if not self._charges.alive[0]:
                self.died_us = self._since_us + int(elapsed_us * share)
        self._settled += self._waiting * share
        self._waiting[:] = 0.0
        self._since_us = radio_us

    def _synchronise(self, since_us: int, until_us: int) -> None:
        every_us = int(self.profile.clock.synchronise_every_seconds * 1e6)
        if every_us:
            times = until_us // every_us - since_us // every_us
            cost = synchronisation_cost(self.profile)
            self._waiting += cost.joules * times
            self._busy_us += cost.busy_us * times


def _usable_joules(profile: DeviceProfile, battery: Battery) -> float:
    return battery.usable_joules(profile.processor.supply_v, profile.processor.minimum_v)

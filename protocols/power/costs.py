"""The components of a mote that draw power, and what a sample, a packet or a listen window costs of each.

**The cost of one sample, packet or listen window, by component, and the draw of a resting mote.**

The closed-form estimate multiplies these by rates, the meter adds them up as things happen, the simulation in virtual
time multiplies them by counts: one model, three ways to run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from protocols.power.profiles import DeviceProfile


class Component(StrEnum):
    """A component of a mote, in one of its states."""

    PROCESSOR_ACTIVE = "processor_active"
    PROCESSOR_IDLE = "processor_idle"
    """Its clock runs while it waits for a short time, or for the radio."""
    PROCESSOR_SLEEP = "processor_sleep"
    ADC = "adc"
    SENSOR = "sensor"
    """From the moment it is switched on to warm up until it has been read."""
    RADIO_START_UP = "radio_start_up"
    RADIO_TRANSMIT = "radio_transmit"
    RADIO_RECEIVE = "radio_receive"
    """Link acknowledgements, and sensing whether the channel is free."""
    RADIO_LISTEN = "radio_listen"
    """Listen windows, whether anything is received in them or not."""
    RADIO_SLEEP = "radio_sleep"
    TIME_SYNC = "time_sync"
    BOARD = "board"
    """Always on: regulator, pull-ups, leakage."""


COMPONENTS: Final = tuple(Component)

Power = npt.NDArray[np.float64]
"""Milliwatts, one per component (last axis), in the order of :data:`COMPONENTS`."""
Energy = npt.NDArray[np.float64]
"""Joules, one per component (last axis), in the order of :data:`COMPONENTS`."""


def by_component(amounts: Mapping[Component, float]) -> npt.NDArray[np.float64]:
    """Return an array with the amounts in place; zero for components that are not named."""
    return np.array([amounts.get(component, 0.0) for component in COMPONENTS])


def named(amounts: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return the amounts by component's name, and their ``total``."""
    reports = {component.value: float(amount) for component, amount in zip(COMPONENTS, amounts, strict=True)}
    return {**reports, "total": float(amounts.sum())}


HEALTH_EVERY_PACKETS = 16
"""A packet with samples carries the mote's health this often; polling packets always do."""


@dataclass(frozen=True, slots=True, eq=False)
class Cost:
    """Energy of one activity.

    Parameters
    ----------
    joules
        By component.
    busy_us
        How long it keeps the processor from resting.
    """

    joules: Energy
    busy_us: float


@lru_cache(maxsize=4096)
def sample_cost(profile: DeviceProfile, fields: int, period_us: float) -> Cost:
    """Return the cost of one sample with this many fields.

    The processor rests while the converter works. A sensor that cannot warm up within the period is never off.
    """
    processor, adc, sensor = profile.processor, profile.adc, profile.sensor
    active_us = processor.cycles_per_sample / processor.clock_hz * 1e6
    if profile.rests_asleep(period_us):
        active_us += processor.wake_up_us
    latch_us = adc.latch_us * fields
    sensing_us = min(period_us, sensor.warm_up_us + latch_us)
    joules = by_component(
        {
            Component.PROCESSOR_ACTIVE: energy(processor.active_mw, active_us),
            Component.ADC: energy(adc.mw, latch_us),
            Component.SENSOR: energy(sensor.mw, sensing_us),
        }
    )
    return Cost(joules, min(active_us, period_us))


@lru_cache(maxsize=4096)
def packet_cost(profile: DeviceProfile, payload_bits: float, attempts: float = 1.0) -> Cost:
    """Return the cost of one packet that is sent `attempts` times until it is acknowledged or given up.

    The processor idles while its radio works.
    """
    processor, radio = profile.processor, profile.radio
    active_us = processor.cycles_per_packet / processor.clock_hz * 1e6
    transmit_us = radio.airtime_us(payload_bits) * attempts
    receive_us = (radio.channel_sense_us + radio.bits_us(radio.acknowledgement_bits)) * attempts
    on_us = radio.start_up_us + transmit_us + receive_us
    joules = by_component(
        {
            Component.PROCESSOR_ACTIVE: energy(processor.active_mw, active_us),
            Component.PROCESSOR_IDLE: energy(processor.idle_mw, on_us),
            Component.RADIO_START_UP: energy(radio.start_up_mw, radio.start_up_us),
            Component.RADIO_TRANSMIT: energy(radio.transmit_mw, transmit_us),
            Component.RADIO_RECEIVE: energy(radio.receive_mw, receive_us),
        }
    )
    return Cost(joules, active_us + on_us)


@lru_cache(maxsize=4096)
def reporting_cost(profile: DeviceProfile, payload_bits: float, attempts: float = 1.0) -> Cost:
    """Return the mean cost of a packet with records: one of several carries the mote's health as well."""
    plain = packet_cost(profile, payload_bits, attempts)
    healthy = packet_cost(profile, payload_bits + profile.radio.health_bits, attempts)
    share = 1 / HEALTH_EVERY_PACKETS
    joules = plain.joules + (healthy.joules - plain.joules) * share
    return Cost(joules, plain.busy_us + (healthy.busy_us - plain.busy_us) * share)


@lru_cache(maxsize=4096)
def listen_cost(profile: DeviceProfile, for_us: float) -> Cost:
    """Return the cost of one listen window; it follows a packet, so the radio is ready."""
    joules = by_component(
        {
            Component.RADIO_LISTEN: energy(profile.radio.receive_mw, for_us),
            Component.PROCESSOR_IDLE: energy(profile.processor.idle_mw, for_us),
        }
    )
    return Cost(joules, for_us)


@lru_cache(maxsize=256)
def synchronisation_cost(profile: DeviceProfile) -> Cost:
    """Return the cost of one synchronisation of the clock."""
    clock, radio, processor = profile.clock, profile.radio, profile.processor
    on_us = clock.guard_us + radio.bits_us(clock.message_bits)
    joules = by_component(
        {
            Component.TIME_SYNC: energy(radio.receive_mw, on_us) + energy(radio.start_up_mw, radio.start_up_us),
            Component.PROCESSOR_IDLE: energy(processor.idle_mw, on_us + radio.start_up_us),
        }
    )
    return Cost(joules, on_us + radio.start_up_us)


@lru_cache(maxsize=1024)
def resting_mw(profile: DeviceProfile, pause_us: float) -> Power:
    """Return the draw of a mote in pauses of this length."""
    processor = profile.processor
    if profile.rests_asleep(pause_us):
        mode = {Component.PROCESSOR_SLEEP: processor.sleep_mw}
    else:
        mode = {Component.PROCESSOR_IDLE: processor.idle_mw}
    return by_component({**mode, Component.RADIO_SLEEP: profile.radio.sleep_mw})


@lru_cache(maxsize=256)
def always_mw(profile: DeviceProfile) -> Power:
    """Return the draw of a mote at any time, whatever it does."""
    return by_component({Component.BOARD: profile.board.mw})


@lru_cache(maxsize=256)
def most_mw(profile: DeviceProfile) -> float:
    """Return the draw of all components at once: an upper bound."""
    radio = profile.radio
    on = max(radio.transmit_mw, radio.receive_mw, radio.start_up_mw)
    processor = max(profile.processor.active_mw, profile.processor.idle_mw)
    return float(always_mw(profile).sum()) + processor + on + profile.adc.mw + profile.sensor.mw


def energy(milliwatts: float, microseconds: float) -> float:
    """Return joules."""
    return milliwatts * microseconds * 1e-9

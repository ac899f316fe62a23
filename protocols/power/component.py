"""The components of a mote that draw power. Energy is kept as joules per component."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt


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

"""Counters of devices, unwrapped: a counter that is full or begins anew goes on from where it was.

Pure. What is added to a device's own numbers is kept across restarts of the proxy (:class:`DeviceState`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.wire.frames import KIBIBYTE
from protocols.wire.packets import SampleValue

MAX_STATE_BYTES = 48 * KIBIBYTE
_STATE_VERSION = 1
_LARGEST = 2**63 - 1


class CounterState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A counter.

    Parameters
    ----------
    number
        The device's last number.
    base
        What is added to its numbers.
    before
        What was added until the last reset.
    stamp_us
        Instant of the last number.
    top
        The last number before the last reset.
    """

    number: int | float
    base: int | float = 0
    before: int | float = 0
    stamp_us: int = -(2**62)
    top: int | float = math.inf

    def next(self, number: float, stamp_us: int, modulus: float | None, *, in_order: bool = False) -> CounterState:
        """Return the state after a number; the same state for one that came out of order.

        Numbers that are stamped on arrival are `in_order`, whatever the proxy's clock does.
        """
        behind = stamp_us < self.stamp_us or (stamp_us == self.stamp_us and number < self.number)
        if behind and not in_order:
            return self
        if number >= self.number:
            return CounterState(number, self.base, self.before, stamp_us, self.top)
        added = self.number if modulus is None else modulus
        return CounterState(number, self.base + added, self.base, stamp_us, self.number)

    def value(self, number: float) -> int | float:
        """Return the unwrapped value of a number: the last one, or one that came out of order.

        A larger one is from before the last reset, or, with a stamp that is a little off, from after it: whichever is
        nearer.
        """
        since = number <= self.number or number - self.number < self.top - number < math.inf
        return number + (self.base if since else self.before)


class DeviceState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a driver keeps of a device.

    Parameters
    ----------
    version
        Of this form.
    counters
        By field.
    description
        What else the driver has to know at once after a restart.
    """

    version: int = _STATE_VERSION
    counters: Annotated[dict[str, CounterState], Meta(max_length=256)] = {}
    description: bytes = b""


_decoder = msgspec.msgpack.Decoder(DeviceState)


def encode_state(state: DeviceState) -> bytes:
    """Return the bytes of a state; none if nothing is to be kept."""
    return msgspec.msgpack.encode(state) if state.counters or state.description else b""


def decode_state(content: bytes) -> DeviceState | None:
    """Return the state in `content`; None if it cannot be read."""
    if not content:
        return DeviceState()
    try:
        state = _decoder.decode(content) if len(content) <= MAX_STATE_BYTES else None
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return state if state is not None and state.version == _STATE_VERSION else None


class Counters:
    """The counters of one device.

    Parameters
    ----------
    moduli
        Fields that are counters, each with its modulus or None.
    states
        From before a restart.
    """

    def __init__(
        self, moduli: Mapping[str, int | float | None], states: Mapping[str, CounterState] | None = None
    ) -> None:
        self._moduli = moduli
        self.states: dict[str, CounterState] = dict(states or {})

    def unwrap(self, values: dict[str, SampleValue], stamp_us: int, *, in_order: bool = False) -> list[str]:
        """Put unwrapped values for the numbers of counters; return what happened, by the names of counts."""
        happened: list[str] = []
        for name, modulus in self._moduli.items():
            number = values.get(name)
            if not isinstance(number, int | float):
                continue
            before = self.states.get(name)
            after = (
                CounterState(number, stamp_us=stamp_us)
                if before is None
                else before.next(number, stamp_us, modulus, in_order=in_order)
            )
            value = after.value(number)
            if not -_LARGEST <= value <= _LARGEST or not math.isfinite(value):
                # A counter of such numbers is none: what it had counted stays as it was.
                values[name] = None
                happened.append("field_out_of_range")
                continue
            if before is not None and after is before:
                happened.append("counter_behind")
            elif before is not None and after.base != before.base:
                happened.append("counter_reset" if modulus is None else "counter_wrap")
            values[name] = value
            # A new dictionary: the states of packets that were returned stay as they were.
            self.states = {**self.states, name: after}
        return happened

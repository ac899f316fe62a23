"""What outputs of a driver lead to: frames and messages in their order, and the controls that it gets for them.

**Which message to a device is published next, and which are given up.**

Drivers send again what was not confirmed, so a message that comes too late, or one too many, is given up::

    added     1   2 until 5 s   3 ... 1,024   1,025
    4 s       1                                        1,025 finds no room
    6 s           given up      3

A driver answers controls with outputs of their own; these wait until the frames before them were delivered::

    message  ->  output: frames 1 2       1 -> control -> output: frame 3       2       3 -> control ...

A driver that answers every control with another listen window would never come to an end: a mote gets so many
controls in one exchange. Devices do not sleep, so they listen at once when their program changes:
once for each program.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from protocols.wire.catalog import MoteState
from protocols.wire.packets import Announcement, Instruction, Packet, RunProgram, SendAnnouncement
from protocols.wire.programs import SamplingProgram
from proxy.drivers.driver import Driver, DriverOutput, Publication

MOST_WAITING = 1_024
"""Messages to devices that may wait to be published; more are dropped, and drivers send them again."""


class DeviceMessages:
    """The messages to devices of one proxy that have not been published."""

    def __init__(self) -> None:
        self._waiting: deque[Publication] = deque()

    def add(self, publications: Iterable[Publication]) -> int:
        """Let messages wait; return how many found no room."""
        unsent = 0
        for each in publications:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(each)
            else:
                unsent += 1
        return unsent

    def next(self, radio_us: int) -> tuple[Publication | None, int]:
        """Return what to publish now, None for nothing, and how many messages were given up as too late.

        Parameters
        ----------
        radio_us
            Radio clock now.
        """
        late = 0
        while self._waiting:
            each = self._waiting.popleft()
            if each.before_radio_us is None or radio_us < each.before_radio_us:
                return each, late
            late += 1
        return None, late


MOST_CONTROLS = 16
"""Controls that a driver gets for one mote after one message; later ones are sent again in another window."""


@dataclass(slots=True)
class Exchange:
    """What one message of a device leads to, or time, or a changed demand."""

    _waiting: deque[DriverOutput | Announcement | Packet] = field(default_factory=deque)
    _controls: Counter[str] = field(default_factory=Counter)
    _refused: set[str] = field(default_factory=set)

    def answered(self, output: DriverOutput) -> None:
        """Note an output of the driver."""
        self._waiting.append(output)
        self._waiting.extend(output.frames)

    def next(self) -> DriverOutput | Announcement | Packet | None:
        """Return an output whose publications, rejections and notices are to be noted, or a frame to be delivered.

        None at the end.
        """
        return self._waiting.popleft() if self._waiting else None

    def passes_on(self, mote: str) -> bool:
        """Return whether a control that a frame of this mote led to is passed on; otherwise it is not sent."""
        self._controls[mote] += 1
        return self._controls[mote] <= MOST_CONTROLS

    def refuses(self, mote: str) -> bool:
        """Note that a frame of this mote is refused for its name; return whether it is the first of the exchange."""
        first = mote not in self._refused
        self._refused.add(mote)
        return first


@dataclass(slots=True)
class DemandedPrograms:
    """Which programs the devices of one proxy have been asked to run."""

    _demanded: dict[str, SamplingProgram] = field(default_factory=dict)

    def lets_listen(self, mote: str, state: MoteState, desired: SamplingProgram) -> bool:
        """Return whether a device is to listen now: it changes to a program that it was not asked for yet."""
        return state is MoteState.CHANGING and self._demanded.get(mote) != desired

    def asked(self, mote: str, instruction: Instruction) -> None:
        """Note that a device is asked to carry out an instruction."""
        if isinstance(instruction, RunProgram):
            self._demanded[mote] = instruction.program


def request(driver: Driver, mote: str, instruction: Instruction) -> Callable[..., DriverOutput] | None:
    """Return the call of a driver for an instruction to one of its motes; None for none.

    A device's clock is never moved: its samples are stamped by the proxy's own.
    """
    match instruction:
        case RunProgram(program, not_before_us):
            return partial(driver.run, mote, program, not_before_us=not_before_us)
        case SendAnnouncement():
            return partial(driver.announce, mote)
        case _:
            return None

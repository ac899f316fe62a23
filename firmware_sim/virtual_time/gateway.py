"""The other end of the radio in virtual time: sends programs in listen windows, and counts the packets that arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from protocols.errors import FrameError
from protocols.wire.frames import VERSION
from protocols.wire.packets import Control, Packet, RunProgram, decode_packet
from protocols.wire.programs import SLEEP, SamplingProgram, program_number

LOWEST_US = -(2**62)


@dataclass(slots=True)
class Received:
    """The packets from one mote. A missing sequence number is a loss; a repeated one, a repeat."""

    packets: int = 0
    repeated: int = 0
    highest_sequence: int = -1
    seen: set[int] = field(default_factory=set)

    @property
    def missing(self) -> int:
        """How many packets before the latest never arrived."""
        return self.highest_sequence + 1 - len(self.seen)


class Gateway:
    """Answers motes like a proxy with constant demands.

    Parameters
    ----------
    wanted
        The program of each mote, by name; others sleep.
    listener
        Called with every new packet that can be read, and the time of its arrival.
    """

    def __init__(
        self, wanted: Mapping[str, SamplingProgram], listener: Callable[[int, Packet], None] | None = None
    ) -> None:
        self._wanted = dict(wanted)
        self._listener = listener
        self.rejected = 0
        """Packets that could not be read."""
        self.received: dict[str, Received] = {}

    def receive(self, at_us: int, payload: bytes) -> Control | None:
        """Process a packet; return control, if the mote listens and runs another program than it should."""
        try:
            packet = decode_packet(payload)
        except FrameError:
            self.rejected += 1
            return None
        received = self.received.setdefault(packet.mote, Received())
        if packet.sequence in received.seen:
            received.repeated += 1
            return None
        received.seen.add(packet.sequence)
        received.packets += 1
        received.highest_sequence = max(received.highest_sequence, packet.sequence)
        if self._listener is not None:
            self._listener(at_us, packet)
        wanted = self._wanted.get(packet.mote, SLEEP)
        if packet.listen_us == 0 or packet.program == program_number(wanted):
            return None
        return Control(VERSION, packet.mote, (RunProgram(wanted, LOWEST_US),))

"""Motes with Fjord's own firmware: their frames pass as they are, and they are spoken to in their listen windows."""

from __future__ import annotations

from protocols import topics
from protocols.errors import FrameError, TopicError
from protocols.frames import VERSION, encode
from protocols.packets import (
    Announcement,
    Control,
    Packet,
    RunProgram,
    SendAnnouncement,
    decode_announcement,
    decode_packet,
)
from protocols.programs import SamplingProgram
from proxy.drivers.driver import EVERYTHING, NOTHING, Capabilities, DriverOutput, Publication, Refusal
from proxy.watermarks import LOWEST_US

MOST_WINDOWS = 100_000
"""Motes whose last listen window is remembered."""


class NativeDriver:
    """The motes of a proxy.

    Parameters
    ----------
    proxy
        Its name, part of the topics.
    """

    name = "native"
    capabilities = EVERYTHING

    def __init__(self, proxy: str) -> None:
        self._proxy = proxy
        self._open_until_us: dict[str, int] = {}

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Packets and announcements of all motes."""
        return (topics.packet(self._proxy, "+"), topics.announcement(self._proxy, "+"))

    def capabilities_of(self, mote: str) -> Capabilities:
        """Return what one mote can do: everything."""
        _ = mote
        return EVERYTHING

    def owns(self, mote: str) -> bool:
        """Return whether a mote was heard on these topics."""
        return mote in self._open_until_us

    def received(
        self, topic: str, payload: bytes, *, radio_us: int, heard_us: int, retained: bool = False
    ) -> DriverOutput:
        """Return the frame in a message."""
        _ = heard_us
        try:
            parsed = topics.parse(topic)
        except TopicError:
            return NOTHING
        if parsed.kind not in {"packet", "announcement"} or parsed.names[0] != self._proxy:
            return NOTHING
        mote = parsed.names[1]
        if retained:
            return _refused("retained", f"{parsed.kind} that the broker kept is an old one", mote)
        frame: Packet | Announcement
        try:
            frame = decode_packet(payload) if parsed.kind == "packet" else decode_announcement(payload)
        except FrameError as error:
            return _refused(error.reason, str(error), mote)
        if frame.mote != mote:
            return _refused("mote", f"{parsed.kind} of mote {frame.mote!r} on the topic of {mote!r}", mote)
        self._heard(mote, radio_us + frame.listen_us if isinstance(frame, Packet) else radio_us)
        return DriverOutput(frames=(frame,))

    def run(
        self,
        mote: str,
        program: SamplingProgram,
        *,
        radio_us: int,
        heard_us: int,
        not_before_us: int | None = None,
    ) -> DriverOutput:
        """Tell a mote what to do, if it listens."""
        _ = heard_us
        begins_us = LOWEST_US if not_before_us is None else not_before_us
        return self._speak(mote, RunProgram(program, begins_us), radio_us)

    def announce(self, mote: str, *, radio_us: int, heard_us: int) -> DriverOutput:
        """Ask a mote what it is, if it listens."""
        _ = heard_us
        return self._speak(mote, SendAnnouncement(), radio_us)

    def listen(self, mote: str, *, radio_us: int, heard_us: int) -> DriverOutput:
        """Return nothing: a mote listens when it likes."""
        _ = mote, radio_us, heard_us
        return NOTHING

    def time_passed(self, *, radio_us: int, heard_us: int) -> DriverOutput:
        """Return nothing: motes keep their own time."""
        _ = radio_us, heard_us
        return NOTHING

    def _heard(self, mote: str, open_until_us: int) -> None:
        self._open_until_us.pop(mote, None)
        self._open_until_us[mote] = open_until_us
        if len(self._open_until_us) > MOST_WINDOWS:
            del self._open_until_us[next(iter(self._open_until_us))]

    def _speak(self, mote: str, instruction: RunProgram | SendAnnouncement, radio_us: int) -> DriverOutput:
        until_us = self._open_until_us.get(mote)
        if until_us is None or radio_us >= until_us:
            return _refused("not_listening", f"the radio of mote {mote!r} is off", mote)
        # Quality of service 0: what does not arrive in the window must not arrive at all.
        payload = encode(Control(VERSION, mote, (instruction,)))
        message = Publication(topics.control(self._proxy, mote), payload, qos=0, before_radio_us=until_us)
        return DriverOutput(publications=(message,))


def _refused(reason: str, detail: str, mote: str) -> DriverOutput:
    return DriverOutput(refusals=(Refusal(reason, detail, mote),))

"""One connection to a broker as data: bytes in, messages and answers out; what is to be sent, as bytes. Pure.

Nothing is sent again: callers that publish get an error when a connection breaks, and decide. What is received may
come again, if the session outlives the connection. Numbers up to 32,767 belong to single messages and subscriptions;
those of many messages at a time are in :mod:`protocols.mqtt.sent_frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from protocols.mqtt.answers import (
    MALFORMED_FRAME,
    RECEIVE_MAXIMUM,
    Answer,
    ConnectAnswer,
    PublishAnswer,
    SubscribeAnswer,
    UnsubscribeAnswer,
    read_answer,
)
from protocols.mqtt.frames import (
    LARGEST_FRAME_BYTES,
    FrameBuffer,
    MalformedFrameError,
    Octets,
    UnsendableError,
    frame_bounds,
    take_messages,
)
from protocols.mqtt.messages import Message, Subscription, Version
from protocols.mqtt.sent_frames import (
    FIRST,
    Connect,
    InFlight,
    acknowledgements,
    disconnect_frame,
    publish_frame,
    subscribe_frame,
    unsubscribe_frame,
)


@dataclass(slots=True)
class Received:
    """What was received at once.

    Parameters
    ----------
    messages, numbers
        Messages, and the numbers to acknowledge them by: 0 for no acknowledgement.
    answers
        Other frames.
    trouble
        Why the connection must end, if the broker does not speak MQTT; what precedes it counts.
    """

    messages: list[Message] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    trouble: MalformedFrameError | None = None


class ClientProtocol:
    """The client's side of one connection.

    Parameters
    ----------
    version
        Of MQTT.
    connect
        What the client connects with.
    """

    def __init__(self, version: Version, connect: Connect) -> None:
        self.version = version
        self.answer: ConnectAnswer | None = None
        """That the broker accepts the connection, and within which limits; None before it does."""
        self.in_flight = InFlight()
        """Messages that are sent many at a time."""
        self.unacknowledged = 0
        """Messages received, and not acknowledged to the broker yet."""
        self._connect = connect
        self._buffer = FrameBuffer(LARGEST_FRAME_BYTES)
        self._last_number = 0
        self._outstanding: dict[int, int] = {}
        """By number, how many codes its answer has: 0 for a message, else as many as there are filters."""

    def connect(self) -> bytes:
        """Return the first frame; raises UnsendableError."""
        return self._connect.frame(self.version)

    def receive(self, data: bytes) -> Received:
        """Read what the broker has sent; `data` begins where the data of the call before ended."""
        found = Received()
        received = self._buffer.joined(data)
        if received is None:
            return found
        try:
            self._buffer.keep(received, self._read(received, found))
        except MalformedFrameError as error:
            found.trouble = error
        return found

    def publish(self, message: Message) -> tuple[int, bytes]:
        """Return the number of a message, and its frame; the number is 0 with a quality of service of 0.

        Raises
        ------
        UnsendableError
            If MQTT has no frame for it, the broker does not take such a message, or too many are not acknowledged yet.
        """
        limits = self.answer
        if limits is not None and (message.qos > limits.most_qos or (message.retain and not limits.retains)):
            what = "a message to be retained" if message.qos <= limits.most_qos else "a quality of service of 1"
            raise UnsendableError(f"a message on {message.topic}: the broker does not take {what}")
        number = self._next_number() if message.qos else 0
        frame = self._within_limits(
            publish_frame(self.version, message, number), lambda: f"a message on {message.topic}"
        )
        if number:
            self._outstanding[number] = 0
        return number, frame

    def subscribe(self, subscriptions: Sequence[Subscription]) -> tuple[int, bytes]:
        """Return the number of the answer to come, and a frame; errors are those of :meth:`publish`."""
        number = self._next_number()
        frame = self._within_limits(subscribe_frame(self.version, subscriptions, number), lambda: "a subscription")
        self._outstanding[number] = len(subscriptions)
        return number, frame

    def unsubscribe(self, filters: Sequence[str]) -> tuple[int, bytes]:
        """Return the number of the answer to come, and a frame; errors are those of :meth:`publish`."""
        number = self._next_number()
        frame = self._within_limits(unsubscribe_frame(self.version, filters, number), lambda: "an unsubscription")
        self._outstanding[number] = len(filters)
        return number, frame

    def acknowledge(self, numbers: Iterable[int]) -> bytes:
        """Return the acknowledgements of messages, in one piece."""
        owed = [number for number in numbers if number]
        self.unacknowledged -= len(owed)
        return acknowledgements(owed)

    def disconnect(self) -> bytes:
        """Return the last frame, after which the broker does not publish the will."""
        return disconnect_frame(self.version, 0)

    def reject(self) -> bytes:
        """Return the last frame to a broker that does not speak MQTT; without a reason it would be a farewell."""
        return disconnect_frame(self.version, MALFORMED_FRAME) if self.version is Version.V5 else b""

    def _within_limits(self, frame: bytes, what: Callable[[], str]) -> bytes:
        largest = None if self.answer is None else self.answer.largest_frame_bytes
        if largest is not None and len(frame) > largest:
            raise UnsendableError(f"{what()} of {len(frame):,} bytes: the broker takes at most {largest:,}")
        return frame

    def _next_number(self) -> int:
        for _ in range(len(self._outstanding) + 1):
            self._last_number = self._last_number % (FIRST - 1) + 1
            if self._last_number not in self._outstanding:
                return self._last_number
        raise UnsendableError("too many messages are not acknowledged yet")

    def _read(self, received: bytes, found: Received) -> int:
        """Read whole frames; return where the first incomplete one begins."""
        start = 0
        while True:
            if self.answer is not None:
                start = self._take_messages(received, start, found)
            bounds = frame_bounds(received, start)
            if bounds is None or bounds.end > len(received):
                return start
            lasting = self._connect.session_seconds is not None
            answer = read_answer(self.version, received[start], Octets(received, *bounds), lasting=lasting)
            self._note(answer)
            found.answers.append(answer)
            start = bounds.end

    def _take_messages(self, received: bytes, start: int, found: Received) -> int:
        """Read messages, and acknowledgements of those in flight; return where the first other frame begins."""
        before, window = len(found.numbers), self.in_flight
        while True:
            messages = window.take(received, start) if window.waiting else start
            end = take_messages(received, messages, found.messages, found.numbers, self.version)
            if end == start:
                break
            start = end
        if len(found.numbers) > before:
            fresh = found.numbers[before:]
            self.unacknowledged += len(fresh) - fresh.count(0)
            # Not the receive maximum: Mosquitto 2.0 sends some more than that.
            if self.unacknowledged > RECEIVE_MAXIMUM:
                raise MalformedFrameError(
                    f"the broker sent {self.unacknowledged:,} messages that are not acknowledged yet: more than it may"
                )
        return start

    def _note(self, answer: Answer) -> None:
        """Check whether an answer can come now; raises MalformedFrameError."""
        if isinstance(answer, ConnectAnswer) is (self.answer is not None):
            raise MalformedFrameError("the broker answers a connect twice, or sends something before its answer")
        match answer:
            case ConnectAnswer(code=0):
                self.answer = answer
            case PublishAnswer(number):
                if self._outstanding.get(number) == 0:
                    del self._outstanding[number]
            case SubscribeAnswer(number, codes):
                # Without a code it would answer a message.
                if not codes or self._outstanding.pop(number, None) != len(codes):
                    raise MalformedFrameError("the broker answers a subscription that it did not get")
            case UnsubscribeAnswer(number, codes):
                ended = self._outstanding.pop(number, 0)
                if not ended or len(codes) != (ended if self.version is Version.V5 else 0):
                    raise MalformedFrameError("the broker answers an unsubscription that it did not get")

"""One connection to the broker, from its beginning until it breaks.

Messages are handed over one after another, a burst at a time, and acknowledged to the broker after that: a broker with
a slow subscriber waits. Those of a session that outlives the connection are acknowledged when their receiver wants it.
When many messages come, reading pauses for a millisecond between bursts. A broker wakes its
subscriber for each message that it writes; read in bursts, they cost less than half the time (docs/dependencies.md).

While an answer is awaited, reading does not pause because a handler is slow: one that publishes waits for an answer on
the same socket. What bounds the messages that wait then is how many the broker may send before it must wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from protocols.event_log import get_logger
from protocols.mqtt.answers import (
    REFUSED,
    SESSION_TAKEN_OVER,
    Answer,
    ConnectAnswer,
    Farewell,
    PublishAnswer,
    SubscribeAnswer,
    UnsubscribeAnswer,
    connect_refusal,
    reason_text,
)
from protocols.mqtt.broker_address import failure_text, opening_arguments, peer_expiry, refusal_of
from protocols.mqtt.broker_socket import BrokerSocket
from protocols.mqtt.client_protocol import ClientProtocol
from protocols.mqtt.frames import UnsendableError
from protocols.mqtt.inbox import Inbox, ReadingGate
from protocols.mqtt.messages import (
    VERSIONS,
    BrokenOffError,
    BrokerAddress,
    LastingSession,
    LinkError,
    Message,
    Subscription,
    Version,
    VersionRefusedError,
)
from protocols.mqtt.publishing import MOST_IN_FLIGHT, BrokenWindowError, FramePublishing, SinglePublishing
from protocols.mqtt.reconnecting import Look, SilenceWatch, keep_alive_for
from protocols.mqtt.sent_frames import PING, Connect
from protocols.security.errors import SecurityError

if TYPE_CHECKING:
    from protocols.mqtt.publish_frames import PublishFrames

log = get_logger(__name__)

ANSWER_SECONDS = 10.0
"""The broker answers a connect or a subscription within this time, or the connection is given up."""
ACKNOWLEDGED_SECONDS = 60.0
"""A broker that has not acknowledged a single message within this time never will: the connection is given up."""
FAREWELL_SECONDS = 2.0
BURST_MESSAGES = 256
"""The most messages that are handed over before other tasks run."""
SILENCE_SECONDS = 15.0
"""A broker that sends nothing for this long, even after a ping, has hung."""
BUSY_MESSAGES = 16
BUSY_SECONDS = 0.01
"""More than so many messages within this time are many."""
PAUSE_SECONDS = 0.001
NUMBER_BITS, LARGEST_NUMBER = 16, 0xFFFF
"""Of the numbers that a broker gives messages."""


class Connection:
    """One connection.

    Parameters
    ----------
    address, client_id, will, max_queued, silence_seconds
        As in :class:`protocols.mqtt.link.MqttLink`.
    version
        Of MQTT.
    session
        That outlives the connection; None for one that ends with it.
    number
        Of the connection, among those of its session.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        client_id: str,
        will: Message | None,
        max_queued: int,
        silence_seconds: float = SILENCE_SECONDS,
        version: Version,
        session: LastingSession | None = None,
        number: int = 0,
    ) -> None:
        self.version = version
        self.session_present = False
        """Whether the broker has gone on with a session from before."""
        self.session_lasts = False
        """Whether the broker keeps the session when the connection ends."""
        self._session = session
        self._number = number
        self._address = address
        self._silence_seconds = silence_seconds
        keep_alive = keep_alive_for(silence_seconds)
        self._silence = SilenceWatch(silence_seconds, keep_alive)
        self.hung = False
        """True once the connection was given up because the broker sent nothing any more."""
        self.taken_over = False
        """True once the broker has ended it as another client of the same name has connected."""
        self._end = "broke"
        """How the connection ended, once it has."""
        self._inbox = Inbox(max_queued)
        self._wake = asyncio.Event()
        self._lost = asyncio.Event()
        self._accepted: asyncio.Future[ConnectAnswer | None] = asyncio.get_running_loop().create_future()
        self._singles = SinglePublishing(self._read_or_not)
        self._many = 0  # calls that publish many messages at a time
        self._subscribing: dict[int, asyncio.Future[tuple[int, ...]]] = {}
        self._busy_since, self._handed_over = 0.0, 0
        self._socket = BrokerSocket(on_bytes=self._received, on_lost=self._connection_lost)
        self._protocol = ClientProtocol(
            version,
            Connect(
                client_id,
                address.username,
                address.password,
                will,
                keep_alive_seconds=keep_alive,
                receive_maximum=MOST_IN_FLIGHT if session is None else session.in_flight,
                session_seconds=None if session is None else session.expiry_seconds,
            ),
        )
        self._frames = FramePublishing(self._protocol.in_flight, self._socket)
        self._gate = ReadingGate(self._socket.pause_reading, self._socket.resume_reading)

    async def open(self) -> None:
        """Connect.

        Raises
        ------
        VersionRefusedError
            If the broker may speak another version of MQTT.
        LinkError
            If it cannot be reached, does not answer, or refuses.
        """
        try:
            answer = self._checked(await self._answer_to_connect())
        except BaseException:
            self._socket.close()
            raise
        self._singles.limit(answer.receive_maximum)
        self.session_present = answer.session_present
        self.session_lasts = self._session is not None and answer.session_seconds != 0
        if answer.keep_alive_seconds is not None:
            self._silence = SilenceWatch(self._silence_seconds, answer.keep_alive_seconds)

    async def _answer_to_connect(self) -> ConnectAnswer | None:
        address = self._address
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: self._socket, address.host, address.port, **opening_arguments(address)
                )
                self._write(self._protocol.connect())
                return await self._accepted
        except TimeoutError as error:
            # Some older brokers take what is new for a length, and wait for bytes that never come.
            raise VersionRefusedError(f"the broker at {self._address} did not answer") from error
        except (OSError, UnicodeError, UnsendableError, SecurityError) as error:  # a host may not be a name
            reason = failure_text(error, address)
            raise LinkError(f"cannot connect to the broker at {self._address}: {reason}") from error

    def _checked(self, answer: ConnectAnswer | None) -> ConnectAnswer:
        """Return an answer that accepts the connection."""
        if answer is None and (reason := refusal_of(self._socket.fault)):
            raise LinkError(f"cannot connect to the broker at {self._address}: {reason}")
        if answer is None:
            asked = "" if self._address.tls is None else "; does it accept our certificate?"  # the reason may get lost
            raise VersionRefusedError(
                f"the connection to the broker at {self._address} {self._end} before it answered{asked}"
            )
        if answer.code:
            kind = VersionRefusedError if answer.refuses_version else LinkError
            reason = answer.reason or connect_refusal(self.version, answer.code)
            raise kind(f"cannot connect to the broker at {self._address}: {reason}")
        return answer

    @property
    def peer_expires(self) -> float | None:
        """When the broker's certificate expires, in seconds since 1970; None without TLS."""
        return peer_expiry(self._socket.tls_session())

    async def close(self) -> None:
        """Disconnect cleanly, so that the broker does not publish the will."""
        if not self._lost.is_set():
            self._write(self._protocol.disconnect())
            self._socket.close()
            try:
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._lost.wait()
            except TimeoutError:
                self._socket.abort()
                self._connection_lost()

    async def watch(self) -> None:
        """Keep the connection alive, and give it up once the broker has sent nothing for too long."""
        while not self._lost.is_set():
            await asyncio.sleep(self._silence.interval_seconds)
            if self._gate.closed:
                self._silence.received()  # what it has sent is not read
            if self._singles.look() * self._silence.interval_seconds > ACKNOWLEDGED_SECONDS:
                self._give_up(f"was given up: it did not acknowledge a message for {ACKNOWLEDGED_SECONDS:g} s")
                break
            match self._silence.look():
                case Look.PING:
                    self._write(PING)
                case Look.HUNG:
                    self.hung = True
                    self._give_up(f"was given up: it sent nothing for {self._silence_seconds:g} s")
                case Look.FINE:
                    pass

    async def publish(self, message: Message) -> None:
        """Publish, as :meth:`protocols.mqtt.link.MqttLink.publish` does."""
        if message.qos == 0:
            self._send(message)
            await self._socket.drain()
            return
        code = await self._singles.publish(lambda: self._send(message))
        if code is None:
            raise self._failure(message)
        if code >= REFUSED:
            raise LinkError(f"the broker at {self._address} refused a message on {message.topic}: {reason_text(code)}")

    async def publish_frames(self, frames: PublishFrames) -> None:
        """Publish many messages, as :meth:`protocols.mqtt.link.MqttLink.publish_frames` does."""
        if self.version is not Version.V3_1_1:
            raise ValueError("these are frames of MQTT 3.1.1")
        self._many += 1
        self._read_or_not()
        try:
            await self._frames.publish(frames)
        except BrokenWindowError as error:
            raise BrokenOffError(
                f"the broker at {self._address} did not take all messages: the connection {self._end}",
                error.acknowledged,
            ) from error
        finally:
            self._many -= 1

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Subscribe and wait until the broker has answered; raises LinkError."""
        granted = await self._answer_to(lambda: self._protocol.subscribe(subscriptions))
        for subscription, code in zip(subscriptions, granted, strict=True):
            if code >= REFUSED:
                log.error(
                    "the broker rejected a subscription",
                    broker=str(self._address),
                    filter=subscription.filter,
                    reason=reason_text(code),
                )

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """End subscriptions and wait until the broker has answered; raises LinkError."""
        await self._answer_to(lambda: self._protocol.unsubscribe(filters))

    async def _answer_to(self, request: Callable[[], tuple[int, bytes]]) -> tuple[int, ...]:
        if self._lost.is_set():
            raise LinkError(f"the connection to the broker at {self._address} is gone")
        try:
            number, frame = request()
        except UnsendableError as error:
            raise LinkError(f"cannot subscribe: {error.message}") from error
        answer: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._subscribing[number] = answer
        self._write(frame)
        self._read_or_not()
        try:
            # Not wait_for: up to Python 3.11 it ignores being cancelled in the turn in which the answer comes.
            async with asyncio.timeout(ANSWER_SECONDS):
                granted = await answer
        except TimeoutError as error:
            raise LinkError(f"the broker at {self._address} did not answer a subscription") from error
        finally:
            self._subscribing.pop(number, None)
        if not granted:
            raise LinkError(f"the connection to the broker at {self._address} broke before it answered a subscription")
        return granted

    async def receive(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Call `take` with one burst of messages after another; raises LinkError when the connection is gone."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._inbox:
                await self._hand_over(take)
            if self._lost.is_set():
                raise LinkError(f"the connection to the broker at {self._address} {self._end}")
            await self._let_pile_up()

    async def _hand_over(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Hand over one burst, and acknowledge it unless its receiver does."""
        messages, numbers = self._inbox.take(BURST_MESSAGES)
        if self._session is not None:
            messages = [_numbered(*each, self._number) for each in zip(messages, numbers, strict=True)]
        await take(messages)
        self._read_or_not()
        if self._session is None:
            self._write(self._protocol.acknowledge(numbers))
        self._handed_over += len(messages)
        # A handler that never waits would starve the socket, timers and all other tasks.
        await asyncio.sleep(0)
        await self._socket.drain()  # a broker that does not read gets no more acknowledgements

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge messages of a session, as :meth:`protocols.mqtt.link.MqttLink.acknowledge` does."""
        if not self._lost.is_set():
            own = [each & LARGEST_NUMBER for each in numbers if each >> NUMBER_BITS == self._number]
            self._write(self._protocol.acknowledge(own))

    async def _let_pile_up(self) -> None:
        """Pause reading for a moment if there are many messages."""
        now = time.monotonic()
        if now - self._busy_since > BUSY_SECONDS:
            self._busy_since, self._handed_over = now, 0
        if self._handed_over <= BUSY_MESSAGES:
            return
        self._gate.pile_up(wanted=True)
        try:
            await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._gate.pile_up(wanted=False)

    def _read_or_not(self) -> None:
        """Read, unless too much waits and no answer is awaited."""
        awaits = bool(self._singles or self._subscribing or self._many)
        self._gate.look(self._inbox.waiting_bytes, awaits_answers=awaits)

    def _send(self, message: Message) -> int:
        """Write a message; return its number. Raises LinkError."""
        if self._lost.is_set():
            raise self._failure(message)
        try:
            number, frame = self._protocol.publish(message)
        except UnsendableError as error:
            raise LinkError(f"the broker at {self._address} cannot take a message: {error.message}") from error
        self._write(frame)
        return number

    def _write(self, octets: bytes | memoryview) -> None:
        self._silence.sent()
        self._socket.write(octets)

    def _give_up(self, end: str) -> None:
        self._end = end
        self._socket.abort()
        self._connection_lost()

    def _failure(self, message: Message) -> LinkError:
        return LinkError(
            f"the broker at {self._address} did not take a message on {message.topic}: the connection {self._end}"
        )

    def _received(self, data: bytes) -> None:
        self._silence.received()
        acknowledged = self._protocol.in_flight.acknowledged
        found = self._protocol.receive(data)
        if found.messages:
            self._inbox.put(found.messages, found.numbers)
            self._wake.set()
        if self._protocol.in_flight.acknowledged > acknowledged:
            self._frames.acknowledged()
        for answer in found.answers:
            self._answered(answer)
        self._read_or_not()
        if found.trouble is not None:
            self._write(self._protocol.reject())
            self._socket.flush()
            self._give_up(f"was given up: it does not follow MQTT: {found.trouble.message}")

    def _answered(self, answer: Answer) -> None:
        match answer:
            case PublishAnswer(number, code):
                self._singles.answered(number, code)
            case SubscribeAnswer(number, codes):
                self._subscribed(number, codes)
            case UnsubscribeAnswer(number, codes):
                self._subscribed(number, codes or (0,))  # MQTT 3.1.1 has no codes
            case ConnectAnswer() if not self._accepted.done():
                self._accepted.set_result(answer)
            case Farewell(code, reason):
                self.taken_over = code == SESSION_TAKEN_OVER
                self._give_up(f"was ended by it: {reason or reason_text(code)}")
            case _:
                pass

    def _subscribed(self, number: int, granted: tuple[int, ...]) -> None:
        answer = self._subscribing.get(number)
        if answer is not None and not answer.done():
            answer.set_result(granted)

    def _connection_lost(self) -> None:
        if reason := refusal_of(self._socket.fault):
            self._end = f"broke: {reason}"
        self._lost.set()
        self._wake.set()
        self._frames.lost()
        if not self._accepted.done():
            self._accepted.set_result(None)
        self._singles.lost()
        for number in list(self._subscribing):
            self._subscribed(number, ())


def _numbered(message: Message, number: int, connection: int) -> Message:
    return msgspec.structs.replace(message, number=connection << NUMBER_BITS | number) if number else message


@contextlib.asynccontextmanager
async def connect(
    address: BrokerAddress,
    *,
    client_id: str,
    will: Message | None,
    max_queued: int,
    silence_seconds: float = SILENCE_SECONDS,
    versions: Sequence[Version] = VERSIONS,
    session: LastingSession | None = None,
    number: int = 0,
) -> AsyncIterator[Connection]:
    """Keep a connection while the block runs.

    Parameters
    ----------
    address, client_id, will, max_queued, silence_seconds, versions, session
        As in :class:`protocols.mqtt.link.MqttLink`.
    number
        Of the connection, among those of its session.

    Raises
    ------
    LinkError
        If the broker cannot be reached, or refuses.
    """
    for version in versions:
        connection = Connection(
            address,
            client_id=client_id,
            will=will,
            max_queued=max_queued,
            silence_seconds=silence_seconds,
            version=version,
            session=session if session is not None and version in session.versions else None,
            number=number,
        )
        try:
            await connection.open()
            break
        except VersionRefusedError:
            if version is versions[-1]:
                raise
    watching = asyncio.create_task(connection.watch(), name=f"watch over the broker for {client_id}")
    try:
        yield connection
    finally:
        watching.cancel()
        await connection.close()

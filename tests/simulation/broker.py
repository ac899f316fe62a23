"""A broker in memory, as Mosquitto behaves: retained messages, wills, windows of messages in flight, bounded queues.

A session ends with its connection unless its client has it go on; then messages wait for the client, but for those with
a quality of service of 0.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from protocols.mqtt.frames import MalformedFrameError
from protocols.mqtt.messages import Message
from protocols.mqtt.sent_frames import acknowledgements, publish_frame
from tests.simulation.broker_frames import (
    PONG,
    Acknowledging,
    Connecting,
    Leaving,
    Pinging,
    Publishing,
    Request,
    RequestReader,
    Subscribing,
    Unsubscribing,
    accepted,
    ended,
    farewell,
    granted,
    sent_again,
)
from tests.simulation.topic_filters import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from protocols.mqtt.messages import Subscription

PORT = 1883
SESSION_TAKEN_OVER = 0x8E


@dataclass(slots=True)
class BrokerLimits:
    """What a broker keeps.

    Parameters
    ----------
    in_flight
        Messages that one client has not acknowledged.
    queued
        Messages that wait for one client behind these; further ones are dropped.
    doubled
        The share of messages that are delivered twice, as after an acknowledgement that came too late.
    lost_batches
        The share of batches with a quality of service of 0 that are lost, as by a queue that is full.
    """

    in_flight: int = 100
    queued: int = 10_000
    doubled: float = 0.0
    lost_batches: float = 0.0


class Watcher(Protocol):
    """Sees what becomes of messages at a broker."""

    def sent(self, session: Session, message: Message, *, again: bool) -> None:
        """See a message that was written to a connection."""

    def waits(self, message: Message) -> None:
        """See a message that a session which outlives its connections has taken up."""

    def forgotten(self, message: Message) -> None:
        """See a message that such a session has lost."""


@dataclass(slots=True)
class SessionState:
    """What outlives a connection, if its client has it so."""

    filters: dict[str, Subscription] = field(default_factory=dict)
    unacknowledged: dict[int, Message] = field(default_factory=dict)
    waiting: deque[Message] = field(default_factory=deque)
    last_number: int = 0


class Session(asyncio.Protocol):
    """One client's connection, and all that the broker knows of it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client: Connecting | None = None
        self.state = SessionState()
        self.transport: asyncio.Transport | None = None
        self._qos: dict[str, int] = {}
        self._reader = RequestReader()
        self._received_at = 0.0
        self._left = False

    @property
    def filters(self) -> dict[str, Subscription]:
        """What it subscribes to, by filter."""
        return self.state.filters

    @property
    def outlives(self) -> bool:
        """Whether it goes on when its connection ends."""
        return self.client is not None and self.client.outlives

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received_at = asyncio.get_running_loop().time()
        try:
            for request in self._reader.read(data):
                self._handle(request)
        except MalformedFrameError as error:
            self.broker.malformed.append(str(error))
            self.end()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._left:
            self._left = True
            self.broker.left(self, with_will=True)

    def end(self, reason: int = 0) -> None:
        """End the connection."""
        if self.transport is not None and self.client is not None:
            if reason:
                self._write(farewell(self.client.version, reason))
            self.transport.abort()

    def deliver(self, message: Message, *, qos: int) -> None:
        """Send a message, or let it wait, or drop it."""
        sent = message if message.qos <= qos else msgspec.structs.replace(message, qos=qos)
        if not sent.qos:
            self._send(sent, 0)
            return
        if self.outlives and self.broker.watcher is not None:
            self.broker.watcher.waits(message)
        if len(self.state.unacknowledged) < self._window:
            self._send(sent, self._next_number())
        else:
            self.broker.keep(self.state, sent)

    def go_on(self, state: SessionState) -> None:
        """Go on with a session that was kept: send again what was not acknowledged, then what has waited."""
        self.state = state
        for number, message in list(state.unacknowledged.items()):
            self._send(message, number, again=True)
        self._send_waiting()

    def forget_filters(self) -> None:
        """Subscribe to nothing any more."""
        self.state = SessionState()
        self._qos.clear()

    def qos_of(self, topic: str) -> int:
        """Return the highest quality of service at which messages of a topic are wanted; -1 for none."""
        found = self._qos.get(topic)
        if found is None:
            qualities = (each.qos for each in self.filters.values() if matches(each.filter, topic))
            self._qos[topic] = found = max(qualities, default=-1)
        return found

    @property
    def _window(self) -> int:
        limit = self.broker.limits.in_flight
        return limit if self.client is None else min(limit, self.client.receive_maximum)

    def _handle(self, request: Request) -> None:
        match request:
            case Connecting():
                self.client = request
                state = self.broker.joined(self)
                self._write(accepted(request.version, self.broker.limits.in_flight, goes_on=state is not None))
                if state is not None:
                    self.go_on(state)
                if request.keep_alive_seconds:
                    self._check_silence()
            case Subscribing():
                assert self.client is not None
                self.filters.update({each.filter: each for each in request.subscriptions})
                self._qos.clear()
                self._write(granted(self.client.version, request))
                self.broker.subscribed(self, request.subscriptions)
            case Unsubscribing(_, filters):
                assert self.client is not None
                for each in filters:
                    self.filters.pop(each, None)
                self._qos.clear()
                self._write(ended(self.client.version, request))
            case Publishing(message, number):
                self.broker.publish(message)
                self._write(acknowledgements([number]))
            case Acknowledging(number):
                self.state.unacknowledged.pop(number, None)
                self._send_waiting()
            case Pinging():
                self._write(PONG)
            case Leaving(with_will):
                self._left = True
                self.broker.left(self, with_will=with_will)

    def _check_silence(self) -> None:
        """End the connection of a client that has sent nothing for one and a half of its keep-alive."""
        assert self.client is not None
        loop = asyncio.get_running_loop()
        longest = 1.5 * self.client.keep_alive_seconds
        left = self._received_at + longest - loop.time()
        if self._left:
            return
        if left <= 0:
            self.end()
            if not self._left:
                self.connection_lost(None)
        else:
            loop.call_later(left, self._check_silence)

    def _send_waiting(self) -> None:
        state = self.state
        while state.waiting and len(state.unacknowledged) < self._window:
            self._send(state.waiting.popleft(), self._next_number())

    def _send(self, message: Message, number: int, *, again: bool = False) -> None:
        assert self.client is not None
        if number:
            self.state.unacknowledged[number] = message
        frame = publish_frame(self.client.version, message, number)
        self._write(sent_again(frame) if again else frame)
        if self.broker.watcher is not None:
            self.broker.watcher.sent(self, message, again=again)

    def _next_number(self) -> int:
        state = self.state
        while True:
            state.last_number = state.last_number % 0xFFFF + 1
            if state.last_number not in state.unacknowledged:
                return state.last_number

    def _write(self, octets: bytes) -> None:
        if self.transport is not None and octets:
            self.transport.write(octets)


class Broker:
    """One process of the broker.

    Parameters
    ----------
    limits
        What it keeps.
    chance
        Gives a number below 1, to draw what is doubled.
    retained
        What it still knows from before.
    observe
        Called with each message that it accepts.
    absent
        Sessions of clients that are away, which it still knows from before, by client.
    watcher
        Sees what becomes of messages; None for none.
    """

    def __init__(
        self,
        limits: BrokerLimits,
        chance: Iterable[float],
        retained: dict[str, Message],
        observe: Callable[[Message], None] | None = None,
        absent: dict[str, SessionState] | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.limits = limits
        self.retained = dict(retained)
        self.absent = {} if absent is None else absent
        """Sessions of clients that are away."""
        self.watcher = watcher
        self.dropped: Counter[str] = Counter()
        self.malformed: list[str] = []
        self.published = self.lost_batches = 0
        self._chance = iter(chance)
        self._observe = observe
        self._sessions: dict[str, Session] = {}

    def session(self) -> Session:
        """Return the protocol of a new connection."""
        return Session(self)

    def joined(self, session: Session) -> SessionState | None:
        """Let a client in; an older connection of the same name ends. Return the session with which it goes on."""
        assert session.client is not None
        older = self._sessions.pop(session.client.client_id, None)
        if older is not None:
            older.end(SESSION_TAKEN_OVER)
            older.connection_lost(None)
        self._sessions[session.client.client_id] = session
        state = self.absent.pop(session.client.client_id, None)
        if state is not None and session.client.begins_anew:
            self.forget(state)
            return None
        return state

    def keep(self, state: SessionState, message: Message) -> None:
        """Let a message wait in a session, or drop it if there is no room."""
        if len(state.waiting) < self.limits.queued:
            state.waiting.append(message)
        else:
            self.dropped[message.topic.split("/")[1] if "/" in message.topic else ""] += 1
            if self.watcher is not None:
                self.watcher.forgotten(message)

    def forget(self, state: SessionState) -> None:
        """Lose what waits in a session."""
        if self.watcher is not None:
            for message in (*state.unacknowledged.values(), *state.waiting):
                self.watcher.forgotten(message)

    def kept_sessions(self) -> dict[str, SessionState]:
        """Return all sessions that outlive their connections, as they are on its disk."""
        present = {name: each.state for name, each in self._sessions.items() if each.outlives}
        return self.absent | present

    def left(self, session: Session, *, with_will: bool) -> None:
        """Forget a client, and publish its will."""
        if session.client is None:
            return
        if self._sessions.get(session.client.client_id) is session:
            del self._sessions[session.client.client_id]
        if session.outlives and session.state.filters:
            self.absent[session.client.client_id] = session.state
        session.forget_filters()
        if with_will and session.client.will is not None:
            self.publish(session.client.will)

    def subscribed(self, session: Session, subscriptions: Iterable[Subscription]) -> None:
        """Send what is retained."""
        for each in subscriptions:
            for topic, message in list(self.retained.items()):
                if matches(each.filter, topic):
                    session.deliver(message, qos=each.qos)

    def publish(self, message: Message) -> None:
        """Send a message to all that subscribe, and keep it if it is to be retained."""
        self.published += 1
        if self._observe is not None:
            self._observe(message)
        if message.retain:
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)
        sent = msgspec.structs.replace(message, retain=False) if message.retain else message
        times = 2 if self.limits.doubled and next(self._chance) < self.limits.doubled else 1
        if self._loses(message):
            self.lost_batches += 1
            return
        for session in list(self._sessions.values()):
            best = session.qos_of(message.topic)
            for _ in range(times if best >= 0 else 0):
                session.deliver(sent, qos=best)
        for state in self.absent.values():
            best = max((each.qos for each in state.filters.values() if matches(each.filter, message.topic)), default=0)
            if min(best, sent.qos):
                if self.watcher is not None:
                    self.watcher.waits(message)
                for _ in range(times):
                    self.keep(state, sent)

    def _loses(self, message: Message) -> bool:
        share = self.limits.lost_batches
        return bool(share) and not message.qos and message.topic.endswith("/batches") and next(self._chance) < share

"""When a recorded part is reached, and what its log says of that."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from protocols.mqtt.link import Message
from protocols.recording.entries import Messages, Turn
from protocols.recording.recorder import Recorder
from protocols.recording.timeline import TickingLoop


class Writer:
    """Keeps what is written."""

    def __init__(self):
        self.writes = True
        self.entries = []

    def put(self, chunk, size_bytes):
        self.entries += chunk.entries

    def close(self):
        """Nothing is open."""


class Socket:
    """A link whose messages come from a socket, one for each byte."""

    hangs_total = 0

    def __init__(self):
        self.sender, self.receiver = socket.socketpair()
        self.receiver.setblocking(False)
        self.handled = 0
        self.turns = int
        self.arrived_at, self.taken_at, self.order = [], [], []

    async def run_in_bursts(self, take):
        while received := await asyncio.get_running_loop().sock_recv(self.receiver, 1):
            self.arrived_at.append(self.turns())
            await take([Message("topic", received)])
            self.handled += 1


@pytest.fixture
def link():
    found = Socket()
    yield found
    found.sender.close()
    found.receiver.close()


def recorded(link, play):
    """Let `play` run outside a part that only receives; return what the log has, and what the part received."""
    writer = Writer()
    recorder = Recorder(writer)
    received = []
    turns, wait = [0], recorder.wait

    def counted(timeout, select):
        turns[0] += 1
        return wait(timeout, select)

    recorder.wait = counted
    link.turns = lambda: turns[0]

    async def take(messages):
        received.append((messages[0].payload, link.handled))
        link.taken_at.append(link.turns())
        link.order.append(messages[0].payload)

    async def run():
        taped = recorder.taped_link(lambda *_: link, None)
        receiving = asyncio.create_task(taped.run_in_bursts(take), name="link")
        await asyncio.sleep(0.01)
        await asyncio.create_task(play(recorder), context=recorder.outside.copy())
        receiving.cancel()

    with asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
        runner.run(run())
    recorder.close()
    return writer.entries, received


def test_a_message_begins_a_turn_of_its_own_where_the_part_sleeps(link):
    async def play(recorder):
        def send(payload):
            while not recorder._asleep:
                time.sleep(0.0001)
            link.sender.send(payload)

        for number, each in enumerate((b"a", b"b", b"c"), 1):
            await asyncio.to_thread(send, each)
            while link.handled < number:  # noqa: ASYNC110 - without a timer: one that is due begins a turn, too
                await asyncio.sleep(0)

    entries, received = recorded(link, play)
    assert received == [(b"a", 0), (b"b", 1), (b"c", 2)]
    assert link.taken_at == link.arrived_at  # no turn of the loop is waited for
    before = [entries[n - 1] for n, each in enumerate(entries) if isinstance(each, Messages)]
    assert before == [Turn(each.after_ns, waited=True) for each in before]


def test_sockets_leave_no_trace_where_nothing_of_the_part_runs(link):
    one, other = socket.socketpair()
    other.setblocking(False)
    read = []

    async def play(recorder):
        del recorder
        loop = asyncio.get_running_loop()
        loop.add_reader(other, lambda: read.append(other.recv(1)))

        def send():
            for count in range(50):
                one.send(b".")
                while len(read) <= count:
                    time.sleep(0.0001)

        await asyncio.to_thread(send)
        loop.remove_reader(other)

    with one, other:
        entries, _ = recorded(link, play)
    assert len(read) == 50
    assert sum(isinstance(each, Turn) for each in entries) < 20


def test_a_message_waits_for_the_next_turn_while_the_part_has_something_to_do(link):
    async def play(recorder):
        loop = asyncio.get_running_loop()

        async def wake():
            """Let a message arrive while a callback of the part is ready."""
            loop.call_soon(link.order.append, "callback")
            await recorder._take([Message("topic", b"x")])

        await loop.create_task(wake(), context=recorder.outside.copy())

    entries, _ = recorded(link, play)
    assert link.order == ["callback", b"x"]
    place = next(n for n, each in enumerate(entries) if isinstance(each, Messages))
    assert not entries[place - 1].waited

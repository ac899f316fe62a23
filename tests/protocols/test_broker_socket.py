"""What leaves the socket to a broker, and when."""

from __future__ import annotations

import asyncio

from protocols.mqtt.broker_socket import WRITTEN_LATER_BYTES, BrokerSocket


class FakeTransport:
    """Keeps what is written to it."""

    def __init__(self):
        self.written = []
        self.closing = False

    def write(self, octets):
        self.written.append(bytes(octets))

    def is_closing(self):
        return self.closing

    def close(self):
        self.closing = True


def socketed():
    lost = []
    socket, transport = BrokerSocket(on_bytes=lambda _: None, on_lost=lambda: lost.append(True)), FakeTransport()
    socket.connection_made(transport)
    return socket, transport, lost


async def test_what_is_written_in_one_turn_leaves_together_and_in_order():
    socket, transport, _ = socketed()
    for octets in (b"a", b"", b"b", memoryview(b"c")):
        socket.write(octets)
    assert transport.written == []
    await asyncio.sleep(0)
    socket.write(b"d")
    await asyncio.sleep(0)
    assert transport.written == [b"abc", b"d"]


async def test_much_leaves_at_once_with_what_was_written_before():
    socket, transport, _ = socketed()
    socket.write(b"a")
    socket.write(bytes(WRITTEN_LATER_BYTES))
    assert [len(each) for each in transport.written] == [WRITTEN_LATER_BYTES + 1]
    await asyncio.sleep(0)
    assert len(transport.written) == 1


async def test_closing_writes_what_is_left_and_nothing_after_it():
    socket, transport, _ = socketed()
    socket.write(b"a")
    socket.close()
    socket.write(b"b")
    await asyncio.sleep(0)
    assert transport.written == [b"a"]


async def test_draining_waits_while_the_transport_is_full_or_until_it_is_gone():
    socket, _, lost = socketed()
    await socket.drain()
    for end in (socket.resume_writing, lambda: socket.connection_lost(None)):
        socket.pause_writing()
        draining = asyncio.create_task(socket.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        end()
        await draining
    assert lost == [True]


async def test_without_a_connection_nothing_is_written():
    socket = BrokerSocket(on_bytes=lambda _: None, on_lost=lambda: None)
    socket.write(b"a")
    socket.abort()
    socket.close()
    await socket.drain()
    assert not socket.open

"""A connection to the API, which waits for its client only so long.

The web server bounds the size of a head and closes connections that are idle between two requests. It waits without end
for the first byte, for the rest of a head, and for a client that does not read its answer.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cluster.service.access.admission import Refusal
from cluster.service.access.tokens import Caller
from cluster.service.http.connection_bounds import RECOGNISE, ConnectionBounds, Deadline, address_of
from cluster.service.http.giving_way import Doing


class BoundedConnection(H11Protocol):
    """A connection that is closed if its client is too slow, or if it has to give way to another one."""

    bounds: ConnectionBounds
    """Of all connections to the same API; set before the connection is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._head = Deadline(self.bounds.head_seconds, self._head_missed)
        self._answer = Deadline(self.bounds.answer_seconds, self._give_up)
        # Writing is paused, and so known to wait, as soon as the system takes no more.
        self.transport.set_write_buffer_limits(high=1, low=0)
        self.app_state = {**self.app_state, RECOGNISE: self._recognise}
        if self.bounds.begin(self, address_of(transport)):
            self._head.start()
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._head.start()
        else:
            self._head.stop()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and end."""
        self.bounds.count(Refusal.FORM)
        super().send_400_response(msg)

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._answer.start()

    def resume_writing(self) -> None:
        """Go on: the client has read all that there was."""
        self._answer.stop()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._head.stop()
        self._answer.stop()
        self.bounds.end(self)
        super().connection_lost(exc)

    def give_way(self) -> None:
        """End at once, for another one."""
        self._head.stop()
        self.transport.abort()

    @property
    def doing(self) -> Doing:
        """What the connection is busy with."""
        if self.cycle is None or self.cycle.response_complete:
            return Doing.NOTHING
        if self.cycle.more_body or self.flow.write_paused:
            return Doing.CLIENT
        return Doing.WORK

    def _recognise(self, caller: Caller) -> bool:
        return self.bounds.recognise(self, caller)

    def _head_missed(self) -> None:
        if not self.transport.is_closing():
            self._give_up()

    def _give_up(self) -> None:
        self.bounds.count(Refusal.SLOW)
        self.transport.abort()

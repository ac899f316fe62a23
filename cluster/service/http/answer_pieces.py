"""Answers leave in pieces: of each, the connection sees whether its client takes it in time.

A body that is written at once would wait as a whole, and so a client on a slow line would seem to be one that does not
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cluster.service.http.request_bodies import ASGIApp, Message, Receive, Scope, Send

PIECE_BYTES: Final = 64 * 1024


def in_pieces(app: ASGIApp) -> ASGIApp:
    """Return an application whose answers are sent in pieces of :data:`PIECE_BYTES`."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            for piece in pieces_of(message, PIECE_BYTES):
                await send(piece)

        await app(scope, receive, send_pieces)

    return answer


def pieces_of(message: Message, size: int) -> Iterator[Message]:
    """Yield a message of an answer in several, of which none has more bytes of the body than `size`.

    Examples
    --------
    >>> [(each["body"], each["more_body"]) for each in pieces_of({"body": b"abc", "more_body": False}, 2)]
    [(b'ab', True), (b'c', False)]
    """
    body = message.get("body", b"")
    if len(body) <= size:
        yield message
        return
    for start in range(0, len(body), size):
        more = message.get("more_body", False) or start + size < len(body)
        yield {**message, "body": body[start : start + size], "more_body": more}

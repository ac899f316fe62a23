"""Answers leave in pieces: of each, the connection sees whether its client takes it in time.

A body that is written at once would wait as a whole, and so a client on a slow line would seem to be one that does not
read.
"""

from __future__ import annotations

from typing import Final

from cluster.service.http.request_bodies import ASGIApp, Message, Receive, Scope, Send

PIECE_BYTES: Final = 64 * 1024


def in_pieces(app: ASGIApp) -> ASGIApp:
    """Return an application whose answers are sent in pieces of :data:`PIECE_BYTES`."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"")
            if len(body) <= PIECE_BYTES:
                await send(message)
                return
            for start in range(0, len(body), PIECE_BYTES):
                more = message.get("more_body", False) or start + PIECE_BYTES < len(body)
                await send({**message, "body": body[start : start + PIECE_BYTES], "more_body": more})

        await app(scope, receive, send_pieces)

    return answer

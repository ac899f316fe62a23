"""The HTTP API of a cluster that is recorded or replayed: requests that may change something are inputs.

Others, such as GET, are answered outside of the recording: nothing that the cluster publishes follows from them. So are
requests that are refused: they do not come here.
"""

from __future__ import annotations

import asyncio
from typing import Final

from cluster.service.catalog.planning import asked_by
from cluster.service.catalog.planning_turns import Asker
from cluster.service.http.request_bodies import MOST_BYTES_TOGETHER, ASGIApp, Message, Receive, Scope, Send
from protocols.recording.entries import Requested
from protocols.recording.recorder import Recorder
from protocols.recording.timeline import Answer, Timeline

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
RELATIONS: Final = "/v1/relations"
"""Requests to it name sources outside, and perhaps passwords: they are not recorded."""
FUNCTIONS: Final = "/v1/functions"
"""Requests to it depend on modules that are installed: they are not recorded."""
FAILED: Final = 500


class TapedApi:
    """ASGI middleware.

    Parameters
    ----------
    app
        The API.
    timeline
        Of the cluster.
    """

    def __init__(self, app: ASGIApp, timeline: Timeline) -> None:
        self._app = app
        self._timeline = timeline
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0
        timeline.on_request = self.carry_out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        recorder = self._timeline
        if not isinstance(recorder, Recorder) or not self._is_input(scope):
            await self._app(scope, receive, send)
            return
        read, size = [await receive()], 0
        while (size := sum(len(each.get("body", b"")) for each in read)) <= MOST_BYTES_TOGETHER:
            if not read[-1].get("more_body", False):
                break
            read.append(await receive())
        if scope["path"].startswith((RELATIONS, FUNCTIONS)):
            what = "relation" if scope["path"].startswith(RELATIONS) else "function"
            recorder.end(f"a {what} is declared or dropped: a replay cannot read it")
        elif size <= MOST_BYTES_TOGETHER:
            answer: Answer = asyncio.get_running_loop().create_future()
            recorder.ask(_request(scope, b"".join(each.get("body", b"") for each in read)), answer)
            for message in await answer:
                await send(message)
            return
        again = iter(read)

        async def replay() -> Message:
            return next(again, None) or await receive()

        await self._app(scope, replay, send)

    def carry_out(self, request: Requested, answer: Answer | None) -> None:
        """Carry out a request in a task of its own."""
        if request.path.startswith((RELATIONS, FUNCTIONS)):
            return  # only a log that was not recorded by a cluster has one
        self._count += 1
        task = asyncio.get_event_loop().create_task(self._carry_out(request, answer), name=f"request {self._count}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, request: Requested, answer: Answer | None) -> None:
        read, sent = [{"type": "http.request", "body": request.body, "more_body": False}], list[Message]()

        async def receive() -> Message:
            if read:
                return read.pop()
            await asyncio.Event().wait()  # a client that goes away is not noticed
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        try:
            with asked_by(Asker()):  # tokens are in no log: it is planned in the same order when it is replayed
                await self._app(self._scope(request), receive, send)
        except Exception as error:  # noqa: BLE001 - as the server does, which has logged it
            if answer is not None and not sent and not answer.done():
                answer.set_exception(error)
        status = next((each["status"] for each in sent if each["type"] == "http.response.start"), FAILED)
        self._timeline.answered(request, status)
        if answer is not None and not answer.done():
            answer.set_result(sent)

    @staticmethod
    def _is_input(scope: Scope) -> bool:
        return scope["type"] == "http" and scope["method"] not in READING

    @staticmethod
    def _scope(request: Requested) -> Scope:
        headers = [(b"content-type", request.content_type.encode())] if request.content_type else []
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "root_path": "",
            "query_string": request.query,
            "headers": headers,
            "client": None,
            "server": None,
        }


def _request(scope: Scope, body: bytes) -> Requested:
    content_type = _header(scope, b"content-type") or ""
    return Requested(scope["method"], scope["path"], scope["query_string"], content_type[:256], body)


def _header(scope: Scope, name: bytes) -> str | None:
    found = next((value for key, value in scope["headers"] if key == name), None)
    return None if found is None else found.decode("latin-1")

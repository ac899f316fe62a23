"""Claims the name of a part while that begins: the shell around :mod:`protocols.presence.name_claim`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from protocols.errors import FjordError
from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message, Subscription
from protocols.presence.name_claim import NameClaim, Verdict
from protocols.wire.catalog import Status

log = get_logger(__name__)

REACH_SECONDS = 2.0
"""A broker that is not reached within this time is away: then a part begins, and its name is claimed later."""
_LOOK_SECONDS = 0.1


class NameTakenError(FjordError):
    """Another part of the same name runs.

    Parameters
    ----------
    kind
        ``proxy`` or ``cluster``.
    holder, own
        The status of the other one, and of this one.
    """

    def __init__(self, kind: str, holder: Status, own: Status) -> None:
        text = f"another {kind} named {holder.name!r} runs at this broker, with identity {holder.epoch}"
        hint = "give this one another --name, or stop the other"
        if holder.epoch == own.epoch:
            text += ", which is that of this data folder: one of the two is a copy of the other"
            hint = "stop the other, or give this one a --name and a fresh --data of its own"
        super().__init__(text, hint=hint)
        self.holder = holder


class ClaimLink(Protocol):
    """A link to the broker."""

    @property
    def trouble(self) -> str | None:
        """Why there is no connection; None while there is one."""
        ...

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Receive until cancelled."""

    async def publish(self, message: Message) -> None:
        """Publish; raises LinkError."""


MakeClaimLink = Callable[[str, Sequence[Subscription], Sequence[Message]], ClaimLink]
"""Makes a link, given the name of the client, what it subscribes to, and what it publishes once that is granted."""


@contextlib.asynccontextmanager
async def claimed(
    claim: NameClaim, kind: str, make_link: MakeClaimLink, *, stop: Callable[[], None]
) -> AsyncIterator[None]:
    """Have a name for the duration of the context.

    If the broker is away, the context begins, and the name is claimed when the broker is there: `stop` is called if it
    turns out to be taken, and the context ends with the error.

    Parameters
    ----------
    claim, kind
        The claim, and of what: ``proxy`` or ``cluster``.
    make_link
        Makes the link for it.
    stop
        Ends the part.

    Raises
    ------
    NameTakenError
        If another one has it.
    """
    # Of two that begin on copies of a folder, neither is to take the connection of the other.
    client = f"fjord-claim-{kind}-{claim.own.name}-{claim.own.epoch}-{claim.own.since_us}"
    link = make_link(client, [Subscription(each) for each in claim.topics], [claim.message])
    claiming = asyncio.create_task(_decide(claim, kind, link), name="claim name")
    try:
        await _reached(claim, link, claiming)
        if claiming.done():
            claiming.result()
        else:
            log.warning("the name is claimed when the broker is there", name=claim.own.name)
            claiming.add_done_callback(lambda done: _stop_if_taken(done, stop))
        yield
        if claiming.done():
            claiming.result()
    finally:
        claiming.cancel()


async def _reached(claim: NameClaim, link: ClaimLink, claiming: asyncio.Task[None]) -> None:
    """Wait for the verdict, or until it is known that the broker is away."""
    began = time.monotonic()
    while not claiming.done():
        unreached = not claim.echoed and time.monotonic() - began >= REACH_SECONDS
        if link.trouble is not None or unreached:
            return
        await asyncio.wait([claiming], timeout=_LOOK_SECONDS)


def _stop_if_taken(done: asyncio.Task[None], stop: Callable[[], None]) -> None:
    if not done.cancelled() and done.exception() is not None:
        stop()


async def _decide(claim: NameClaim, kind: str, link: ClaimLink) -> None:
    """Return when the name is known to be free; raises NameTakenError."""
    known = asyncio.Event()

    async def take(messages: Sequence[Message]) -> None:
        for message in messages:
            if claim.received(message, _now_us()):
                with contextlib.suppress(LinkError):
                    await link.publish(claim.message)
        if claim.verdict is not Verdict.OPEN:
            known.set()

    receiving = asyncio.create_task(link.run_in_bursts(take), name="link of claim")
    try:
        while claim.verdict is Verdict.OPEN:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await known.wait()
            claim.time_passed(_now_us())
    finally:
        receiving.cancel()
    if claim.verdict is Verdict.TAKEN and claim.holder is not None:
        raise NameTakenError(kind, claim.holder, claim.own)


def _now_us() -> int:
    return time.monotonic_ns() // 1_000

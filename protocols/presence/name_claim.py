"""Whether a proxy or cluster that starts may have its name: a state machine, messages in, verdict out.

Pure. The broker retains the status of each part. One that is "online" may be of a part that has died meanwhile, so it
is asked: a part that has the name answers a claim with its status, once more::

    subscribe    claim, and back again                   the retained status is known by then
                 none, "offline" or our own              the name is free, at once
                 "online" of another identity            wait for it ...... it answers: taken
                                                                     ...... "offline", or no answer: free

An identity is what a data folder drew once: a part that was killed starts again at once. Of two that claim a name at
the same time, the one that began first gets it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from protocols.errors import ProtocolError
from protocols.mqtt.messages import Message
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status, decode_status
from protocols.wire.frames import encode

ANSWER_SECONDS: Final = 5.0
"""A part that is alive answers within this time."""


class Verdict(Enum):
    """What is known about a name."""

    OPEN = "open"
    """Nothing yet."""
    FREE = "free"
    TAKEN = "taken"


class NameClaim:
    """The claim of one part.

    Parameters
    ----------
    own
        Its status: name, identity (`epoch`), and since when it runs.
    status_topic, claim_topic
        Of its name.
    """

    def __init__(self, own: Status, *, status_topic: str, claim_topic: str) -> None:
        self.verdict = Verdict.OPEN
        self.holder: Status | None = None
        """The part that has the name, as far as is known."""
        self.message = Message(claim_topic, encode(own))
        """The claim, to be published."""
        self.own = own
        self.topics = status_topic, claim_topic
        self._since_us: int | None = None
        """When the claim came back: the broker has sent the retained status before."""

    @property
    def echoed(self) -> bool:
        """Whether the claim has reached the broker."""
        return self._since_us is not None

    def received(self, message: Message, now_us: int) -> bool:
        """Note a message; return whether the claim is to be published again, for another part that claims the name."""
        try:
            status = decode_status(message.payload) if message.payload else None
        except ProtocolError:
            return False  # it is about no part
        if message.topic == self.topics[0]:
            self._status(status, retained=message.retain)
            return False
        # No part retains a claim: one that is retained would keep a name from its part at each start.
        return status is not None and not message.retain and self._claim(status, now_us)

    def time_passed(self, now_us: int) -> None:
        """Note that time has passed: a part that does not answer does not run."""
        if self._since_us is not None and now_us - self._since_us >= ANSWER_SECONDS * 1e6:
            self._decide(Verdict.FREE)

    def _status(self, status: Status | None, *, retained: bool) -> None:
        other = status is not None and status.epoch != self.own.epoch and status.presence is Presence.ONLINE
        if not other:
            self.holder = None
            if self._since_us is not None:
                self._decide(Verdict.FREE)
        else:
            self.holder = status
            if not retained:
                self._decide(Verdict.TAKEN)

    def _claim(self, claim: Status, now_us: int) -> bool:
        if claim.epoch != self.own.epoch:
            if (claim.since_us, claim.epoch) < (self.own.since_us, self.own.epoch):
                self.holder = claim
                self._decide(Verdict.TAKEN)
            return self.verdict is not Verdict.TAKEN
        if self._since_us is None:
            self._since_us = now_us
            if self.holder is None:
                self._decide(Verdict.FREE)
        return False

    def _decide(self, verdict: Verdict) -> None:
        if self.verdict is Verdict.OPEN:
            self.verdict = verdict


def claim_of_proxy(own: Status) -> NameClaim:
    """Return the claim of a proxy."""
    return NameClaim(own, status_topic=topics.proxy_status(own.name), claim_topic=topics.proxy_claim(own.name))


def claim_of_cluster(own: Status) -> NameClaim:
    """Return the claim of a cluster."""
    return NameClaim(own, status_topic=topics.cluster_status(own.name), claim_topic=topics.cluster_claim(own.name))


def concerns_another(claim: bytes, identity: str) -> bool:
    """Return whether a claim is of another part than the one that has the name, which answers it then.

    Raises
    ------
    FrameError
        If it is none.
    """
    return decode_status(claim).epoch != identity

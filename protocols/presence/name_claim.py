"""Whether a proxy or cluster that starts may have its name: a state machine, messages in, verdict out.

Pure. The broker retains the status of each part. One that is "online" may be of a part that has died meanwhile, so it
is asked: a part that has the name answers a claim with its status, once more::

    subscribe    claim, and back again                   the retained status is known by then
                 none, "offline" or our own              the name is free, at once
                 "online" of another process             wait for it ...... it answers: taken
                                                                     ...... "offline", or no answer: free

An identity is what a data folder drew once, and a process is known by its identity and by when it began: of a folder
that was copied, two processes have the same identity. A part that was killed starts again at once: its connection ends
with it, so that the broker says "offline". If the broker has not noticed its end, it is waited for, for a moment only.
Of two that claim a name at the same time, the one that began first gets it.
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
SAME_ANSWER_SECONDS: Final = 1.0
"""If it has the same identity: it is most likely the one that is started again, which should not have to wait."""


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
        is_same = self.holder is not None and self.holder.epoch == self.own.epoch
        seconds = SAME_ANSWER_SECONDS if is_same else ANSWER_SECONDS
        if self._since_us is not None and now_us - self._since_us >= seconds * 1e6:
            self._decide(Verdict.FREE)

    def _status(self, status: Status | None, *, retained: bool) -> None:
        other = status is not None and not is_of(self.own, status) and status.presence is Presence.ONLINE
        if not other:
            self.holder = None
            if self._since_us is not None:
                self._decide(Verdict.FREE)
        else:
            self.holder = status
            if not retained:
                self._decide(Verdict.TAKEN)

    def _claim(self, claim: Status, now_us: int) -> bool:
        if not is_of(self.own, claim):
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


SHARED_SECONDS: Final = 60.0
"""Two statuses of another process within this time are of one that runs."""


class NameWatch:
    """Whether another process runs on a copy of a part's data folder, as far as the statuses of its name show it.

    For brokers that do not tell whose connection they end. When two processes take the connection of one name from each
    other, each finds what the broker has published in the name of the other::

        first    online .......................... (lost) ... "offline" of the second: once ... again: shared
        second             online ... (lost) ... "offline" of the first: of before it began ... once

    What the broker has kept when a process connects for the first time is of an earlier process, which has ended. A
    status counts only if this process had to connect again since the last one that counted: others can be forged.

    Parameters
    ----------
    own
        The status of this process.
    """

    def __init__(self, own: Status) -> None:
        self._own = own
        self._is_known = False
        """Whether a status of this process has come: what comes later is of no earlier one."""
        self._seen_us: int | None = None
        self._connections = 0
        self._counted = 1
        """The number of the connection on which a status counted last; on the first one none does."""

    def connected(self) -> None:
        """Note that this process has connected to the broker."""
        self._connections += 1

    def seen(self, status: Status, now_us: int) -> bool:
        """Note a status of the name; return whether another process has it, too."""
        if status.epoch != self._own.epoch:
            return False  # another folder: it is asked about when it claims the name
        if is_of(self._own, status):
            self._is_known = True
            return False
        if not self._is_known or self._connections <= self._counted:
            return False
        self._counted = self._connections
        before, self._seen_us = self._seen_us, now_us
        return before is not None and now_us - before < SHARED_SECONDS * 1e6


def claim_of_proxy(own: Status) -> NameClaim:
    """Return the claim of a proxy."""
    return NameClaim(own, status_topic=topics.proxy_status(own.name), claim_topic=topics.proxy_claim(own.name))


def claim_of_cluster(own: Status) -> NameClaim:
    """Return the claim of a cluster."""
    return NameClaim(own, status_topic=topics.cluster_status(own.name), claim_topic=topics.cluster_claim(own.name))


def is_of(process: Status, found: Status) -> bool:
    """Return whether a status is of a process, by its identity and when it began."""
    return (found.epoch, found.since_us) == (process.epoch, process.since_us)


def concerns_another(claim: bytes, own: Status) -> bool:
    """Return whether a claim is of another process than the one that has the name, which answers it then.

    Raises
    ------
    FrameError
        If it is none.
    """
    return not is_of(own, decode_status(claim))

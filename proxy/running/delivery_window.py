"""The sender's side of go-back-N: which spooled batch is published when, and which is deleted.

Pure, one per stream. At most `in_flight` batches are published and not acknowledged. If nothing is acknowledged for
`resend_after_us`, or the receiver repeats that it misses something, sending begins again after the last acknowledged.
A receiver that stays silent is tried at growing intervals, up to 16 times `resend_after_us`, until it answers; a batch
that cannot be read is tried again after one.

A batch that is damaged on disk is skipped, but only once the receiver has stored all before it: a receiver that is made
to continue behind the damaged batch would give up those, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_REPEATS_UNTIL_RESEND = 2
_LONGEST_PATIENCE = 16


@dataclass(frozen=True, slots=True)
class BatchSpooled:
    """A batch is on disk; numbers grow by one."""

    sequence: int


@dataclass(frozen=True, slots=True)
class BatchDamaged:
    """A batch cannot be sent, as its bytes are lost. The batches behind it have not been sent either."""

    sequence: int


@dataclass(frozen=True, slots=True)
class BatchUnreadable:
    """A batch cannot be read now. It and those behind it have not been sent."""


@dataclass(frozen=True, slots=True)
class AckReceived:
    """The receiver has everything up to and including `through`."""

    through: int


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a new connection, or receiver; batches sent to the one before may be lost."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """There is no connection."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed, and nothing else has happened."""


DeliveryEvent = BatchSpooled | BatchDamaged | BatchUnreadable | AckReceived | Connected | Disconnected | TimePassed


@dataclass(frozen=True, slots=True)
class Send:
    """Publish this batch."""

    sequence: int


@dataclass(frozen=True, slots=True)
class DeleteThrough:
    """Everything up to and including this batch is stored by the receiver."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Resending:
    """Sending begins again with this batch: `reason` is "silence", "gap" or "loss"."""

    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImpossibleAck:
    """The receiver acknowledged a batch never sent, or fewer than it acknowledged before (it has lost batches)."""

    through: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the receiver continue with this batch: it has lost earlier ones that it had acknowledged."""

    first: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Let the receiver skip this batch: it will never be sent, and all before it are stored."""

    sequence: int


DeliveryInstruction = Send | DeleteThrough | Resending | ImpossibleAck | Resume | Skip


@dataclass(slots=True)
class DeliveryWindow:
    """The state of delivery of one stream.

    Parameters
    ----------
    acknowledged
        All batches up to this number are stored by the receiver.
    spooled
        Highest number on disk.
    in_flight
        Batches that may be published and unacknowledged.
    resend_after_us
        How long the receiver may send no acknowledgement.
    """

    acknowledged: int = 0
    spooled: int = 0
    in_flight: int = 32
    resend_after_us: int = 3_000_000
    sent: int = 0
    connected: bool = False
    _progress_us: int = 0
    _repeats: int = 0
    _regressed: int = 0
    _resent_for: int = -1
    _patience: int = 1
    _damaged: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sent = self.acknowledged

    @property
    def waiting(self) -> int:
        """Batches that are not yet acknowledged."""
        return self.spooled - self.acknowledged

    def handle(self, event: DeliveryEvent, now_us: int) -> list[DeliveryInstruction]:
        """Return what to do after `event` at `now_us` of any clock that never goes back."""
        match event:
            case BatchSpooled(sequence):
                if sequence != self.spooled + 1:
                    raise ValueError(f"batch {sequence} spooled after {self.spooled}")
                self.spooled = sequence
                return self._fill(now_us)
            case BatchDamaged(sequence):
                if sequence <= self.acknowledged:
                    return []
                self._damaged.add(sequence)
                self.sent = min(self.sent, sequence - 1)
                return self._fill(now_us)
            case BatchUnreadable():
                # The receiver is not to blame, and is not tried less often for it.
                self._progress_us = now_us
                self._patience = 1
                return []
            case AckReceived(through):
                return self._acknowledge(through, now_us)
            case Connected():
                self.connected = True
                self.sent = self.acknowledged
                self._repeats = self._regressed = 0
                self._resent_for = -1
                self._patience = 1
                return self._fill(now_us)
            case Disconnected():
                self.connected = False
                return []
            case TimePassed():
                patience_us = self._patience * self.resend_after_us
                if not self.connected or self.sent == self.acknowledged or now_us - self._progress_us < patience_us:
                    return []
                self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
                return self._go_back(now_us, "silence")

    def _acknowledge(self, through: int, now_us: int) -> list[DeliveryInstruction]:
        if through > self.spooled:
            return [ImpossibleAck(through, f"acknowledges batch {through}, the last one is {self.spooled}")]
        if through < self.acknowledged:
            # An old ack that was overtaken, or a receiver that lost batches; only the latter is repeated.
            found = ImpossibleAck(through, f"acknowledges up to {through}, before it was {self.acknowledged}")
            self._regressed += 1
            if not self.connected or self._regressed != _REPEATS_UNTIL_RESEND:
                return [found]
            return [found, Resume(self.acknowledged + 1), *self._again(now_us, "loss")]
        self._regressed = 0
        if through > self.acknowledged:
            self.acknowledged = through
            self._damaged = {each for each in self._damaged if each > through}
            # An ack of batches sent before sending began again: they need not be sent once more.
            self.sent = max(self.sent, through)
            self._progress_us = now_us
            self._repeats = 0
            self._patience = 1
            return [DeleteThrough(through), *self._fill(now_us)]
        self._patience = 1  # the receiver is there: it lacks a batch, or can store batches again
        if not self.connected or self.sent == self.acknowledged or self._resent_for == through:
            return []
        self._repeats += 1
        if self._repeats < _REPEATS_UNTIL_RESEND:
            return []
        # Each batch behind a gap makes the receiver repeat its ack: go back once for all of them.
        self._resent_for = through
        return self._go_back(now_us, "gap")

    def _go_back(self, now_us: int, reason: str) -> list[DeliveryInstruction]:
        self._regressed = min(self._regressed, 1)  # the resumption may have been lost: send it after the next such ack
        return self._again(now_us, reason)

    def _again(self, now_us: int, reason: str) -> list[DeliveryInstruction]:
        self.sent = self.acknowledged
        self._repeats = 0
        self._progress_us = now_us
        return [Resending(self.acknowledged + 1, reason), *self._fill(now_us)]

    def _fill(self, now_us: int) -> list[DeliveryInstruction]:
        if not self.connected:
            return []
        if self.sent == self.acknowledged:
            self._progress_us = now_us
        instructions: list[DeliveryInstruction] = []
        for sequence in range(self.sent + 1, min(self.spooled, self.acknowledged + self.in_flight) + 1):
            if sequence not in self._damaged:
                instructions.append(Send(sequence))
            elif sequence == self.acknowledged + 1:
                instructions.append(Skip(sequence))
            else:
                break
            self.sent = sequence
        return instructions

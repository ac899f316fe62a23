"""The sender's side of go-back-N: which spooled batch is published when, and which is deleted.

Pure, one per stream. Batches are published with a quality of service of 0: any of them may be lost, and only the
receiver's acknowledgements count (docs/decisions/0079-batches-are-acknowledged-once.md).

* The receiver repeats that it misses something: sending begins again after the last acknowledged batch. It answers
  batches that it has in the same way, so this does not count while such answers may come: else batches sent again
  would make it repeat itself, and these repeats that they are sent again.
* It is silent for longer than is usual: the first batch without an acknowledgement is sent once more. If that one is
  acknowledged and nothing behind it, the rest is lost, too, and sent again. What is usual is how long acknowledgements
  take, and four times by how much that varies, as in TCP (RFC 6298): at least a second, at most `resend_after_us`. A
  receiver that stays silent is tried at growing intervals, up to 4 times `resend_after_us`, until it answers.
* A batch cannot be read: the same after such a time, with all batches.

At most `in_flight` batches are published and not acknowledged; half as many each time that some were lost, down to a
quarter, so that a receiver or a broker that cannot keep up is spared, and twice as many with each acknowledgement. A
receiver may acknowledge seldom: with fewer, it would take long until it has all that waits meanwhile::

    sent    1 2 3 4          1   2 3    4 5 6 7
    lost      x x x
    acks         1  (silence)  1     3          7

A batch that is damaged on disk is skipped, but only once the receiver has stored all before it: a receiver that is made
to continue behind the damaged batch would give up those, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_REPEATS_UNTIL_RESEND = 2
_LONGEST_PATIENCE = 4
_LEAST_SHARE = 4
"""At least one in so many of those that may be in flight are, whatever was lost."""
_LEAST_PATIENCE_US = 1_000_000
"""RFC 6298, 2.4."""
_DELAY_SHARE, _SPREAD_SHARE, _SPREADS = 1 / 8, 1 / 4, 4
"""RFC 6298, 2.3: of a new delay in what is usual; of its difference in by how much that varies; of this in patience."""


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
class SendAgain:
    """Publish this batch once more, as the receiver is silent; those behind it are not sent again yet."""

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


DeliveryInstruction = Send | SendAgain | DeleteThrough | Resending | ImpossibleAck | Resume | Skip


@dataclass(slots=True)
class _UsualDelay:
    """How long acknowledgements usually take: of one batch at a time, and of none that is sent twice (RFC 6298, 3)."""

    furthest: int = 0
    """The last batch that was ever sent."""
    _delay_us: float | None = None
    _spread_us: float = 0.0
    _timed: tuple[int, int] | None = None
    """A batch that is waited for, and when it was sent."""

    def sent(self, sequence: int, now_us: int) -> bool:
        """Note that a batch is sent; return whether it had been sent before."""
        if sequence <= self.furthest:
            return True
        self.furthest = sequence
        if self._timed is None:
            self._timed = sequence, now_us
        return False

    def interrupted(self) -> None:
        """Note that batches are sent again: an acknowledgement may be of either time."""
        self._timed = None

    def acknowledged(self, through: int, now_us: int) -> None:
        """Note an acknowledgement."""
        if self._timed is None or self._timed[0] > through:
            return
        delay_us, self._timed = now_us - self._timed[1], None
        if self._delay_us is None:
            self._delay_us, self._spread_us = delay_us, delay_us / 2
        else:
            self._spread_us += _SPREAD_SHARE * (abs(delay_us - self._delay_us) - self._spread_us)
            self._delay_us += _DELAY_SHARE * (delay_us - self._delay_us)

    def patience_us(self, longest_us: int) -> int:
        """Return how long to wait for an acknowledgement; `longest_us` before the first."""
        if self._delay_us is None:
            return longest_us
        return min(longest_us, max(_LEAST_PATIENCE_US, round(self._delay_us + _SPREADS * self._spread_us)))


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
        How long the receiver may send no acknowledgement, at most.
    """

    acknowledged: int = 0
    spooled: int = 0
    in_flight: int = 32
    resend_after_us: int = 3_000_000
    sent: int = 0
    connected: bool = False
    published_bytes: int = 0
    """Of batches that are published and not acknowledged."""
    _room: int = 0
    """Batches that may be published and unacknowledged now."""
    _progress_us: int = 0
    _repeats: int = 0
    _regressed: int = 0
    _resent_for: int = -1
    _patience: int = 1
    _tries: int = 0
    """How often the first batch without an ack was sent once more; one that stood still answers each of them."""
    _repeated_us: int | None = None
    """When a batch was last sent again: the receiver answers it even if it has it, as it does behind a gap."""
    _unread: bool = False
    """Whether batches were not sent as one could not be read."""
    _damaged: set[int] = field(default_factory=set)
    _sizes: dict[int, int] = field(default_factory=dict)
    _usual: _UsualDelay = field(default_factory=_UsualDelay)

    def __post_init__(self) -> None:
        self.sent = self.acknowledged
        self._room = self.in_flight
        self._usual.furthest = self.acknowledged

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
                self._unread = True
                self._progress_us = now_us
                self._patience = 1
                return []
            case AckReceived(through):
                return self._acknowledge(through, now_us)
            case Connected():
                self.connected = True
                self._room = self.in_flight
                self._begin_again()
                self._regressed = 0
                self._resent_for = -1
                self._patience = 1
                return self._fill(now_us)
            case Disconnected():
                self.connected = False
                return []
            case TimePassed():
                return self._look_whether_silent(now_us)

    def published(self, sequence: int, size: int) -> None:
        """Note that a batch of so many bytes was published."""
        if self.acknowledged < sequence <= self.sent and sequence not in self._sizes:
            self._sizes[sequence] = size
            self.published_bytes += size

    def is_full(self, sequence: int, most_bytes: int) -> bool:
        """Return whether a batch waits as so many bytes are on their way; the next to be acknowledged never does."""
        return self.published_bytes >= most_bytes and sequence > self.acknowledged + 1

    def _look_whether_silent(self, now_us: int) -> list[DeliveryInstruction]:
        longest_us = _LONGEST_PATIENCE * self.resend_after_us
        patience_us = min(self._patience * self._usual.patience_us(self.resend_after_us), longest_us)
        if not self.connected or self.sent == self.acknowledged or now_us - self._progress_us < patience_us:
            return []
        if patience_us < longest_us:
            self._patience *= 2
        if self._unread:
            return self._go_back(now_us, "silence")
        tried = self.acknowledged + 1
        self._tries += 1
        self._repeated_us = now_us
        self._regressed = min(self._regressed, 1)  # as in _go_back
        self._repeats = 0
        self._progress_us = now_us
        self._usual.interrupted()
        return [Skip(tried) if tried in self._damaged else SendAgain(tried)]

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
            return [DeleteThrough(through), *self._progress(through, now_us)]
        self._patience = 1  # the receiver is there: it lacks a batch, or can store batches again
        if not self.connected or self.sent == self.acknowledged or self._resent_for == through:
            return []
        if self._repeated_us is not None and now_us - self._repeated_us < self._usual.patience_us(self.resend_after_us):
            return []
        self._repeats += 1
        if self._repeats < _REPEATS_UNTIL_RESEND + self._tries:
            return []
        # Each batch behind a gap makes the receiver repeat its ack: go back once for all of them.
        self._resent_for = through
        return self._lost_some(now_us)

    def _progress(self, through: int, now_us: int) -> list[DeliveryInstruction]:
        """Note that batches are stored; return what to send."""
        tried_alone = self._tries > 0 and through == self.acknowledged + 1
        self.acknowledged = through
        self._damaged = {each for each in self._damaged if each > through}
        for sequence in [each for each in self._sizes if each <= through]:
            self.published_bytes -= self._sizes.pop(sequence)
        self._usual.acknowledged(through, now_us)
        self._progress_us = now_us
        self._repeats = self._tries = 0
        self._patience = 1
        if self.connected and tried_alone and through < self.sent:
            return self._lost_some(now_us)
        # An ack of batches sent before sending began again: they were not lost, and need not be sent once more.
        self._room = self.in_flight if through > self.sent else min(2 * self._room, self.in_flight)
        self.sent = max(self.sent, through)
        return self._fill(now_us)

    def _lost_some(self, now_us: int) -> list[DeliveryInstruction]:
        self._room = max(1, self.in_flight // _LEAST_SHARE, self._room // 2)
        return self._go_back(now_us, "gap")

    def _go_back(self, now_us: int, reason: str) -> list[DeliveryInstruction]:
        self._regressed = min(self._regressed, 1)  # the resumption may have been lost: send it after the next such ack
        return self._again(now_us, reason)

    def _again(self, now_us: int, reason: str) -> list[DeliveryInstruction]:
        self._begin_again()
        self._progress_us = now_us
        return [Resending(self.acknowledged + 1, reason), *self._fill(now_us)]

    def _begin_again(self) -> None:
        self.sent = self.acknowledged
        self._repeats = self._tries = 0
        self._unread = False
        self._sizes.clear()
        self.published_bytes = 0
        self._usual.interrupted()

    def _fill(self, now_us: int) -> list[DeliveryInstruction]:
        if not self.connected:
            return []
        if self.sent == self.acknowledged:
            self._progress_us = now_us
        instructions: list[DeliveryInstruction] = []
        for sequence in range(self.sent + 1, min(self.spooled, self.acknowledged + self._room) + 1):
            if sequence not in self._damaged:
                if self._usual.sent(sequence, now_us):
                    self._repeated_us = now_us
                instructions.append(Send(sequence))
            elif sequence == self.acknowledged + 1:
                instructions.append(Skip(sequence))
            else:
                break
            self.sent = sequence
        return instructions

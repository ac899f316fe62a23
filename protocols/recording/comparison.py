"""Comparing what a part has published when it was recorded, and when it was replayed. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocols.errors import ProtocolError
from protocols.recording.entries import Sent
from protocols.recording.reading import RecordedRun
from protocols.wire import topics
from protocols.wire.batches import Batch, decode_batch
from protocols.wire.stimuli import stimulus_of

NOT_COMPARED = frozenset({"proxy_spool", "proxy_waits"})
"""Kinds of messages that show what a thread has just done to the disk, which no log knows to the microsecond; and those
that only show what others follow from, which earlier versions did not publish."""

ANY_QUALITY = frozenset({"batches"})
"""Kinds of messages that earlier versions published with another quality of service: 1 instead of 0."""

TimedSent = tuple[int, Sent]
"""The number of a turn, and what was published in it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A message that is not as it was; one of the two is missing if it was published only once.

    Parameters
    ----------
    turn
        Number of the turn in which it was recorded, or replayed if it was not recorded.
    recorded, replayed
        The messages.
    """

    turn: int
    recorded: Sent | None
    replayed: Sent | None

    def lines(self) -> list[str]:
        """Return the difference in words."""
        shown = self.recorded or self.replayed
        cause = "" if shown is None else shown.cause
        return [
            f"caused by: {cause}",
            f"recorded:  {_described(self.recorded)}",
            f"replayed:  {_described(self.replayed)}",
        ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, message by message.

    Parameters
    ----------
    recorded, replayed
        How many messages of each kind.
    first
        The earliest difference; None if there is none.
    differences
        How many there are.
    """

    recorded: Mapping[str, int]
    replayed: Mapping[str, int]
    first: Difference | None
    differences: int


def recorded_messages(run: RecordedRun) -> list[TimedSent]:
    """Return what was published, with the numbers of its turns; raises LogError."""
    return [(number, each) for number, turn in enumerate(run.turns(), start=1) for each in turn.sent]


def compare(recorded: Sequence[TimedSent], replayed: Sequence[TimedSent]) -> Comparison:
    """Compare the messages of each topic, one by one and byte by byte."""
    before, after = _by_topic(recorded), _by_topic(replayed)
    found: list[Difference] = []
    for topic in before.keys() | after.keys():
        if _kind(topic) in NOT_COMPARED:
            continue
        one, other = before.get(topic, []), after.get(topic, [])
        for place in range(max(len(one), len(other))):
            old = one[place] if place < len(one) else None
            new = other[place] if place < len(other) else None
            if old is None or new is None or not _alike(old[1], new[1]):
                turn = (old or new or (0, None))[0]
                found.append(Difference(turn, old and old[1], new and new[1]))
    first = min(found, key=lambda each: (each.turn, (each.recorded or each.replayed or _NONE).topic), default=None)
    return Comparison(_counts(recorded), _counts(replayed), first, len(found))


_NONE = Sent("", b"", 0, False, "")  # noqa: FBT003 - a message


def _alike(one: Sent, other: Sent) -> bool:
    same = (one.payload, one.retain) == (other.payload, other.retain)
    return same and (one.qos == other.qos or _kind(one.topic) in ANY_QUALITY)


def _by_topic(messages: Sequence[TimedSent]) -> dict[str, list[TimedSent]]:
    found: dict[str, list[TimedSent]] = defaultdict(list)
    for each in messages:
        found[each[1].topic].append(each)
    return found


def _kind(topic: str) -> str:
    try:
        return topics.parse(topic).kind
    except ProtocolError:
        return "answer" if " " in topic else "device message"


def _counts(messages: Sequence[TimedSent]) -> dict[str, int]:
    return dict(sorted(Counter(_kind(each.topic) for _, each in messages).items()))


def _batch(sent: Sent) -> Batch | None:
    if _kind(sent.topic) != "batches":
        return None
    try:
        return decode_batch(sent.payload)
    except ProtocolError:
        return None


def _described(sent: Sent | None) -> str:
    if sent is None:
        return "nothing"
    text = stimulus_of(sent.topic, sent.payload)
    batch = _batch(sent)
    if batch is not None:
        text += f", {batch.rows:,} rows, watermark {batch.watermark_us}"
    return f"{text}, {len(sent.payload):,} bytes"

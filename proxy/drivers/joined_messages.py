"""Messages that belong together: copies of one that several gateways pass on, and halves of a tuple.

Pure. Both are recognised within a bounded time and a bounded memory only.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from protocols.wire.packets import SampleValue

MOST_REMEMBERED = 256
"""Messages of a device that are compared with the next one."""


class RecentMessages:
    """The last messages of one device, by their content.

    Parameters
    ----------
    within_us
        A message of the same content as one received no longer ago is a copy of it; 0 if copies are not recognised.
    """

    def __init__(self, within_us: int) -> None:
        self._within_us = within_us
        self._received: OrderedDict[bytes, int] = OrderedDict()

    def is_copy(self, content: object, radio_us: int) -> bool:
        """Return whether a message is a copy; if it is none, remember it."""
        if not self._within_us:
            return False
        while self._received:
            oldest, received_us = next(iter(self._received.items()))
            if radio_us - received_us <= self._within_us and len(self._received) < MOST_REMEMBERED:
                break
            del self._received[oldest]
        digest = hashlib.blake2b(repr(content).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._received:
            return True
        self._received[digest] = radio_us
        return False


@dataclass(slots=True)
class HalfTuple:
    """A tuple that waits for the rest of its fields.

    Parameters
    ----------
    stamp_us
        Of its first message.
    due_radio_us
        When it waits no longer, on the radio clock.
    values
        By field, so far.
    """

    stamp_us: int
    due_radio_us: int
    values: dict[str, SampleValue]

    def takes(self, values: dict[str, SampleValue], stamp_us: int, within_us: int, events: Collection[str]) -> bool:
        """Return whether a message belongs to it: its stamp is near, and no event in it has another value."""
        if abs(stamp_us - self.stamp_us) > within_us:
            return False
        return not any(
            self.values.get(name) is not None and values.get(name) not in {None, self.values[name]} for name in events
        )

    def completes(self, values: dict[str, SampleValue]) -> bool:
        """Return whether a message has a field that it lacks, or says the same again: else it is of the next tuple."""
        given = {name: value for name, value in values.items() if value is not None}
        return any(self.values.get(name) is None for name in given) or given.items() <= self.values.items()

    def overlaps(self, values: dict[str, SampleValue]) -> bool:
        """Return whether a message has a value of a field that it has already."""
        return any(value is not None and self.values.get(name) is not None for name, value in values.items())

    def merge(self, values: dict[str, SampleValue]) -> int:
        """Merge another message; return how many fields it gave another value. NULL and absent ones change nothing."""
        changed = 0
        for name, value in values.items():
            before = self.values.get(name)
            if value is not None:
                changed += before is not None and before != value
                self.values[name] = value
            elif name not in self.values:
                self.values[name] = None
        return changed

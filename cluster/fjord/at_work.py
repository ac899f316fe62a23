"""The present activity of this process: for a thread that watches it, and for the one that finds the process dead."""

from __future__ import annotations

from collections.abc import Mapping
from mmap import mmap
from typing import Final

import msgspec

LOADING: Final = "its state"
"""In place of an operator: the state of a fragment is read, which makes the process grow without any work."""
RECORD_BYTES: Final = 4096
MOST_FRAGMENTS: Final = 16
"""As many fragments of those that share an operator are named in the record."""
_LENGTH_BYTES: Final = 2


class Activity(msgspec.Struct, frozen=True, array_like=True):
    """What a process was computing.

    Parameters
    ----------
    micro_batch
        The micro-batch, by a text that is the same whenever it is run; empty if that is not known.
    owner
        The fragment, or the operators that several fragments share; None for none.
    operator
        Kind of the operator that was making a transition; None for none.
    fragments
        The fragments that `owner` works for.
    since
        The epoch of the newest query of the fragment; 0 if that is not known.
    """

    micro_batch: str
    owner: str | None
    operator: str | None
    fragments: tuple[str, ...]
    since: int = 0


class AtWork:
    """The present activity of a process. Assignments are seen by other threads at once.

    Attributes
    ----------
    micro_batch, owner, operator
        As of an :class:`Activity`.
    shared
        By owner: the fragments that it works for, where these are several, or have another name.
    since
        As of an :class:`Activity`.
    """

    def __init__(self) -> None:
        self.micro_batch = ""
        self.owner: str | None = None
        self.operator: str | None = None
        self.shared: Mapping[str, tuple[str, ...]] = {}
        self.since = 0
        self._record: mmap | None = None

    def begin(self, owner: str, operator: str | None = None, *, since: int | None = None) -> None:
        """Note what is computed from now on; `since` stays unless it is given."""
        if since is not None:
            self.since = since
        self.owner, self.operator = owner, operator
        if self._record is not None:
            self._write(self._record)

    def rest(self) -> None:
        """Note that nothing is computed for any query."""
        self.owner = self.operator = None
        if self._record is not None:
            self._write(self._record)

    def now(self) -> Activity:
        """Return the activity."""
        owner = self.owner
        fragments = () if owner is None else self.shared.get(owner, (owner,))
        return Activity(self.micro_batch, owner, self.operator, fragments[:MOST_FRAGMENTS], self.since)

    def record_in(self, record: mmap | None) -> None:
        """Write it to memory that outlives the process from now on; None to write it nowhere."""
        self._record = record

    def _write(self, record: mmap) -> None:
        text = msgspec.json.encode(self.now())
        if len(text) > RECORD_BYTES - _LENGTH_BYTES:  # of names that are very long
            text = msgspec.json.encode(Activity(self.micro_batch, None, self.operator, ()))
        record[: _LENGTH_BYTES + len(text)] = len(text).to_bytes(_LENGTH_BYTES) + text


def read_record(content: bytes) -> Activity | None:
    """Return the activity in a record; None if it holds none, or was cut while it was written."""
    length = int.from_bytes(content[:_LENGTH_BYTES])
    try:
        return msgspec.json.decode(content[_LENGTH_BYTES : _LENGTH_BYTES + length], type=Activity)
    except msgspec.DecodeError:
        return None


NOW: Final = AtWork()
"""That of this process."""

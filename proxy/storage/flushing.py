"""The writes of a flush, which run in the stores' thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from protocols.wire.batches import encode_batch
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from proxy.drivers.driver_registry import DrivenMote
from proxy.errors import StoreError, StoreFullError
from proxy.fleet.batching import CutBatch
from proxy.fleet.demand_assembly import StoredDemand
from proxy.fleet.stream_state import StreamProgress
from proxy.records.program_routes import MOST_PROGRAMS
from proxy.records.waiting_tuples import MotePosition
from proxy.storage.quarantine import RejectedFrame
from proxy.storage.spool import NO_LOSSES, NO_STATES, SessionMessage, SpooledBatch
from proxy.storage.stores import Stores


@dataclass(slots=True)
class CatalogChanges:
    """Changes that the catalog on disk does not have yet."""

    announcements: dict[str, Announcement] = field(default_factory=dict)
    programs: list[SamplingProgram] = field(default_factory=list)
    demands: dict[str, StoredDemand] = field(default_factory=dict)
    driven: dict[str, DrivenMote] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.announcements or self.programs or self.demands or self.driven)

    def followed_by(self, newer: CatalogChanges) -> CatalogChanges:
        """Return these changes and newer ones as one."""
        demands = dict(self.demands)
        for stream, each in newer.demands.items():
            demands[stream] = demands[stream].followed_by(each) if stream in demands else each
        programs = list(dict.fromkeys(reversed([*self.programs, *newer.programs])))[:MOST_PROGRAMS]  # the latest
        kept = {mote: each for mote, each in self.driven.items() if mote not in newer.announcements}
        return CatalogChanges(self.announcements | newer.announcements, programs[::-1], demands, kept | newer.driven)


PIECE_ROWS = 10_000
"""Rows of batches that are written in one transaction, unless those that belong together have more."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What could be put on disk.

    Parameters
    ----------
    batches
        The first of those that were to be.
    error
        Why the others were not; None if all were.
    """

    batches: Sequence[SpooledBatch]
    error: StoreError | None = None


def store_in_pieces(
    stores: Stores,
    proxy: str,
    cut: Sequence[CutBatch],
    positions: Sequence[MotePosition],
    now_us: int,
    *,
    losses: Mapping[str, int] = NO_LOSSES,
    states: Mapping[str, bytes] = NO_STATES,
    packed: bool = True,
    session: Sequence[SessionMessage] = (),
) -> Stored:
    """Put batches on disk as :func:`store_batches` does, one transaction after another, for as long as there is room.

    What has waited for room may be more than the disk has. Losses are stored first; positions, states and messages of
    the session last: no restart may find them without what they led to. While messages of the session are outstanding
    all is one transaction wherever the disk has room for it, so that one that comes again leads to no second tuple.
    """
    stored: list[SpooledBatch] = []
    groups = _groups(cut)
    pieces = deque([groups] if session else _pieces(groups))
    while pieces:
        piece = pieces.popleft()
        try:
            stored += store_batches(
                stores,
                proxy,
                list(chain.from_iterable(piece)),
                () if pieces else positions,
                now_us,
                losses=NO_LOSSES if stored else losses,
                states=NO_STATES if pieces else states,
                packed=packed,
                session=() if pieces else session,
            )
        except StoreFullError as error:
            if len(piece) <= 1:
                return Stored(stored, error)
            half = len(piece) // 2
            pieces.extendleft([piece[half:], piece[:half]])
        except StoreError as error:
            return Stored(stored, error)
    return Stored(stored)


def _groups(cut: Sequence[CutBatch]) -> Sequence[Sequence[CutBatch]]:
    """Return the batches in groups, each of which is stored in one transaction, however little room there is."""
    groups: list[list[CutBatch]] = []
    with_next = False
    for each in cut:
        if with_next:
            groups[-1].append(each)
        else:
            groups.append([each])
        with_next = each.with_next
    return groups


def _pieces(groups: Sequence[Sequence[CutBatch]]) -> Sequence[Sequence[Sequence[CutBatch]]]:
    """Return the groups in pieces, each of which is stored in one transaction if there is room."""
    if len(groups) <= 1:
        return [groups]
    pieces: list[list[Sequence[CutBatch]]] = [[]]
    rows = 0
    for group in groups:
        of_group = sum(each.rows for each in group)
        rows += of_group
        if pieces[-1] and rows > PIECE_ROWS:
            pieces.append([])
            rows = of_group
        pieces[-1].append(group)
    return pieces


def store_batches(
    stores: Stores,
    proxy: str,
    cut: Sequence[CutBatch],
    positions: Iterable[MotePosition],
    now_us: int,
    *,
    losses: Mapping[str, int] = NO_LOSSES,
    states: Mapping[str, bytes] = NO_STATES,
    packed: bool = True,
    session: Sequence[SessionMessage] = (),
) -> list[SpooledBatch]:
    """Encode batches and put them on disk, with the progress of streams and motes; `now_us` is real time.

    `losses` are those of motes that have changed: until when samples are missing. `states` are what drivers keep of
    devices, as of these batches. `packed` is as in :func:`protocols.wire.batches.encode_batch`. `session` are the
    messages of the devices' session that have led to these batches.

    Raises
    ------
    StoreError
        Nothing was stored.
    """
    spooled: list[SpooledBatch] = []
    progress: dict[str, StreamProgress] = {}
    writer, last = stores.spool.writer, dict[str, bytes]()
    latest = {each.mote: each for each in positions}
    for each in cut:
        name = each.schema.name
        batch = each.as_batch(proxy, stores.spool.epoch)
        if writer:
            batch = msgspec.structs.replace(
                batch, writer=writer, follows=last.get(name, stores.spool.last_writer(name))
            )
            last[name] = writer
        payload = encode_batch(batch, packed=packed)
        spooled.append(SpooledBatch(name, each.sequence, each.rows, payload, now_us, writer))
        progress[name] = StreamProgress(name, each.sequence, each.watermark_us, each.sampling)
        for mote, position in each.positions.items():
            known = latest.get(mote)
            if known is None or (known.boot, known.sequence) < (position.boot, position.sequence):
                latest[mote] = position
    stamps = [(each.schema.name, kept) for each in cut for kept in each.stamps]
    stores.spool.append(
        spooled,
        progress.values(),
        latest.values(),
        losses,
        stamps=stamps,
        states=states,
        session=session,
        now_us=now_us,
    )
    return spooled


def store_catalog(stores: Stores, changes: CatalogChanges) -> None:
    """Put changes of the catalog on disk; raises StoreError."""
    stores.catalog.remember(changes.announcements.values(), changes.programs, changes.demands, changes.driven)


def store_rejected(stores: Stores, frames: list[RejectedFrame]) -> None:
    """Put rejected frames on disk; raises StoreError."""
    stores.quarantine.write(frames)


def delete_acknowledged(
    stores: Stores, through: dict[str, int], cluster: str | None, *, writers_read: bool = False
) -> None:
    """Delete batches that the cluster has stored; raises StoreError.

    The cluster is noted before: its acknowledgements are the only ones that count from then on. Whether it reads
    writers is noted behind, as that can be found out again.
    """
    if cluster not in {None, stores.spool.cluster}:
        stores.spool.obey(cluster)
    for stream, sequence in through.items():
        stores.spool.delete_through(stream, sequence)
    if writers_read and not stores.spool.writers_read:
        stores.spool.note_writers_read()

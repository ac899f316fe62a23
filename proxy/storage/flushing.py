"""The writes of a flush, which run in the stores' thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from protocols.wire.batches import encode_batch
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from proxy.drivers.driver_registry import DrivenMote
from proxy.fleet.batching import CutBatch
from proxy.fleet.demand_assembly import StoredDemand
from proxy.fleet.stream_state import StreamProgress
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
        kept = {mote: each for mote, each in self.driven.items() if mote not in newer.announcements}
        return CatalogChanges(
            self.announcements | newer.announcements, self.programs + newer.programs, demands, kept | newer.driven
        )


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
    latest = {each.mote: each for each in positions}
    for each in cut:
        name = each.schema.name
        payload = encode_batch(each.as_batch(proxy, stores.spool.epoch), packed=packed)
        spooled.append(SpooledBatch(name, each.sequence, each.rows, payload, now_us))
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


def delete_acknowledged(stores: Stores, through: dict[str, int], cluster: str | None) -> None:
    """Delete batches that the cluster has stored; raises StoreError.

    The cluster is noted before: its acknowledgements are the only ones that count from then on.
    """
    if cluster not in {None, stores.spool.cluster}:
        stores.spool.obey(cluster)
    for stream, sequence in through.items():
        stores.spool.delete_through(stream, sequence)

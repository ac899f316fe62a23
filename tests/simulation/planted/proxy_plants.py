"""Faults that are planted in motes and proxies, from the sample to the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from firmware_sim.mote.mote import Mote
from proxy.counting import sample_account
from proxy.counting.sample_account import ReceivedPacket, SampleAccount
from proxy.counting.sample_ledger import SampleLedger
from proxy.fleet import stream_state
from proxy.fleet.stream_state import StreamState
from proxy.motes.packet_numbers import NEXT, Advance, PacketNumbers
from proxy.records.waiting_tuples import MoteWatermark
from proxy.running.unpublished import Unpublished
from proxy.storage import flushing
from proxy.storage.spool import Spool, SpooledBatch
from proxy.storage.stores import CatalogStore
from tests.simulation.planted.plant import Plants, Simulation, nothing, put

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.counting.sample_account import Coverage
    from proxy.fleet.batching import CutBatch
    from proxy.fleet.stream_state import StreamProgress
    from proxy.records.waiting_tuples import MotePosition

PLANTS = Plants(Simulation.PROXIES)


@PLANTS.planted("repeated packets accepted", "each sample of a mote is accepted at most once")
def _repeated_packets() -> None:
    put(PacketNumbers, "is_replayed", lambda *_: False)


@PLANTS.planted("positions of motes not stored", "each sample is accepted at most once, also after a restart")
def _positions_not_stored() -> None:
    put(Spool, "positions", lambda _: {})


@PLANTS.planted("positions before their samples", "a position is on disk with the samples up to it, or not at all")
def _positions_first() -> None:
    append = Spool.append

    def twice(
        self: Spool,
        batches: Sequence[SpooledBatch],
        progress: Iterable[StreamProgress] = (),
        positions: Iterable[MotePosition] = (),
        *more: Any,
        **also: Any,
    ) -> None:
        append(self, (), (), positions)
        append(self, batches, progress, (), *more, **also)

    put(Spool, "append", twice)


@PLANTS.planted("counts before their watermark", "a pane is counted once, also if a restart cuts off what was written")
def _counts_first() -> None:
    put(flushing, "_groups", lambda cut: [[each] for each in cut])


@PLANTS.planted("dropped samples counted as seen", "COMPLETENESS counts samples that find no room")
def _drops_uncounted() -> None:
    put(SampleLedger, "drop", nothing)


@PLANTS.planted("demands forgotten in a restart", "a proxy that starts again goes on with the demands that it had")
def _demands_forgotten() -> None:
    put(CatalogStore, "demands", lambda _: {})


@PLANTS.planted("offers not published again", "a broker that has lost its memory gets all offers of streams again")
def _offers_not_again() -> None:
    # Entries of motes are published again without it, with the next counters: that is not found, and does no harm.
    connected = Unpublished.connected

    def without_offers(self: Unpublished) -> None:
        unoffered = set(self._unoffered)
        connected(self)
        self._unoffered = unoffered

    put(Unpublished, "connected", without_offers)


@PLANTS.planted("mote promises too much", "a mote's watermark is before all samples that it has still to send")
def _promises_too_much() -> None:
    next_low_watermark = Mote._next_low_watermark
    put(
        Mote,
        "_next_low_watermark",
        lambda self, clock_us: next_low_watermark(self, clock_us) + 2 * self.program.period_us,
    )


@PLANTS.planted("watermark of the fastest mote", "a stream's watermark is that of its slowest mote")
def _fastest_mote() -> None:
    def fastest(watermark_us: int | None, mote_watermarks: Iterable[MoteWatermark]) -> int | None:
        known = [each.instant_us for each in mote_watermarks if each.instant_us is not None]
        return max([*known, *([] if watermark_us is None else [watermark_us])], default=None)

    put(stream_state, "advance", fastest)


@PLANTS.planted("watermark before waiting samples", "a batch's watermark is before all samples of later batches")
def _before_waiting() -> None:
    cut = StreamState.cut

    def early(self: StreamState, *given: Any) -> list[CutBatch]:
        batches = cut(self, *given)
        return [replace(each, watermark_us=batches[-1].watermark_us) for each in batches]

    put(StreamState, "cut", early)


@PLANTS.planted("lost packets not counted", "COMPLETENESS counts the samples of packets that were lost")
def _losses_uncounted() -> None:
    advance = PacketNumbers.advance

    def without_losses(self: PacketNumbers, *given: Any, **options: Any) -> Advance:
        found = advance(self, *given, **options)
        return Advance(0, rebooted=True) if found.rebooted else NEXT

    put(PacketNumbers, "advance", without_losses)


@PLANTS.planted("late samples counted as seen", "COMPLETENESS counts samples that come too late")
def _late_later() -> None:
    go_on = SampleAccount._continue

    def on_time(self: SampleAccount, coverage: Coverage, received: ReceivedPacket, *rest: Any) -> None:
        go_on(self, coverage, replace(received, watermark_us=None), *rest)

    put(SampleAccount, "_continue", on_time)


@PLANTS.planted("samples in a mote's memory not counted", "COMPLETENESS counts samples that a reboot takes away")
def _reboots_uncounted() -> None:
    def stop(self: SampleAccount, low_watermark_us: int | None) -> None:
        del low_watermark_us
        if self._coverage is not None:
            self._known_us = sample_account.NEVER_US

    put(SampleAccount, "stop", stop)


@PLANTS.planted("a silent mote's samples not counted", "COMPLETENESS counts the samples of motes that are away")
def _silence_uncounted() -> None:
    counts_until = SampleAccount.counts_until

    def present(self: SampleAccount, until_us: int, low_watermark_us: int | None, clock_us: int, most: int) -> Any:
        known_us = None if low_watermark_us is None else max(low_watermark_us, until_us)
        return counts_until(self, until_us, known_us, max(clock_us, until_us), most)

    put(SampleAccount, "counts_until", present)

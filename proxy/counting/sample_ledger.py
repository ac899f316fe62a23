"""The accounts of one mote: for each demand for completeness, how many samples are expected and missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from protocols.acquisition.needs import DemandClass, Need, NeedKind, needs_of
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from proxy.counting.published_account import PublishedAccount, PublishedTuples
from proxy.counting.sample_account import NEVER_US, Coverage, PaneCount, ReceivedPacket, SampleAccount
from proxy.records.program_routes import Needs
from proxy.records.waiting_tuples import LOWEST_US, Aggregated, PacketTuples


@dataclass(frozen=True, slots=True)
class MoteSnapshot:
    """The state of a mote, as far as its accounts depend on it.

    Parameters
    ----------
    running, desired
        Its program, None if the proxy does not know it, and the one it should run.
    low_watermark_us, clock_us
        Of the mote, as of its last packet.
    active
        Whether a packet was received since the proxy's start, and the mote is not silent.
    resumes
        Whether it is known from before the proxy's restart and has sent nothing since.
    lost_until_us
        Samples stamped before this instant were missing at that restart.
    published
        Of a driven device: what is known of its tuples; None for a mote of Fjord.
    """

    running: SamplingProgram | None
    desired: SamplingProgram
    low_watermark_us: int | None
    clock_us: int
    active: bool = True
    resumes: bool = False
    lost_until_us: int = LOWEST_US
    published: PublishedTuples | None = None


class SampleLedger:
    """The accounts of one mote; empty if no query demands completeness, and then it need not be called at all."""

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        self._accounts: dict[str, SampleAccount | PublishedAccount] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    @property
    def began_us(self) -> Mapping[str, int]:
        """By fingerprint: from when on the mote is due to take samples, of the accounts that have begun."""
        return {fingerprint: each.began_us for fingerprint, each in self._accounts.items() if each.began_us is not None}

    @property
    def lost_until_us(self) -> int:
        """No sample stamped from this instant on is missing so far, of those that queries want counted."""
        begun = [each.lost_until_us for each in self._accounts.values() if each.began_us is not None]
        if begun and len(begun) < len(self._accounts):
            return NEVER_US  # after a restart all accounts count as begun, but the mote takes no samples for some
        return max(begun, default=LOWEST_US)

    def clear(self) -> None:
        """Close all accounts."""
        self._accounts.clear()

    def route(self, needs: Needs, announcement: Announcement, now: MoteSnapshot, watermark_us: int | None) -> None:
        """Open and close accounts for a change of the queries' needs.

        Parameters
        ----------
        needs
            What queries need of the mote from now on.
        announcement
            Of the mote.
        now
            Its state.
        watermark_us
            Of its stream; None before the first.
        """
        demanded = {each.demand.completeness.fingerprint: each for _, classes in needs for each in classes
                    if each.demand.completeness is not None}  # fmt: skip
        if not demanded and not self._accounts:
            return
        before, self._accounts = self._accounts, {}
        for fingerprint, demand in demanded.items():
            need = _own_need(demand, announcement, now.published)
            known = before.get(fingerprint)
            if known is not None and known.need == need:
                self._accounts[fingerprint] = known
            elif (opened := _opened(demand, need, now, watermark_us)) is not None:
                self._accounts[fingerprint] = opened

    def packet_received(
        self, received: ReceivedPacket, program: SamplingProgram | None, desired: SamplingProgram
    ) -> None:
        """Note a packet in sequence, under `program`; None if the proxy does not know that."""
        for account in self._accounts.values():
            coverage = None if program is None else account.covered_by(program)
            if account.began_us is None and not _serves(coverage, account.need, program, desired):
                continue
            account.packet_received(received, coverage)

    def accepted(self, tuples: PacketTuples, watermark_us: int | None) -> None:
        """Note tuples of a driven device that wait for their batch; `watermark_us` is that of the stream."""
        for account in self._accounts.values():
            if isinstance(account, PublishedAccount):
                account.accepted(tuples.samples_us, watermark_us)

    def unaffected(self, clock_us: int, low_watermark_us: int, watermark_us: int | None) -> bool:
        """Return whether a packet in sequence need not be entered: see :meth:`SampleAccount.unaffected`."""
        return all(each.unaffected(clock_us, low_watermark_us, watermark_us) for each in self._accounts.values())

    def stop(self, low_watermark_us: int | None) -> None:
        """Note that the mote rebooted when it had this low watermark."""
        for account in self._accounts.values():
            account.stop(low_watermark_us)

    def drop(self, tuples: PacketTuples) -> None:
        """Note tuples of the mote that were dropped."""
        for each in tuples:
            aggregated = each.aggregated
            for account in self._accounts.values():
                if aggregated is None or aggregated.fingerprint is None:
                    if not account.aggregated:
                        account.lose(each.start_us, each.start_us + 1)
                elif aggregated.fingerprint == account.fingerprint and aggregated.pane_us is not None:
                    if account.need.kind is NeedKind.EVENTS:
                        account.lose(each.start_us, each.start_us + aggregated.pane_us + 1)
                    else:
                        account.lose(each.start_us - aggregated.pane_us + 1, each.start_us + 1)

    def stop_waiting(self, since_us: Mapping[str, int], now: MoteSnapshot) -> None:
        """Expect samples of a mote that has not begun: `since_us` is, by fingerprint, since when others are due."""
        for fingerprint, account in self._accounts.items():
            if account.began_us is None and fingerprint in since_us:
                coverage = account.covered_by(now.desired)
                grid_us = account.need.period_us if coverage is None else coverage.grid_us
                low_watermark_us = LOWEST_US if now.low_watermark_us is None else now.low_watermark_us
                account.begin(max(since_us[fingerprint], account.demanded_us, low_watermark_us), grid_us)

    def counts_until(self, until_us: int, now: MoteSnapshot, most: int) -> Iterator[tuple[int, Aggregated]]:
        """Yield the stamps and counts of the panes that end up to an instant: at most so many of each account."""
        for fingerprint, account in self._accounts.items():
            for count in account.counts_until(until_us, now.low_watermark_us, now.clock_us, most):
                yield count.end_us - 1, _aggregated(fingerprint, account, count)


def _aggregated(fingerprint: str, account: SampleAccount | PublishedAccount, count: PaneCount) -> Aggregated:
    return Aggregated(fingerprint, None, account.pane_us, 0, expected=count.expected, missing=count.missing)


def _opened(
    demand: DemandClass, need: Need, now: MoteSnapshot, watermark_us: int | None
) -> SampleAccount | PublishedAccount | None:
    """Return a new account; None if it is not known how often the mote publishes."""
    demanded_us = LOWEST_US if watermark_us is None else watermark_us
    account = _empty_account(demand, need, now.published, demanded_us)
    if account is None:
        return None
    coverage = None if now.running is None else account.covered_by(now.running)
    if coverage is not None and _serves(coverage, need, now.running, now.desired):
        if now.active and now.low_watermark_us is not None:
            account.begin_covered(coverage, max(now.low_watermark_us, demanded_us))
    elif now.resumes and watermark_us is not None:
        desired = account.covered_by(now.desired)
        grid_us = need.period_us if desired is None else desired.grid_us
        if isinstance(account, SampleAccount):
            account.resume(watermark_us, now.lost_until_us, grid_us)
        elif now.published is not None:
            account.resume(watermark_us, now.lost_until_us, grid_us, now.published.stored_us)
    return account


def _empty_account(
    demand: DemandClass, need: Need, published: PublishedTuples | None, demanded_us: int
) -> SampleAccount | PublishedAccount | None:
    completeness = demand.demand.completeness
    assert completeness is not None  # noqa: S101 - the caller has checked
    if published is None:
        return SampleAccount(need, demand.fingerprint, completeness.pane_us, demanded_us)
    every_us = None
    if published.freely:
        if published.expected_every_us is None:
            return None
        every_us = max(published.expected_every_us, need.period_us)
    return PublishedAccount(need, demand.fingerprint, completeness.pane_us, demanded_us, every_us=every_us)


def _serves(coverage: Coverage | None, need: Need, program: SamplingProgram | None, desired: SamplingProgram) -> bool:
    """Return whether a mote that begins with a program is due to take samples: not if it serves other demands only."""
    return coverage is not None and (coverage.grid_us == need.period_us or program == desired)


def _own_need(demand: DemandClass, announcement: Announcement, published: PublishedTuples | None) -> Need:
    """Return the need of a demand; of a device that publishes by its own rules without a period if none is demanded."""
    default_us = 0 if published is not None and published.freely else announcement.default_period_us
    (need,) = needs_of((demand,), announcement.stream, default_us)
    return need


def tuples_of(
    counts: Iterable[tuple[int, Aggregated]], announcement: Announcement, position: tuple[int, int, int]
) -> PacketTuples | None:
    """Return counts as tuples of the mote's stream; None for no counts.

    Parameters
    ----------
    counts
        By stamp.
    announcement
        Of the mote.
    position
        Boot, sequence and clock of its last packet.
    """
    found = list(counts)
    if not found:
        return None
    starts_us, contents = zip(*found, strict=True)
    boot, sequence, clock_us = position
    row = tuple(announcement.properties.get(each.name) for each in announcement.stream.fields)
    return PacketTuples(
        announcement.mote,
        boot,
        sequence,
        clock_us,
        announcement.default_period_us,
        tuple(starts_us),
        (row,) * len(found),
        tuple(contents),
    )

"""The accounts of one mote: for each demand that asks for completeness, what became of its samples. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from protocols.acquisition.needs import DemandClass, Need, NeedKind, needs_of
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from proxy.coverage import Coverage, coverage_of
from proxy.program_routes import Needs
from proxy.sample_account import PaneCount, ReceivedPacket, SampleAccount
from proxy.waiting_tuples import Aggregated, PacketTuples
from proxy.watermarks import LOWEST_US


@dataclass(frozen=True, slots=True)
class MoteSnapshot:
    """Where a mote stands.

    Parameters
    ----------
    running, desired
        Its program, None if the proxy does not know it, and the one it should run.
    promise_us, clock_us
        What it has promised with its last packet, and when.
    heard
        Whether it was heard since the proxy's start, and is not silent.
    resumes
        Whether it is known from before the proxy's restart and not heard yet.
    """

    running: SamplingProgram | None
    desired: SamplingProgram
    promise_us: int | None
    clock_us: int
    active: bool = True
    resumes: bool = False


class SampleLedger:
    """The accounts of one mote; empty where nobody asks, and then nothing need be told it."""

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        self._accounts: dict[str, SampleAccount] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    @property
    def began_us(self) -> Mapping[str, int]:
        """By form: from when on the mote is due to take samples, of the accounts that have begun."""
        return {form: each.began_us for form, each in self._accounts.items() if each.began_us is not None}

    def clear(self) -> None:
        """Close all accounts."""
        self._accounts.clear()

    def route(self, needs: Needs, announcement: Announcement, now: MoteSnapshot, watermark_us: int | None) -> None:
        """Take note of what queries need from now on.

        Parameters
        ----------
        needs
            What they need of the mote.
        announcement
            What it is.
        now
            Where it stands.
        watermark_us
            Of its stream; None before the first.
        """
        asked = {each.demand.completeness.form: each for _, classes in needs for each in classes
                 if each.demand.completeness is not None}  # fmt: skip
        if not asked and not self._accounts:
            return
        before, self._accounts = self._accounts, {}
        for form, asking in asked.items():
            need = _own_need(asking, announcement)
            known = before.get(form)
            self._accounts[form] = (
                known if known is not None and known.need == need else _opened(asking, need, now, watermark_us)
            )

    def packet_received(
        self, received: ReceivedPacket, program: SamplingProgram | None, desired: SamplingProgram
    ) -> None:
        """Take note of a packet that came in its turn, under `program`; None if the proxy does not know that."""
        for account in self._accounts.values():
            coverage = None if program is None else coverage_of(program, account.need)
            if account.began_us is None and not _serves(coverage, account.need, program, desired):
                continue
            account.packet_received(received, coverage)

    def unaffected(self, clock_us: int, promise_us: int, watermark_us: int | None) -> bool:
        """Return whether a packet that goes on as before need not be entered: see :meth:`SampleAccount.unaffected`."""
        return all(each.unaffected(clock_us, promise_us, watermark_us) for each in self._accounts.values())

    def stop(self, promise_us: int | None) -> None:
        """Take note that the mote began anew after it had promised so much."""
        for account in self._accounts.values():
            account.stop(promise_us)

    def drop(self, tuples: PacketTuples) -> None:
        """Take note of tuples of the mote that were given up."""
        for each in tuples:
            told = each.aggregated
            for account in self._accounts.values():
                if told is None or told.form is None:
                    if not account.aggregated:
                        account.lose(each.start_us, each.start_us + 1)
                elif told.form == account.fingerprint and told.pane_us is not None:
                    if account.need.kind is NeedKind.EVENTS:
                        account.lose(each.start_us, each.start_us + told.pane_us + 1)
                    else:
                        account.lose(each.start_us - told.pane_us + 1, each.start_us + 1)

    def stop_waiting(self, since_us: Mapping[str, int], now: MoteSnapshot) -> None:
        """Take the mote for due though it has not begun: `since_us` says by form since when others are."""
        for form, account in self._accounts.items():
            if account.began_us is None and form in since_us:
                coverage = coverage_of(now.desired, account.need)
                grid_us = account.need.period_us if coverage is None else coverage.grid_us
                promise_us = LOWEST_US if now.promise_us is None else now.promise_us
                account.begin(max(since_us[form], account.demanded_us, promise_us), grid_us)

    def counts_until(self, until_us: int, now: MoteSnapshot, most: int) -> Iterator[tuple[int, Aggregated]]:
        """Yield stamps and contents of what is told of the panes that end up to an instant."""
        for form, account in self._accounts.items():
            for count in account.counts_until(until_us, now.promise_us, now.clock_us, most):
                yield count.end_us - 1, _told(form, account, count)


def _told(form: str, account: SampleAccount, count: PaneCount) -> Aggregated:
    return Aggregated(form, None, account.pane_us, 0, expected=count.expected, missing=count.missing)


def _opened(asking: DemandClass, need: Need, now: MoteSnapshot, watermark_us: int | None) -> SampleAccount:
    """Return a new account."""
    completeness = asking.demand.completeness
    assert completeness is not None  # noqa: S101 - who calls has looked
    demanded_us = LOWEST_US if watermark_us is None else watermark_us
    account = SampleAccount(need, asking.form, completeness.pane_us, demanded_us)
    coverage = None if now.running is None else coverage_of(now.running, need)
    if coverage is not None and _serves(coverage, need, now.running, now.desired):
        if now.active and now.promise_us is not None:
            account.join(coverage, max(now.promise_us, demanded_us))
    elif now.resumes and watermark_us is not None:
        wanted = coverage_of(now.desired, need)
        account.begin(watermark_us, need.period_us if wanted is None else wanted.grid_us)
    return account


def _serves(coverage: Coverage | None, need: Need, program: SamplingProgram | None, desired: SamplingProgram) -> bool:
    """Return whether a mote that begins with a program is due to take samples: not if it does so for others only."""
    return coverage is not None and (coverage.grid_us == need.period_us or program == desired)


def _own_need(asking: DemandClass, announcement: Announcement) -> Need:
    (need,) = needs_of((asking,), announcement.stream, announcement.default_period_us)
    return need


def tuples_of(
    told: Iterable[tuple[int, Aggregated]], announcement: Announcement, position: tuple[int, int, int]
) -> PacketTuples | None:
    """Return what is told as tuples of the mote's stream; None for nothing.

    Parameters
    ----------
    told
        Stamps and contents.
    announcement
        What the mote is.
    position
        Boot, sequence and clock of its last packet.
    """
    found = list(told)
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

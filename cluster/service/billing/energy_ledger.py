"""What motes have spent since their first report: reports of health in, joules out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.service.billing.energy import MoteKey, kind_of, spent_joules
from protocols.acquisition.sensor_traits import has_energy_model
from protocols.power.costs import energy, most_mw
from protocols.wire.catalog import MoteEntry
from protocols.wire.packets import Health
from protocols.wire.programs import SLEEP, SamplingProgram, program_number

MOST_MOTES = 100_000
"""Motes in the ledger; further ones are ignored."""


@dataclass(slots=True)
class Account:
    """One mote.

    Parameters
    ----------
    entry
        With its last report of health.
    health
        That report.
    since_us, until_us
        Real time of its first and its last report.
    joules
        What it has spent in between.
    expected_joules
        What it should have spent, by its proxy's estimate.
    unbilled_joules
        What was spent and not collected yet.
    """

    entry: MoteEntry
    health: Health
    since_us: int
    until_us: int
    joules: float = 0.0
    expected_joules: float = 0.0
    unbilled_joules: float = 0.0


class Ledger:
    """Adds up what motes spend; a core without I/O.

    A report of health is dated by the last packet that the proxy had received when it published the entry, which may be
    some packets after the report; over many reports that evens out.
    """

    def __init__(self, *, most_motes: int = MOST_MOTES) -> None:
        self._most_motes = most_motes
        self.accounts: dict[MoteKey, Account] = {}
        self.implausible_reports = 0
        """Reports by which a mote has spent more than it can; they count as the most it can."""

    def note(self, entry: MoteEntry) -> None:
        """Note a mote's newest entry."""
        health = entry.health
        if health is None or not has_energy_model(entry):
            return
        key = entry.proxy, entry.mote
        account = self.accounts.get(key)
        if account is None:
            if len(self.accounts) < self._most_motes:
                self.accounts[key] = Account(entry, health, entry.heard_us, entry.heard_us)
            return
        elapsed_us = entry.heard_us - account.until_us
        if elapsed_us <= 0 or health == account.health:
            return
        before = account.entry
        profile = kind_of(before, {}).traits.profile
        joules = spent_joules(profile, _program_of(before), account.health, health, elapsed_us)
        most_joules = energy(most_mw(profile), elapsed_us)
        if joules > most_joules:
            joules = most_joules
            self.implausible_reports += 1
        account.joules += joules
        account.unbilled_joules += joules
        account.expected_joules += before.milliwatts * elapsed_us * 1e-9
        account.entry, account.health, account.until_us = entry, health, entry.heard_us

    def collect(self) -> tuple[tuple[MoteEntry, float], ...]:
        """Return what was spent since the last call, by mote."""
        collected = []
        for account in self.accounts.values():
            if account.unbilled_joules:
                collected.append((account.entry, account.unbilled_joules))
                account.unbilled_joules = 0.0
        return tuple(collected)

    @property
    def since_us(self) -> int | None:
        """Real time of the first report of health; None if there is none."""
        return min((account.since_us for account in self.accounts.values()), default=None)

    def measured_mw(self) -> Mapping[MoteKey, float]:
        """Return what motes have drawn on average, in milliwatts, where it is known."""
        return {
            key: account.joules * 1e9 / (account.until_us - account.since_us)
            for key, account in self.accounts.items()
            if account.until_us > account.since_us
        }


def _program_of(entry: MoteEntry) -> SamplingProgram:
    """Return the program of a mote by its entry; it may not have begun the one that it should run."""
    wanted = entry.wanted
    if wanted is None or entry.program == 0:
        return SLEEP
    if program_number(wanted) == entry.program or not entry.period_us:
        return wanted
    # An older program, of which only the period is known.
    return SamplingProgram(wanted.fields or ("unknown",), entry.period_us)

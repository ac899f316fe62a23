"""What `fjord query bill` answers: each running query's share of what motes draw and have spent."""

from __future__ import annotations

import msgspec

from cluster.service.billing.energy_report import Figure


class QueryBill(msgspec.Struct, frozen=True, kw_only=True):
    """What one query pays.

    Parameters
    ----------
    query, motes
        Its name, and how many motes do something for it.
    milliwatts, milliwatts_share
        Of what all motes draw by the model, now.
    joules, joules_share
        Of what they have spent.
    """

    query: str
    motes: int
    milliwatts: Figure
    milliwatts_share: float
    joules: float
    joules_share: float


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays for what. All parts of a sum add up to it.

    Parameters
    ----------
    since_us
        Real time from which on it is known what motes spend; None if it is not.
    motes, measured_motes
        How many there are, and of how many it is known what they have spent.
    queries
        Running ones, the dearest first.
    everybody_milliwatts, everybody_joules
        What motes draw and have drawn that sleep and ask, whoever wants something of them.
    ended_joules
        What was spent for queries that have ended.
    unbilled_joules
        What was spent and cannot be divided any more.
    milliwatts, joules
        In all.
    expected_joules
        What should have been spent by the estimates of proxies.
    methods
        In how many motes shares were found in which way.
    impossible_motes
        How many cannot run what is asked of them by the model; they are in no sum of milliwatts.
    implausible_reports
        How often a mote reported to have spent more than it can; that counts for as much as it can.
    """

    since_us: int | None
    motes: int
    measured_motes: int
    queries: tuple[QueryBill, ...]
    everybody_milliwatts: Figure
    everybody_joules: float
    ended_joules: float
    unbilled_joules: float
    milliwatts: Figure
    joules: float
    expected_joules: float
    methods: dict[str, int]
    impossible_motes: int
    implausible_reports: int = 0

"""What `fjord query bill` answers: each running query's share of what motes draw and have spent."""

from __future__ import annotations

import msgspec

from cluster.service.billing.energy_report import Figure


class QueryBill(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one query.

    Parameters
    ----------
    query, motes
        Its name, and how many motes it demands something of.
    milliwatts, milliwatts_share
        Of what all motes draw by the model, now.
    joules, joules_share
        Of what motes have spent.
    """

    query: str
    motes: int
    milliwatts: Figure
    milliwatts_share: float
    joules: float
    joules_share: float


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """The bill. All parts of a sum add up to it.

    Parameters
    ----------
    since_us
        When the first mote reported what it has spent; None if none has.
    motes, measured_motes
        How many there are with an energy model, and how many have reported what they have spent.
    queries
        Those that run, the most expensive first.
    everybody_milliwatts, everybody_joules
        What motes draw and have drawn in sleep, whatever queries demand.
    ended_joules
        What was spent for queries that have ended.
    unbilled_joules
        What was spent and cannot be divided.
    milliwatts, joules
        In all.
    expected_joules
        What should have been spent by the estimates of proxies.
    methods
        In how many motes shares were found in which way.
    impossible_motes
        How many motes cannot run what queries demand, by the model; they are in no sum of milliwatts.
    implausible_reports
        How often a mote reported to have spent more than it can; that counts as the most it can.
    without_model
        How many devices of other makers there are besides: on mains, or no model says what they draw. They are in no
        sum.
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
    without_model: int = 0

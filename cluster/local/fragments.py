"""What a local host runs of a plan. The only place here that takes a plan apart."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.fjord.placement import Part, parts_of
from cluster.plan.epoch import Plan
from cluster.plan.hosts import Host, hosted_by


@dataclass(frozen=True, slots=True)
class Fragments:
    """The pieces of a plan that have operators of their own.

    Parameters
    ----------
    stateless
        Those that are whole next to the scans.
    stateful
        Those with something behind the exchange.
    """

    stateless: tuple[Part, ...]
    stateful: tuple[Part, ...]


def fragments_of(plan: Plan) -> Fragments:
    """Return what runs of a plan."""
    return Fragments(parts_of(hosted_by(plan, Host.STATELESS)), parts_of(hosted_by(plan, Host.STATEFUL)))

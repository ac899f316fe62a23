"""How a query reads a stream: what it allows, sees or needs of its samples, besides which columns and how often.

Parts of :class:`cluster.language.algebra.Source`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Tolerance(msgspec.Struct, frozen=True):
    """The error a query's author allows on a field (``WITHIN``)."""

    field: str
    error: float


class Detector(msgspec.Struct, frozen=True):
    """Sees events in the samples of each sensor: from `field` rising to `above` until it falls to `below`."""

    field: str
    above: float
    below: float


class History(msgspec.Struct, frozen=True):
    """What a query reads of a stream's past before it goes on live (``SINCE``).

    Parameters
    ----------
    back_us
        How far before the stream's newest tuples it begins; None for all that is stored.
    begins_us
        The instant that this is: fixed when the query begins, None before.
    epoch
        The epoch with which the query begins. What it has read of the past no other query has, so nothing is folded
        with it.
    """

    back_us: Annotated[int, Meta(ge=1)] | None
    begins_us: int | None = None
    epoch: int = 0


class Unchanged(msgspec.Struct, frozen=True):
    """Whether samples that equal the one before may stay away, as a query only asks what held for how long.

    Parameters
    ----------
    silence_us
        For how long; 0 if each is needed.
    why_not
        Why it is; empty if it is not.
    """

    silence_us: Annotated[int, Meta(ge=0)]
    why_not: str = ""

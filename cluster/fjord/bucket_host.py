"""The stateful operators of one bucket, micro-batch by micro-batch, independent of where the rows come from.

A host of buckets keeps the operators that it has made, over micro-batches and over epochs:

    the plan                            a fragment that is the same in both goes on as it is; one that changed goes on
                                        from its state in memory
    the heading of the bucket's state   says which fragments another process has brought further meanwhile; they are
                                        read from the store
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import polars as pl

from cluster.fjord.answers import HostOutput
from cluster.fjord.at_work import LOADING, NOW
from cluster.fjord.counters import CounterReports, Counters, Totals
from cluster.fjord.exchange import MicroBatchControl
from cluster.fjord.hosted_fragment import HostedFragment
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.saved_state import HEADING, Heading, Store, Versions, read_heading, write_heading
from cluster.physical.nodes import Fragment

KEPT_BUCKETS = 64


class VersionedTables(Tables, Protocol):
    """Tables of relations that change."""

    def advance(self, versions: Mapping[str, int]) -> None:
        """Use newer versions, given by identity of a relation."""
        ...


@dataclass(slots=True)
class HostedBucket:
    """The fragments of one bucket in the order of the plan, by identity, and what they share."""

    tables: VersionedTables
    reports: CounterReports
    plan: Sequence[Fragment] | None = None
    fragments: dict[str, HostedFragment] = field(default_factory=dict)
    made: int = 0
    """How often a plan was the reason to make operators of a fragment."""
    outgrown: bool = False
    """Whether the store may hold values of operators that their fragments do not have any more."""


Kept = OrderedDict[tuple[Hashable, ...], HostedBucket]
"""Buckets whose operators have been made, by what they were made for; the one used last comes last."""


class BucketHost:
    """Runs the stateful operators of buckets, micro-batch by micro-batch.

    Parameters
    ----------
    fragments
        The fragments of an epoch's plan.
    buckets
        How many buckets there are.
    tables
        Makes what a new bucket's tuples are looked up in.
    kept
        A store of buckets whose operators have been made.
    key
        Distinguishes this host's buckets from others that are kept there.
    most_value_bytes
        A fragment that keeps a value larger than this is stopped; 0 for no limit.
    clock
        Seconds that only go forward: for how often errors are repeated, and counters are reported.
    """

    def __init__(
        self,
        fragments: Callable[[int], Sequence[Fragment]],
        buckets: int,
        tables: Callable[[], VersionedTables],
        kept: Kept,
        *,
        key: tuple[Hashable, ...] = (),
        most_value_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_value_bytes = most_value_bytes
        self.too_large: dict[str, str] = {}
        """Fragments that were stopped in the last micro-batch as they keep too much, and why."""
        self._fragments = fragments
        self._buckets = buckets
        self._tables = tables
        self._kept = kept
        self._key = key
        self._clock = clock

    def process(
        self,
        bucket: int,
        control: MicroBatchControl,
        arrived: Mapping[str, Sequence[pl.DataFrame]],
        store: Store | None,
        upstream: Mapping[str, Totals] = MappingProxyType({}),
        *,
        stopped: Mapping[str, str] = MappingProxyType({}),
    ) -> HostOutput:
        """Feed one micro-batch to a bucket's operators and save what changed.

        Parameters
        ----------
        bucket
            Its number.
        control
            Control of the micro-batch.
        arrived
            By exchange: the bucket's rows, from each part of the micro-batch in turn; those of a part in start order.
        store
            The bucket's state; None if it is not saved: then the operators that were made are all there is.
        upstream
            The counters of operators next to the scans, if this bucket reports them.
        stopped
            By fragment: why it is not to be computed. It stays in the state that the store holds.
        """
        key = (*self._key, bucket)
        # It is kept again when all is saved: after an error the operators may stand anywhere.
        hosted = self._kept.pop(key, None) or HostedBucket(self._tables(), CounterReports(self._clock))
        hosted.tables.advance(control.relations)
        heading = Heading() if store is None else read_heading(store)
        versions = heading.versions
        plan = self._fragments(control.epoch)
        if plan is not hosted.plan:
            here = [each for each in plan if each.in_bucket(bucket, self._buckets)]
            _follow(hosted, here, None if store is None else versions or {}, self._clock)
            hosted.plan = plan
        if store is not None:
            _catch_up(hosted, versions, store, stopped)
            for identity, each in hosted.fragments.items():
                each.unnamed = heading.unnamed.get(identity, {})
        found: dict[str, list[pl.DataFrame]] = {}
        for identity, each in hosted.fragments.items():
            NOW.begin(identity, since=each.since)
            found[identity] = [*each.run(control, arrived), *each.errors(control, bucket, self._buckets)]
        if store is not None:
            failed = {identity for identity, each in hosted.fragments.items() if each.failed}
            new_plan = control.previous_epoch != control.epoch
            now = _save(hosted, versions, store, new_plan=new_plan, most_bytes=self._most_value_bytes)
            self.too_large = {}
            for identity, each in hosted.fragments.items():
                if each.stopped is not None and identity not in failed:
                    # Its state stays as it was, so what it has answered would come again.
                    self.too_large[identity] = each.stopped
                    found[identity] = list(each.errors(control, bucket, self._buckets))
            unnamed = {identity: lacks for identity, each in hosted.fragments.items() if (lacks := each.unnamed)}
            if (now, unnamed) != heading:
                write_heading(store, now, unnamed)
        hosted.reports.add(upstream)
        self._keep(key, hosted)
        return HostOutput([answers for each in found.values() for answers in each], _counters(hosted))

    def _keep(self, key: tuple[Hashable, ...], hosted: HostedBucket) -> None:
        self._kept[key] = hosted
        while len(self._kept) > max(KEPT_BUCKETS, self._buckets):
            self._kept.popitem(last=False)


def _follow(
    hosted: HostedBucket, plan: Sequence[Fragment], versions: Versions | None, clock: Callable[[], float]
) -> None:
    """Go on with a plan: only operators of fragments that are new or have changed are made.

    Parameters
    ----------
    hosted
        The bucket.
    plan
        The fragments of the plan that the bucket has work for.
    versions
        The versions of what the store holds; None if there is no store.
    clock
        As in :class:`BucketHost`.
    """
    before, hosted.fragments = hosted.fragments, {}
    for fragment in plan:
        known = before.pop(fragment.identity, None)
        if known is not None and (known.fragment is fragment or known.fragment == fragment):
            hosted.fragments[fragment.identity] = known
            continue
        made = hosted.fragments[fragment.identity] = HostedFragment(fragment, hosted.tables, clock)
        hosted.made += 1
        if known is None:
            hosted.outgrown |= versions is not None and fragment.identity in versions
            continue
        hosted.outgrown |= not known.names <= made.names
        hosted.reports.add(known.take_counters())
        if not known.failed and (versions is None or known.version == versions.get(fragment.identity)):
            made.continue_from(known)
    for gone in before.values():
        hosted.reports.add(gone.take_counters())


def _catch_up(hosted: HostedBucket, versions: Versions | None, store: Store, stopped: Mapping[str, str]) -> None:
    """Bring operators that have failed, or whose fragment was run elsewhere meanwhile, to the state of the store."""
    for identity, each in hosted.fragments.items():
        NOW.begin(identity, LOADING, since=each.since)
        stored = None if versions is None else versions.get(identity)
        if identity in stopped:
            each.stopped, each.version = stopped[identity], stored
            continue
        if versions is None or each.failed or each.version != stored:
            hosted.reports.add(each.take_counters())
            each.load(store if versions is None or stored is not None else None, stored)


def _save(
    hosted: HostedBucket, versions: Versions | None, store: Store, *, new_plan: bool, most_bytes: int
) -> Versions:
    """Write what has changed, and remove the values of operators that a new plan does not have; return the versions."""
    version = uuid.uuid4().bytes
    for each in hosted.fragments.values():
        if not each.failed:
            NOW.begin(each.fragment.identity, since=each.since)
            each.save(store, version, new_plan=new_plan, most_bytes=most_bytes)
        if versions is None and each.version is None:
            each.version = version  # of the values that it had before there were versions
    now = {identity: each.version for identity, each in hosted.fragments.items() if each.version is not None}
    if new_plan and (hosted.outgrown or versions is None or versions.keys() - hosted.fragments.keys()):
        names = {HEADING}.union(*(each.names for each in hosted.fragments.values()))
        for name in set(store.names()) - names:
            store.remove(name)
    hosted.outgrown = False
    return now


def _counters(hosted: HostedBucket) -> Counters:
    """Return what operators did, if that is to be reported: now and then, or because one has failed."""
    if not hosted.reports.due and not any(each.failed for each in hosted.fragments.values()):
        return {}
    for each in hosted.fragments.values():
        hosted.reports.add(each.take_counters())
    return hosted.reports.report()

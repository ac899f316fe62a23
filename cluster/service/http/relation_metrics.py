"""Metrics of relations; the number of relations is bounded, so that their names can be labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cluster.relations.freshness import State

if TYPE_CHECKING:
    from prometheus_client import Metric

    from cluster.service.catalog.relation_store import RelationStore


def relation_metrics(store: RelationStore) -> Iterable[Metric]:
    """Return the present metrics of all relations.

    Parameters
    ----------
    store
        The relations.
    """
    now = store.clock()
    age = GaugeMetricFamily(
        "fjord_relation_age_seconds", "Time since a relation was last known to equal its source", labels=["relation"]
    )
    rows = GaugeMetricFamily("fjord_relation_rows", "Rows of a relation's newest version", labels=["relation"])
    fresh = GaugeMetricFamily(
        "fjord_relation_fresh", "1 while a relation's source can be read, else 0", labels=["relation"]
    )
    failures = CounterMetricFamily(
        "fjord_relation_refresh_failures_total", "Times a relation's source could not be read", labels=["relation"]
    )
    versions = CounterMetricFamily(
        "fjord_relation_versions_total", "Versions committed since the cluster started", labels=["relation"]
    )
    for relation in store.all():
        label = [relation.name]
        if (seconds := relation.freshness.age(now)) is not None:
            age.add_metric(label, seconds)
        if relation.last is not None:
            rows.add_metric(label, relation.last.rows)
        fresh.add_metric(label, float(relation.freshness.state(now) is State.FRESH))
        failures.add_metric(label, relation.failures_total)
        versions.add_metric(label, relation.versions_total)
    return age, rows, fresh, failures, versions

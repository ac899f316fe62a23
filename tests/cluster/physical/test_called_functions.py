"""A fragment knows the functions of users that its queries call: else their processes would be ended as unused."""

from __future__ import annotations

from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan
from cluster.plan.names_read import functions_of
from tests.cluster.functions.declared import FUNCTIONS
from tests.cluster.local.host_cases import planned


def test_a_fragment_calls_what_its_queries_call() -> None:
    queries = planned()
    called = {query.identity: functions_of(query.node) for query in queries}
    assert frozenset().union(*called.values()) <= frozenset(FUNCTIONS)
    assert sum(map(bool, called.values())) > 1
    for fragment in lower(Plan(1, queries)).fragments:
        assert fragment.functions == frozenset().union(*(called[each.identity] for each in fragment.subscribers))

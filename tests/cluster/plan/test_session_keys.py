"""By which keys a plan with sessions is spread over buckets: all tuples of a session, and of a group, meet in one."""

from __future__ import annotations

import pytest

from cluster.operators import Node, SessionWindow
from cluster.operators.columns import QUERY_GROUP
from cluster.operators.walks import nodes_of
from cluster.operators.window_shapes import Session
from cluster.physical.rules.folding import marked
from cluster.plan.pipelines import partition_keys
from tests.cluster.plan.plans import A, call, grouped, pick, where, window

SESSIONS = SessionWindow(A, ("x",), Session(5, 50))
BOTH = SessionWindow(where(A, '"y" > 1'), ("y", "x"), Session(5, 50))


@pytest.mark.parametrize(("plan", "keys"), [
    (SESSIONS, ("x",)),
    (where(pick(SESSIONS, z='"y" + 1'), '"z" > 1'), ("x",)),
    (grouped(SESSIONS, "x", call("count")), ("x",)),
    (grouped(BOTH, "xy", call("count")), ("y", "x")),
    (pick(grouped(pick(SESSIONS, k='"x"'), "k", call("count")), n='"count"'), ("x",)),
    # groups that do not have all keys, or other values of them
    (grouped(BOTH, "x", call("count")), ()),
    (grouped(SESSIONS, "", call("count")), ()),
    (grouped(pick(SESSIONS, x='"x" % 2'), "x", call("count")), ()),
    (grouped(pick(SESSIONS, x='"y"'), "x", call("count")), ()),
    # what remembers tuples of other keys
    (window(grouped(SESSIONS, "x", call("count")), 5), ()),
    (grouped(grouped(SESSIONS, "x", call("count")), "x", call("sum", "count")), ()),
    (SessionWindow(A, (), Session(5, 50)), ()),
    (SessionWindow(SESSIONS, ("x",), Session(5, 50)), ()),
])  # fmt: skip
def test_sessions_are_spread_by_their_keys(plan: Node, keys: tuple[str, ...]) -> None:
    assert partition_keys(plan) == keys


def test_queries_that_are_folded_have_sessions_of_their_own() -> None:
    (window,) = (each for each in nodes_of(marked(SESSIONS, (QUERY_GROUP,))) if isinstance(each, SessionWindow))
    assert window.keys == ("x", QUERY_GROUP.name)

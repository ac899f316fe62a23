"""Where a micro-batch ends: plans take effect at their positions, however the stream is cut.

epoch      1            2          3
versions   |----10------|----15----|---->
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.operators import Source
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.spark.offsets import Offset, Reader, begins_between, from_spark, next_offset
from protocols.wire.streams import FieldType


def query(name: str, stream: str) -> PlannedQuery:
    return PlannedQuery(name, 1, Source(stream, (Column("speed", FieldType.REAL),)))


def plan(epoch: int, queries: tuple[PlannedQuery, ...], positions: dict[str, int]) -> PhysicalPlan:
    return lower(Plan(epoch, queries, positions))


def reader(plans: list[PhysicalPlan], latest: dict[str, int], rows: int = 1) -> Reader:
    return Reader(
        plan=lambda epoch: plans[epoch] if epoch < len(plans) else None,
        latest=lambda stream, known: max(known, latest[stream]),
        rows=lambda stream, version: rows,
    )


ONE = plan(1, (query("a", "s"),), {"s": 3})
TWO = plan(2, (query("a", "s"), query("b", "s")), {"s": 10})
OTHER = plan(2, (query("a", "s"), query("b", "t")), {"s": 10, "t": 5})
NONE = plan(3, (), {"s": 15})


def test_nothing_to_do_without_queries() -> None:
    assert next_offset(Offset(), reader([NOTHING], {"s": 9}), max_rows=None) == Offset()


def test_first_query_begins_at_its_position() -> None:
    found = next_offset(Offset(), reader([NOTHING, ONE], {"s": 3}), max_rows=None)
    assert found == Offset(1, {"s": 3})
    found = next_offset(Offset(), reader([NOTHING, ONE], {"s": 9}), max_rows=None)
    assert found == Offset(1, {"s": 9})
    assert begins_between(Offset(), found, reader([NOTHING, ONE], {}).plan) == {"s": 3}


def test_old_plan_holds_up_to_the_new_ones_position() -> None:
    plans = reader([NOTHING, ONE, TWO], {"s": 20})
    assert next_offset(Offset(1, {"s": 4}), plans, max_rows=None) == Offset(1, {"s": 10})
    assert next_offset(Offset(1, {"s": 10}), plans, max_rows=None) == Offset(2, {"s": 20})


def test_a_new_stream_begins_at_its_position() -> None:
    plans = reader([NOTHING, ONE, OTHER], {"s": 12, "t": 8})
    found = next_offset(Offset(1, {"s": 10}), plans, max_rows=None)
    assert found == Offset(2, {"s": 12, "t": 8})
    assert begins_between(Offset(1, {"s": 10}), found, plans.plan) == {"s": 10, "t": 5}


def test_several_plans_at_one_position_are_one_step() -> None:
    again = replace(TWO, epoch=3)
    found = next_offset(Offset(1, {"s": 10}), reader([NOTHING, ONE, TWO, again], {"s": 10}), max_rows=None)
    assert found == Offset(3, {"s": 10})


def test_the_plan_after_the_last_query_begins_at_its_position() -> None:
    plans = reader([NOTHING, ONE, TWO, NONE], {"s": 20})
    assert next_offset(Offset(2, {"s": 12}), plans, max_rows=None) == Offset(2, {"s": 15})
    assert next_offset(Offset(2, {"s": 15}), plans, max_rows=None) == Offset(3, {})


def test_rows_bound_a_micro_batch_but_it_always_moves() -> None:
    plans = reader([NOTHING, ONE], {"s": 9}, rows=100)
    assert next_offset(Offset(1, {"s": 3}), plans, max_rows=250) == Offset(1, {"s": 6})
    assert next_offset(Offset(1, {"s": 3}), plans, max_rows=1) == Offset(1, {"s": 4})


def test_spark_stores_it_as_plain_values() -> None:
    offset = Offset(2, {"s": 4})
    assert offset.to_spark() == {"epoch": 2, "versions": {"s": 4}, "relations": {}}
    assert from_spark(offset.to_spark()) == offset


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 4), min_size=1, max_size=30), st.data())
def test_each_version_is_read_once_under_the_plan_of_its_place(
    gaps: list[int], arrivals: list[int], data: st.DataObject
) -> None:
    positions = [sum(gaps[: place + 1]) for place in range(len(gaps))]
    plans = [NOTHING, *(plan(place + 1, (query("a", "s"),), {"s": at}) for place, at in enumerate(positions))]
    latest, known, offset = 0, 1, Offset()
    read: dict[int, int] = {}
    for arrived in arrivals:
        latest += arrived
        # A plan is known only once the stream has come to its position.
        while known < len(plans) and plans[known].positions["s"] <= latest and data.draw(st.booleans()):
            known += 1
        access = reader(plans[:known], {"s": latest})
        after = next_offset(offset, access, max_rows=data.draw(st.none() | st.integers(1, 3)))
        begins = begins_between(offset, after, access.plan)
        for version in range(begins.get("s", 0) + 1, after.versions.get("s", 0) + 1):
            assert version not in read
            read[version] = after.epoch
        offset = after
    if read:
        assert sorted(read) == list(range(min(read), max(read) + 1))
        for version, epoch in read.items():
            assert plans[epoch].positions["s"] < version

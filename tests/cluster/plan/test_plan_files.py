"""Plan files: every epoch can be read again, from any process, however queries came and went."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import PlanError
from cluster.language.algebra import Column, Filter, Source
from cluster.language.written_scalars import read_scalar
from cluster.plan.epoch import FORMAT, WHOLE_EVERY, Plan, PlanFiles, PlannedQuery
from protocols.streams import FieldType

SOURCE = Source("s", (Column("x", FieldType.INTEGER),))


def query(number: int) -> PlannedQuery:
    return PlannedQuery(f"q{number}", number, Filter(SOURCE, read_scalar(f'"x" > {number}', FieldType.BOOLEAN)))


def history(steps: list[int]) -> list[Plan]:
    """A plan per step: 0 adds a query, another number drops the query at that place, if there is one."""
    plans = [Plan(1)]
    for step in steps:
        before, epoch = plans[-1], plans[-1].epoch + 1
        kept = (*before.queries, query(epoch))
        if step and step <= len(before.queries):
            kept = before.queries[: step - 1] + before.queries[step:]
        plans.append(Plan(epoch, kept, {"s": epoch}))
    return plans


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, 5), max_size=2 * WHOLE_EVERY + 5), st.data())
def test_every_epoch_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], data: st.DataObject
) -> None:
    folder, plans = tmp_path_factory.mktemp("plans"), history(steps)
    writer = PlanFiles(folder)
    for plan in plans:
        writer.write(plan)
        if data.draw(st.integers(0, 9)) == 0:
            writer = PlanFiles(folder)  # the cluster was restarted
    reader = PlanFiles(folder)
    for plan in data.draw(st.permutations(plans))[:20]:
        assert reader.read(plan.epoch) == plan
        assert PlanFiles(folder).read(plan.epoch) == plan


def test_the_thousandth_query_costs_no_more_than_the_tenth(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    for plan in history([0] * 300):
        files.write(plan)
    sizes = {plan: files.path(plan).stat().st_size for plan in range(2, 300) if plan % WHOLE_EVERY}
    assert max(sizes.values()) < 1.1 * sizes[10]


def test_a_file_of_another_format_is_refused_with_a_way_out(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    files.write(Plan(1))
    old = files.path(1).read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}')
    files.path(1).write_text(old)
    with pytest.raises(PlanError, match=f"format {FORMAT + 1}") as caught:
        PlanFiles(tmp_path).read(1)
    assert "new data folder" in str(caught.value.hint)
    files.path(1).write_text('{"epoch": 1, "queries": [], "positions": {}, "format": 1}')
    with pytest.raises(PlanError, match="has format 1, this program reads formats 2, 3 and 4"):
        PlanFiles(tmp_path).read(1)

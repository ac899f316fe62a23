"""The loads of ``fjord bench``, the stage that limits them, and the table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.sizing.command import app
from cluster.sizing.loads import DEFAULT_LOADS, EVERY_SAMPLE, Load, LoadError, parse_load, query_texts
from cluster.sizing.measuring import (
    PARTS,
    Backlog,
    Delays,
    Flow,
    Measurement,
    SeenDelays,
    Use,
    WatchedProcesses,
    bytes_below,
    limiting_stage,
)
from cluster.sizing.sizing_table import HEADINGS, as_json, markdown, plot, table_rows
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("lane", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
    ),
)
STEADY = Flow(seconds=20.0, sampled_rows=2_000, stored_rows=2_000, proxy_cores=0.2, commits=80)

loads = st.builds(
    Load, st.integers(1, 100_000), st.integers(1, 300), st.sampled_from((1_000, 250_000, 60_000_000)), st.booleans()
)


@given(loads)
def test_a_load_is_read_as_it_is_written(load: Load) -> None:
    assert parse_load(load.text) == load


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("many", "no load"),
        ("0x3", "at least one"),
        ("3x0", "at least one"),
        ("100001x3", "at most 100,000 motes"),
        ("3x10001", "10,000 queries"),
        ("3x3@soon", "soon"),
        ("3x3@2h", "between 1ms and 1m"),
    ],
)
def test_a_faulty_load_is_refused_with_the_form_that_is_expected(text: str, expected: str) -> None:
    with pytest.raises(LoadError) as refused:
        parse_load(text)
    assert expected in f"{refused.value.message} {refused.value.hint}"
    result = CliRunner().invoke(app, ["--load", text])
    assert isinstance(result.exception, LoadError)


@given(loads)
def test_a_load_has_as_many_queries_as_it_says(load: Load) -> None:
    texts = query_texts(load)
    assert len(texts) == load.queries
    assert (texts[0] == EVERY_SAMPLE) == load.every_sample


def test_the_queries_of_a_load_are_accepted() -> None:
    catalog = Catalog.of([TRAFFIC])
    for text in query_texts(Load(1, 200, every_sample=True)):
        translate(text, catalog)


@pytest.mark.parametrize(
    ("flow", "before", "after", "stage"),
    [
        (STEADY, Backlog(), Backlog(0.4, 0.9, 4), None),
        (STEADY, Backlog(5.0, 5.0, 50), Backlog(5.0, 5.0, 50), None),
        (STEADY, Backlog(), Backlog(spooled_seconds=3.0, unread_seconds=3.0, unpublished_commits=99), "ingest"),
        (STEADY, Backlog(), Backlog(unread_seconds=3.0, unpublished_commits=99), "Spark"),
        (STEADY, Backlog(), Backlog(unpublished_commits=99), "publisher"),
        (Flow(20.0, 2_000, 1_500, 0.95, 80), Backlog(), Backlog(), "proxy"),
        (Flow(20.0, 2_000, 1_500, 0.3, 80), Backlog(), Backlog(), "motes or broker"),
        (Flow(20.0, None, 1_500, 0.95, 80), Backlog(), Backlog(), None),
    ],
)
def test_the_first_stage_behind_which_work_piles_up_limits(
    flow: Flow, before: Backlog, after: Backlog, stage: str | None
) -> None:
    assert limiting_stage(flow, before, after) == stage


def test_processor_time_of_ended_processes_counts_on() -> None:
    watched = WatchedProcesses({"proxy": os.getpid()})
    before = watched.use()["proxy"]
    watched._seconds[2**30] = "proxy", 7.0  # a child that has ended since the last look
    after = watched.use()["proxy"]
    assert after.processor_seconds >= before.processor_seconds + 7.0
    assert after.memory_bytes > 0


def test_the_use_of_two_processes_adds_up() -> None:
    assert Use(1.0, 10, 1.0) + Use(2.0, 5, 2.0) == Use(3.0, 15, 2.0)


def test_the_size_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "one").write_bytes(b"x" * 10)
    (tmp_path / "inner" / "two").write_bytes(b"x" * 32)
    assert bytes_below(tmp_path) == 42
    assert bytes_below(tmp_path / "none") == 0


DELAYS = Delays(0.21, 0.4, 0.11, 0.2, 0.1, 0.3)


def test_a_delay_is_divided_where_the_proxy_knows_that_the_sample_is_complete() -> None:
    seen = SeenDelays()
    seen.answer(500_000, 1.0)  # nothing is known of its batch
    for watermark_us, at in ((1_000_000, 1.25), (1_000_000, 1.5), (3_000_000, 4.0), (2_000_000, 4.5)):
        seen.batch(watermark_us, at)
    seen.answer(500_000, 5.0)  # complete before batches were noted, for all that is known
    assert seen.found() is None
    seen.answer(3_000_000, 5.0)  # the watermark has not passed it
    assert seen.found() is None
    seen.answer(1_000_000, 4.25)
    assert seen.found() == Delays(3.25, 3.25, 3.0, 3.0, 0.25, 0.25)
    seen.answer(2_999_999, 4.75)
    found = seen.found()
    assert found is not None
    assert (found.p99, found.median_for_motes, found.p99_after) == (3.25, pytest.approx(2.0000005), 0.75)
    seen.forget_answers()
    assert seen.found() is None


def measurement(load: Load, limit: str | None = None) -> Measurement:
    cores = dict.fromkeys(PARTS, 0.25)
    memory = dict.fromkeys(PARTS, 2**28)
    return Measurement(load, 20.0, 300.0, 12.5, cores, memory, 1_000.0, DELAYS, limit)


def test_the_table_has_a_row_for_each_load(tmp_path: Path) -> None:
    found = [measurement(DEFAULT_LOADS[0]), measurement(DEFAULT_LOADS[2], "Spark")]
    rows = table_rows(found)
    assert [dict(zip(HEADINGS, row, strict=True))["limit"] for row in rows] == ["", "Spark"]
    assert dict(zip(HEADINGS, rows[0], strict=True)) == {
        "motes": "64", "samples/s": "300", "queries": "3", "answers/s": "12",
        "broker, cores": "0.25", "proxy, cores": "0.25", "cluster, cores": "0.25", "Spark, cores": "0.25",
        "memory": "1.0 GiB", "disk per day": "82.0 MiB", "median delay": "0.21 s",
        "of it for motes": "0.11 s", "limit": "",
    }  # fmt: skip
    assert markdown(found).count("\n") == 4
    assert [each["load"] for each in as_json(found)["loads"]] == ["64x3", "300x100"]
    plot(found, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")

"""A query with SINCE answers as if it had run from that instant on, whenever it is added and however streams are cut.

stored      |--- version 1 ---|--- 2 ---|--- 3 ---|        4 ...
SINCE               |================================       one scan of the history, in pieces
live                                              |=====>   versions after the one where the last piece was read
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.physical.nodes import Host
from cluster.plan.pane_query import pane_query_of
from cluster.plan.push_down import event_fingerprint, pushed_of
from tests.cluster.published_tuples import Published, Stamped, columns_beside, stored_rows, taken
from tests.cluster.spark.reader_run import ReaderRun, Row, begins, coverage
from tests.cluster.spark.test_folding import CONDITIONS, EACH, OF_TWO, TEMPLATES

ROWS = st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abcd"), st.integers(0, 9)), max_size=40)
PAST = " SINCE {} US AGO"
ONE = st.tuples(st.sampled_from(TEMPLATES), st.sampled_from(CONDITIONS)).map(
    lambda both: both[0].format(both[1]).replace("FROM traffic", "FROM traffic{0}")
)
"""Queries over one stream, with a place for their SINCE clause."""


def of_two(template: str, left: str, right: str) -> str:
    """Return a query over both streams."""
    text = template.format(left.format("t"), right.format("u"))
    text = text.replace("FROM traffic t", "FROM traffic{0} t").replace("FROM traffic u", "FROM other{1} u")
    return text.replace(", traffic u", ", other{1} u").replace("JOIN traffic u", "JOIN other{1} u")


ZIPPED = "SELECT t.sensor, u.speed FROM traffic t ZIP JOIN traffic u WITHIN 9 US ON t.sensor = u.sensor"
TWO = st.tuples(st.sampled_from([*OF_TWO, ZIPPED]), st.sampled_from(EACH), st.sampled_from(EACH)).map(
    lambda three: of_two(*three)
)


def run_of_one_query(folder: Path, sql: str, rows: dict[str, list[tuple[list[Row], int]]]) -> ReaderRun:
    """The oracle: the query is there before the first tuple, and gets no other tuples than it has to read."""
    run = ReaderRun(folder, max_rows=1_000_000)
    run.add("q", sql)
    for stream, versions in rows.items():
        for version, watermark in versions:
            run.append(stream, version, watermark)
    run.drain()
    return run


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_query_answers_as_if_it_had_run_since_its_instant(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    stored: dict[str, list[tuple[list[Row], int]]] = {"traffic": [], "other": []}
    rows = {stream: data.draw(ROWS, label=stream) for stream in stored}
    run = ReaderRun(
        tmp_path_factory.mktemp("run"),
        history_rows=data.draw(st.sampled_from([1, 3, 10, 1_000]), label="rows of history"),
        max_rows=data.draw(st.sampled_from([1, 5, 1_000]), label="rows"),
    )
    run.add("plain", "SELECT sensor, speed FROM traffic")
    added = {}
    dropped = set()
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, 99), max_size=4), label="cuts")), 100]
    for low, high in pairwise(cuts):
        for stream, versions in stored.items():
            version = data.draw(st.permutations([row for row in rows[stream] if low <= row[0] < high]))
            # Rows that lie ahead of the watermark come in this version, too.
            ahead = [row for row in rows[stream] if row[0] >= high and row[2] > 7]
            rows[stream] = [row for row in rows[stream] if row not in ahead]
            run.append(stream, [*version, *ahead], high)
            versions.append(([*version, *ahead], high))
            if data.draw(st.booleans(), label="compact"):
                run.compact(stream)
        while len(added) < 3 and data.draw(st.booleans(), label="add a query"):
            text = data.draw(ONE | TWO, label="query")
            past = data.draw(st.sampled_from([PAST.format(7), PAST.format(30), " SINCE BEGINNING", PAST.format(500)]))
            pasts = data.draw(st.sampled_from([(past, past), (past, ""), (PAST.format(12), past)]), label="pasts")
            name = f"q{len(added)}"
            added[name] = run.add(name, text.format(*pasts)), text.format("", ""), len(stored["traffic"])
            if data.draw(st.integers(0, 9)) == 0:
                run.drop(name)
                dropped.add(name)
        for _ in range(data.draw(st.integers(0, 3), label="micro-batches")):
            run.step(crash=data.draw(st.booleans(), label="crash"))
    for stream, versions in stored.items():
        run.append(stream, [], 300)
        versions.append(([], 300))
    run.drain()
    for name, (query, text, position) in added.items():
        if name in dropped:
            continue
        seen = {}
        for stream, versions in stored.items():
            try:
                first = begins(query, stream)
                seen[stream] = [([row for row in some if row[0] >= first], mark) for some, mark in versions]
            except KeyError:  # live only: what was stored before the query began is not part of it
                seen[stream] = [(some if at >= position else [], mark) for at, (some, mark) in enumerate(versions)]
        alone = run_of_one_query(tmp_path_factory.mktemp("alone"), text, seen)
        assert coverage(run.rows.get(name, [])) == coverage(alone.rows.get("q", [])), (name, text)
        starts = [start for start, _, _ in run.rows.get(name, [])]
        answered_late = any(word in text for word in ("GROUP BY", "EXCEPT", "EXISTS"))
        assert starts == sorted(starts) or answered_late, "in start order"
    everything = sorted(row for version, _ in stored["traffic"] for row in version if row[2] % 3)
    plain = sorted((start, row["sensor"], row["speed"]) for start, _, row in run.rows.get("plain", []))
    assert plain == everything, "other queries are not affected"


@st.composite
def published(draw: st.DrawFn) -> list[Stamped]:
    """Draw tuples in the order of arrival, some of them published, each at most 9 us behind one before it."""
    drawn = draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), st.sampled_from(["m", "n", None]))))
    found: list[Stamped] = []
    for number, (at, _, mote) in enumerate(sorted(drawn, key=lambda each: each[0] + each[1])):
        values = ("abcd"[at % 4], number)
        found.append((at, values if mote is None else Published(values, mote, 0 if mote == "m" else 11)))
    return found


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_history_has_the_first_published_tuple_of_each_period(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows = data.draw(published(), label="rows")
    run = ReaderRun(tmp_path_factory.mktemp("run"), history_rows=data.draw(st.sampled_from([1, 3, 1_000])))
    stored = stored_rows(rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=4), label="cuts"))
    added = {}
    for number, (begin, end) in enumerate(pairwise([0, *cuts, len(rows)])):
        piece = stored[begin:end]
        columns: dict[str, list[Any]] = {"fjord_default_rate": [True] * len(piece)}
        columns |= {each.name: each.to_list() for each in columns_beside(piece)}
        watermark = min((at for at, _ in rows[end:]), default=100)
        run.append("traffic", [(at, row[0], row[1]) for at, row in piece], watermark, columns)
        if number in (0, 2):
            past = data.draw(st.sampled_from([" SINCE BEGINNING", PAST.format(7), PAST.format(30)]), label="past")
            period = data.draw(st.sampled_from([None, 2, 7, 25]), label="period")
            text = f"SELECT speed FROM traffic{past}{'' if period is None else f' SAMPLE EVERY {period} US'}"
            added[f"q{number}"] = run.add(f"q{number}", text), past, period
        if data.draw(st.booleans(), label="compact"):
            run.compact("traffic")
        run.step(crash=data.draw(st.booleans(), label="crash"))
    run.append("traffic", [], 300)
    run.drain()
    for name, (query, past, period) in added.items():
        first = begins(query, "traffic")
        expected = [row[1] for (at, row), kept in zip(rows, taken(rows, period), strict=True) if kept and at >= first]
        assert sorted(row["speed"] for _, _, row in run.rows.get(name, [])) == sorted(expected), (name, past, period)


LOOKUPS = (
    "SELECT t.speed, p.segment FROM traffic{} AS t, places AS p WHERE t.sensor = p.sensor",
    "SELECT t.speed, p.segment FROM traffic{} AS t LEFT JOIN places AS p ON t.sensor = p.sensor",
    "SELECT t.speed FROM traffic{} AS t WHERE t.sensor NOT IN (SELECT sensor FROM places)",
    (
        "SELECT p.segment, COUNT(*) AS n FROM traffic{} WINDOW(RANGE 9 US SLIDE 3 US) AS t, places AS p "
        "WHERE t.sensor = p.sensor GROUP BY p.segment"
    ),
)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_history_is_joined_with_relations_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A query that begins late has the same partners as one that has run from the first tuple on."""
    run = ReaderRun(
        tmp_path_factory.mktemp("run"), history_rows=data.draw(st.sampled_from([1, 5, 1_000]), label="rows of history")
    )
    places = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.just("x")), max_size=4)
    run.change(data.draw(places, label="places"), {})
    text = data.draw(st.sampled_from(LOOKUPS), label="query")
    run.add("early", text.format(""))
    late = data.draw(st.integers(0, 5), label="late")
    rows = sorted(data.draw(ROWS, label="rows"))
    for turn in range(6):
        if turn == late:
            run.add("late", text.format(" SINCE BEGINNING"))
        version = [row for row in rows if 17 * turn <= row[0] < 17 * (turn + 1)]
        run.append("traffic", data.draw(st.permutations(version)), 17 * (turn + 1))
        if data.draw(st.booleans(), label="change"):
            run.change(data.draw(places, label="places"), {"traffic": 17 * (turn + 1)})
        for _ in range(data.draw(st.integers(0, 2), label="micro-batches")):
            run.step(crash=data.draw(st.booleans(), label="crash"))
    run.append("traffic", [], 300)
    run.drain()
    assert coverage(run.rows.get("late", [])) == coverage(run.rows.get("early", [])), text


TOTALS = (
    "SELECT sensor, SUM(speed) AS total, COUNT(*) AS n FROM traffic{} WINDOW(RANGE 10 US SLIDE 10 US) GROUP BY sensor"
)
TWICE = [(at, "a", 1) for at in range(60)]
"""One sample each microsecond."""


def totals(run: ReaderRun, name: str) -> list[tuple[int, int]]:
    """Return the windows' ends and what they count."""
    return [(start + 1, row["n"]) for start, _, row in run.rows.get(name, [])]


def test_a_long_history_is_read_in_pieces_while_other_queries_run(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path, history_rows=10)
    run.add("live", "SELECT speed FROM traffic")
    run.append("traffic", TWICE, 60)
    run.drain()
    run.add("back", TOTALS.format(" SINCE 45 US AGO"))
    counts = []
    for at in range(60, 66):
        run.append("traffic", [(at, "a", 1)], at + 1)
        run.step()
        counts.append((len(run.rows["live"]), totals(run, "back")))
    assert [count for count, _ in counts] == [61, 62, 63, 64, 65, 66], "the live query is not delayed"
    assert counts[0][1] == [(20, 5)], "10 rows of history, from 15 to 25: the first window began before"
    assert counts[-1][1] == [(20, 5), (30, 10), (40, 10), (50, 10), (60, 10)]
    assert "history" not in run.offsets[Host.STATEFUL], "the backfill is complete"


def test_a_short_history_does_not_wait_for_a_long_one(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path, history_rows=10)
    run.add("live", "SELECT speed FROM traffic")
    run.append("traffic", TWICE, 60)
    run.drain()
    run.add("long", TOTALS.format(" SINCE BEGINNING"))
    run.add("short", TOTALS.format(" SINCE 8 US AGO"))
    run.step()
    assert totals(run, "short") == [(60, 8)]
    assert list(run.offsets[Host.STATEFUL]["history"]) == ["3"]
    run.drop("long")
    run.step()
    assert "history" not in run.offsets[Host.STATEFUL]
    assert totals(run, "long") == []


def test_many_new_queries_are_one_micro_batch_and_each_has_its_own_history(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    run.append("traffic", TWICE, 60)
    run.add("live", TOTALS.format(""))
    for name, past in (("a", "30 US AGO"), ("b", "30 US AGO"), ("c", "20 US AGO"), ("all", "BEGINNING")):
        run.add(name, TOTALS.format(f" SINCE {past}"))
    run.drop("b")
    run.append("traffic", [(at, "a", 1) for at in range(60, 70)], 70)
    run.drain()
    assert run.micro_batches[Host.STATEFUL] == 1
    assert totals(run, "live") == [(70, 10)]
    assert totals(run, "a") == [(at, 10) for at in (40, 50, 60, 70)]
    assert totals(run, "b") == []
    assert totals(run, "c") == [(at, 10) for at in (50, 60, 70)]
    assert totals(run, "all") == [(at, 10) for at in range(10, 80, 10)]


def test_rows_of_versions_that_were_merged_and_removed_are_read(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    for at in range(60):
        run.append("traffic", [(at, "a", 1)], at + 1)
        if at % 25 == 0:
            run.compact("traffic")
    run.compact("traffic")
    run.tables["traffic"]._table.create_checkpoint()
    for log in (tmp_path / "streams" / "traffic" / "_delta_log").glob("*.json"):
        if int(log.stem) < 40:
            log.unlink()
    run.add("back", TOTALS.format(" SINCE 40 US AGO"))
    run.append("traffic", [(at, "a", 1) for at in range(60, 70)], 70)
    run.compact("traffic")
    run.drain()
    assert totals(run, "back") == [(at, 10) for at in (30, 40, 50, 60, 70)]


def test_a_query_without_stored_history_begins_live(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    run.add("back", TOTALS.format(" SINCE 40 US AGO"))
    run.append("traffic", TWICE, 60)
    run.drain()
    assert totals(run, "back") == [(at, 10) for at in range(10, 70, 10)]


def test_device_partial_aggregates_count_if_all_their_samples_are_since_the_instant(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    query = run.add("back", TOTALS.format(" SINCE BEGINNING"))
    pane_query = pane_query_of(query.node)
    assert pane_query is not None
    pushed = pushed_of(pane_query)
    assert pushed is not None
    run.drop("back")
    # Panes of 10 us that end at 19, 29, ...; and samples, of which that at 36 is part of the pane before 40.
    panes = [(at, "a", 0) for at in range(19, 60, 10)]
    device_columns = {
        "fjord_form": [*[pushed.fingerprint] * len(panes), None, None],
        "fjord_except": [*[None] * len(panes), pushed.fingerprint, None],
        "fjord_pane_us": [*[10] * len(panes), None, None],
        "fjord_samples": [*[4] * len(panes), None, None],
        "fjord_count_speed": [*[4] * len(panes), None, None],
        "fjord_sum_speed": [*[at for at, _, _ in panes], None, None],
    }
    run.append("traffic", [*panes, (36, "a", 100), (37, "a", 1000)], 60, device_columns)
    run.add("back", TOTALS.format(" SINCE 25 US AGO"))
    run.add("whole", TOTALS.format(" SINCE BEGINNING"))
    run.append("traffic", [], 70)
    run.drain()
    found = {name: [(at + 1, row["total"]) for at, _, row in run.rows[name]] for name in ("back", "whole")}
    assert found["back"] == [(40, 1000), (50, 49), (60, 59)]
    assert found["whole"] == [(20, 19), (30, 29), (40, 1039), (50, 49), (60, 59)]


def test_events_of_the_past_are_read(tmp_path: Path) -> None:
    run = ReaderRun(tmp_path)
    text = "SELECT sensor, passing_us FROM traffic{} EVENTS(speed ABOVE 5)"
    query = run.add("back", text.format(" SINCE BEGINNING"))
    form = event_fingerprint(query.node.input if hasattr(query.node, "input") else query.node)  # type: ignore[arg-type] # a source
    run.drop("back")
    device_columns = {
        "fjord_form": [form, form, None],
        "fjord_pane_us": [3, 4, None],
        "fjord_samples": [None, None, None],
    }
    run.append("traffic", [(10, "a", 0), (20, "b", 0), (21, "b", 7)], 60, device_columns)
    run.add("back", text.format(" SINCE 45 US AGO"))
    run.drain()
    assert run.rows["back"] == [(20, 21, {"sensor": "b", "passing_us": 4})]

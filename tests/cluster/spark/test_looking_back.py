"""A query with SINCE answers as if it had run from that instant on, whenever it is added and however streams are cut.

stored      |--- version 1 ---|--- 2 ---|--- 3 ---|        4 ...
SINCE               |================================       one scan of the past, in pieces
live                                              |=====>   versions after the one where the last piece was read
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.spark.reader_run import ReaderRun, Row, begins, coverage
from tests.cluster.spark.test_folding import CONDITIONS, EACH, OF_TWO, TEMPLATES

ROWS = st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abcd"), st.integers(0, 9)), max_size=40)
PAST = " SINCE {} US AGO"
ONE = st.tuples(st.sampled_from(TEMPLATES), st.sampled_from(CONDITIONS)).map(
    lambda both: both[0].format(both[1]).replace("FROM traffic", "FROM traffic{0}")
)
"""Queries over one stream; what they ask of the past is to be filled in."""


def of_two(template: str, left: str, right: str) -> str:
    """Return a query over both streams."""
    text = template.format(left.format("t"), right.format("u"))
    text = text.replace("FROM traffic t", "FROM traffic{0} t").replace("FROM traffic u", "FROM other{1} u")
    return text.replace(", traffic u", ", other{1} u")


TWO = st.tuples(st.sampled_from(OF_TWO), st.sampled_from(EACH), st.sampled_from(EACH)).map(lambda all3: of_two(*all3))


def run_of_one_query(folder: Path, sql: str, rows: dict[str, list[tuple[list[Row], int]]]) -> ReaderRun:
    """The oracle: the query is there before the first tuple, and gets nothing but what it is to see."""
    run = ReaderRun(folder, max_rows=1_000_000)
    run.add("q", sql)
    for stream, versions in rows.items():
        for version, watermark in versions:
            run.append(stream, version, watermark)
    run.drain()
    return run


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_it_answers_as_if_it_had_run_since_then(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    stored: dict[str, list[tuple[list[Row], int]]] = {"traffic": [], "other": []}
    rows = {stream: data.draw(ROWS, label=stream) for stream in stored}
    run = ReaderRun(
        tmp_path_factory.mktemp("run"),
        history_rows=data.draw(st.sampled_from([1, 3, 10, 1_000]), label="rows of history"),
        max_rows=data.draw(st.sampled_from([1, 5, 1_000]), label="rows"),
    )
    run.add("plain", "SELECT sensor, speed FROM traffic")
    asked = {}
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
        while len(asked) < 3 and data.draw(st.booleans(), label="add a query"):
            text = data.draw(ONE | TWO, label="query")
            past = data.draw(st.sampled_from([PAST.format(7), PAST.format(30), " SINCE BEGINNING", PAST.format(500)]))
            pasts = data.draw(st.sampled_from([(past, past), (past, ""), (PAST.format(12), past)]), label="pasts")
            name = f"q{len(asked)}"
            asked[name] = run.add(name, text.format(*pasts)), text.format("", ""), len(stored["traffic"])
            if data.draw(st.integers(0, 9)) == 0:
                run.drop(name)
                dropped.add(name)
        for _ in range(data.draw(st.integers(0, 3), label="micro-batches")):
            run.step(crash=data.draw(st.booleans(), label="crash"))
    for stream, versions in stored.items():
        run.append(stream, [], 300)
        versions.append(([], 300))
    run.drain()
    for name, (query, text, position) in asked.items():
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
    assert plain == everything, "others are not disturbed"

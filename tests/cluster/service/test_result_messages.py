"""Messages made by columns: byte for byte what is made row by row, for any rows, instants and chunks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.errors import StorageError
from cluster.fjord import batch
from cluster.fjord.batch import instant_text
from cluster.service.publishing import result_chunks, result_messages
from cluster.service.publishing.published import Position
from cluster.service.publishing.result_chunks import chunks
from cluster.service.publishing.result_messages import (
    FIRST_US,
    LARGEST_ROW_BYTES,
    LAST_US,
    NEVER,
    instant_column,
    result_frames,
    stored_results,
)
from cluster.storage.committed_results import RESULT_SCHEMA
from cluster.storage.results_table import ResultsTable
from protocols.mqtt.link import Message
from protocols.wire import topics
from tests.cluster.service.test_publisher import messages_of

INT64 = st.integers(-(2**63), 2**63 - 1)
INSTANTS = st.one_of(INT64, st.integers(FIRST_US, LAST_US), st.integers(0, 2 * 10**15))
EXTRAS: dict[str, dict[str, Any]] = {"a": {}, "b.2-c": {"sensors": {"slower": 4}, "stale": {"straße": 1.5}}}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "query": st.sampled_from([*EXTRAS, "q" * 64]),
            "sequence": st.integers(1, 2**63 - 1),
            "start_us": INSTANTS,
            "end_us": INSTANTS,
            "kind": st.sampled_from(["row", "row", "error", "open", "closes"]),
            "closes": st.integers(1, 2**63 - 1),
            "row": st.dictionaries(st.text(max_size=5), st.text(max_size=200), max_size=3).map(
                lambda row: msgspec.json.encode(row).decode()
            ),
        }
    ),
    min_size=1,
    max_size=20,
)


def message(row: dict[str, Any]) -> Message:
    """Return the message of a row, made the simplest way."""
    query, raw = row["query"], msgspec.Raw(row["row"].encode())
    if row["kind"] == "error":
        instants = {"at": instant_text(row["start_us"]), "end": instant_text(row["end_us"])}
        found = {"query": query, "sequence": row["sequence"], **instants, "error": raw}
        return Message(topics.query_errors(query), msgspec.json.encode(found))
    if row["kind"] == "closes":
        found = {
            "query": query,
            "sequence": row["sequence"],
            "closes": row["closes"],
            "end": instant_text(row["end_us"]),
        }
        return Message(topics.results(query), msgspec.json.encode(found))
    end = {"open": True} if row["kind"] == "open" else {"end": instant_text(row["end_us"])}
    found = {
        "query": query, "sequence": row["sequence"], "start": instant_text(row["start_us"]), **end, "row": raw,
        **EXTRAS.get(query, {}),
    }  # fmt: skip
    return Message(topics.results(query), msgspec.json.encode(found))


def extras(query: str) -> dict[str, Any]:
    return EXTRAS.get(query, {})


@given(st.lists(INSTANTS, min_size=1, max_size=50))
@example([NEVER - 1, NEVER, NEVER + 1, -(2**63), 2**63 - 1, FIRST_US - 1, FIRST_US, LAST_US, LAST_US + 1, -1, 0])
@example([951_782_400_000_000 + day * 86_400_000_000 for day in range(-1, 3)])
def test_instants_are_formatted_as_one_by_one(instants: list[int]) -> None:
    assert batch.NEVER == NEVER
    found = instant_column(np.array(instants, np.int64)).to_pylist()
    assert found == [msgspec.json.encode(instant_text(each)) for each in instants]


@given(ROWS)
def test_messages_are_made_as_one_by_one(rows: list[dict[str, Any]]) -> None:
    stored = pa.RecordBatch.from_pylist(rows, RESULT_SCHEMA)
    assert messages_of(result_frames(stored, extras)) == [message(row) for row in rows]
    middle = stored.slice(len(rows) // 2)
    assert messages_of(result_frames(middle, extras)) == [message(row) for row in rows[len(rows) // 2 :]]


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=6),
    st.integers(1, 12),
    st.integers(0, 3),
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(1, 6)),
)
def test_chunks_have_every_row_once_and_any_place_in_them_is_a_position(
    commits: list[list[int]], at_once: int, version: int, row: int, missing: int | None
) -> None:
    """Commits are lists of batches; publication begins anywhere, and goes on after any acknowledged row."""
    sizes = [sum(commit) for commit in commits]
    version = min(version, len(commits))
    row = min(row, max(0, sizes[version] - 1)) if version < len(commits) else 0
    missing = None if missing is None or missing <= version else missing

    def read(number: int, newest: int, _: Any) -> Any:
        assert number <= newest == len(commits)
        if number == missing:
            raise StorageError("it cannot be read")
        first = 0
        for size in commits[number - 1]:
            yield pa.RecordBatch.from_pylist(
                [
                    {"query": "q", "sequence": 100 * number + first + at, "start_us": 0, "end_us": 1, "kind": "row",
                     "row": "{}", "closes": None}
                    for at in range(size)
                ],
                RESULT_SCHEMA,
            )  # fmt: skip
            first += size

    wanted = [
        (number, at)
        for number in range(version + 1, min(len(commits), (missing or 99) - 1) + 1)
        for at in range(sizes[number - 1])
        if (number, at) >= (version + 1, row)
    ]
    found, position = [], Position(version, row)
    before, result_chunks.CHUNK_ROWS = result_chunks.CHUNK_ROWS, at_once
    try:
        for chunk in chunks(read, position, len(commits), lambda _: {}):
            assert chunk.begins == position
            numbers = [msgspec.json.decode(each.payload)["sequence"] for each in messages_of(chunk.frames)]
            here = [divmod(number, 100) for number in numbers]
            for acknowledged, place in enumerate(here):
                version_then, row_then = chunk.after(acknowledged)
                after = [each for each in wanted if each >= (version_then + 1, row_then)]
                assert after[0] == place, "the next row is the first that is not acknowledged"
            found += here
            position = chunk.after(len(numbers))
    except StorageError:
        assert missing is not None
        assert position == Position(missing - 1, 0 if missing > version + 1 else row)
    else:
        assert position.version == len(commits)
    finally:
        result_chunks.CHUNK_ROWS = before
    assert found == wanted


def test_the_first_message_loads_no_library_that_the_publisher_has_not_loaded_at_its_start() -> None:
    program = """
import sys
import pyarrow as pa
from cluster.service.publishing.publisher_process import load_libraries
from cluster.service.publishing.result_messages import result_frames
from cluster.storage.committed_results import RESULT_SCHEMA
load_libraries()
before = set(sys.modules)
columns = [["q", "q"], [1, 2], [0, 5], [1, 2**62], ["row", "error"], ["{}", '"why"'], [None, None]]
arrays = [pa.array(each, kind) for each, kind in zip(columns, RESULT_SCHEMA.types, strict=True)]
result_frames(pa.RecordBatch.from_arrays(arrays, schema=RESULT_SCHEMA))
print(sorted(set(sys.modules) - before))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_row_that_no_broker_takes_is_an_error_under_its_number() -> None:
    texts = ["{}", f'{{"text":"{"x" * LARGEST_ROW_BYTES}"}}', "{}"]
    columns = [["q"] * 3, [1, 2, 3], [0] * 3, [1] * 3, ["row"] * 3, texts, [None] * 3]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, RESULT_SCHEMA.types, strict=True)]
    messages = messages_of(result_frames(pa.RecordBatch.from_arrays(arrays, schema=RESULT_SCHEMA)))
    assert [each.topic for each in messages] == [topics.results("q"), topics.query_errors("q"), topics.results("q")]
    found = msgspec.json.decode(messages[1].payload)
    assert found["sequence"] == 2
    assert found["error"].startswith("a row of 15,728,651 bytes is too long for a message")


@pytest.mark.parametrize(("most", "expected"), [(0, [1]), (59, [1, 2]), (60, [1, 2, 3]), (1000, [1, 2, 3, 4])])
def test_rows_of_an_answer_have_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, expected: list[int]
) -> None:
    """A thousand rows of ten megabytes each, in one answer, would fill the memory."""
    monkeypatch.setattr(result_messages, "MOST_ANSWERED_BYTES", most)
    texts = [f'"{"x" * (size - 2)}"' for size in (10, 20, 30, 30)]
    columns = {"query": ["q"] * 4, "start_us": [0] * 4, "end_us": [1] * 4, "kind": ["row"] * 4, "row": texts}
    table = ResultsTable(str(tmp_path / "results"), "f")
    table.append(pl.DataFrame(columns), 0)

    def numbers(after: int) -> list[int]:
        return [each["sequence"] for each in msgspec.json.decode(stored_results(table, "q", after, 10))]

    assert numbers(0) == expected
    assert numbers(3) == [4]
    assert numbers(4) == []

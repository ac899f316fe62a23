"""Expected answers from a stored stream, computed by DuckDB."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.faults.checks import Window
from tests.faults.samples import Answer, MissingSamples, Sample
from tests.faults.stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND = 1_000_000
WINDOW = Window(2 * SECOND, 4 * SECOND)


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    """Two motes that sample every half second; of the second pane a mote's first sample is missing."""
    stamps = range(0, 5 * SECOND, SECOND // 2)
    rows = [
        (at, mote, lane, float(at // 1000 + lane), None, None, None)
        for at in stamps
        for lane, mote in enumerate(("m1", "m2"), 1)
        if (mote, at) != ("m1", 3 * SECOND)
    ]
    rows += [
        (end - 1, mote, lane, None, "seen", 2, int((mote, end) == ("m1", 4 * SECOND)))
        for end in range(SECOND, 6 * SECOND, SECOND)
        for lane, mote in enumerate(("m1", "m2"), 1)
    ]
    names = ["fjord_start_us", "fjord_mote", "lane", "flow", "fjord_form", "fjord_expected", "fjord_missing"]
    frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        sensor=pl.col("fjord_mote"), segment=pl.lit(1), speed=pl.col("flow")
    )
    frame.write_delta(str(tmp_path / "stream"))
    with contextlib.closing(Stored(tmp_path / "stream", WINDOW)) as found:
        yield found


def test_samples_are_kept_apart_from_counts_of_them(stored: Stored) -> None:
    assert len(stored.samples()) == 19
    assert Sample("m2", 3 * SECOND, 3002.0, 3002.0) in stored.samples()
    assert len(stored.missing_samples()) == 10
    assert MissingSamples("m1", 4 * SECOND, 2, 1) in stored.missing_samples()
    assert stored.others() == 0


def test_answers_that_begin_in_the_window(stored: Stored) -> None:
    """Answers of windows of two seconds, every second, begin a microsecond before the windows' end."""
    assert len(stored.answers("rows")) == 7
    assert sorted(stored.answers("sums")) == [
        Answer(3 * SECOND - 1, 4 * SECOND - 1, (1, 8, 14_012.0, 1001.0)),
        Answer(4 * SECOND - 1, 5 * SECOND - 1, (1, 7, 22_012.0 - 3001.0, 2001.0)),
    ]


def test_pairs_and_completeness(stored: Stored) -> None:
    pairs = {(each.start_us, each.values[1]) for each in stored.answers("pairs")}
    assert pairs == {(at * SECOND // 2, float(at * 500 + 1)) for at in (4, 5, 7)}
    assert sorted(each.values for each in stored.answers("seen")) == [
        ("m1", 0.5),
        ("m1", 1.0),
        ("m2", 1.0),
        ("m2", 1.0),
    ]

"""Replay of recorded readings, and the errors a bad file gives."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from firmware_sim.errors import TraceError
from firmware_sim.fleet import Fleet, FleetSettings
from firmware_sim.mote.mote_events import Announce, PowerOn
from firmware_sim.phenomena.trace import Resampling, Trace, TraceColumns, mote_names
from firmware_sim.phenomena.worlds import make_world
from protocols.wire.packets import AS_RECORDED
from protocols.wire.streams import Field, FieldType

MINUTES_US = 60_000_000


def write(tmp_path: Path, text: str, name: str = "trace.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


DAY = """time,sensor,speed,lane
2012-03-01T00:00:00,a,60.5,1
2012-03-01T00:00:00,b,50,2
2012-03-01T00:05:00,a,61,1
2012-03-01T00:10:00,a,,1
2012-03-01T00:20:00,b,52,2
"""
ORIGIN_US = 1_330_560_000_000_000


def test_each_sensor_is_a_mote_and_other_columns_are_fields(tmp_path: Path) -> None:
    trace = Trace(write(tmp_path, DAY), resampling=Resampling())
    assert [mote.name for mote in trace.motes] == ["a", "b"]
    assert trace.motes[0].stream.fields == (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("speed", FieldType.REAL),
        Field("lane", FieldType.INTEGER),
    )
    assert trace.motes[1].properties == {"sensor": "b"}
    assert (trace.begins_us, trace.interval_us, trace.readings) == (ORIGIN_US, 5 * MINUTES_US, 5)
    assert trace.ends_us == ORIGIN_US + 25 * MINUTES_US
    assert trace.motes[0].default_period_us == 5 * MINUTES_US


@pytest.mark.parametrize(
    ("mote", "minutes", "values"),
    [
        (0, 0, (60.5, 1)),
        (0, 4, (60.5, 1)),  # a reading holds until the next one
        (0, 5, (61.0, 1)),
        (0, 10, (None, 1)),  # an empty cell is NULL
        (0, 15, (None, None)),  # no reading: NULL
        (1, 4, (50.0, 2)),
        (1, 5, (None, None)),
        (1, 20, (52.0, 2)),
        (0, -1, (None, None)),
    ],
)
def test_what_a_mote_senses(tmp_path: Path, mote: int, minutes: int, values: tuple[float | None, ...]) -> None:
    trace = Trace(write(tmp_path, DAY), resampling=Resampling())
    assert trace.sense(mote, ORIGIN_US + minutes * MINUTES_US, ("speed", "lane")) == values


UNEVEN = """time,sensor,speed
2012-03-01T00:00:00.25,a,1
2012-03-01T00:00:07,a,2
2012-03-01T00:00:07,a,3
2012-03-01T00:00:17,a,
2012-03-01T03:00:00.000001,a,4
2012-03-01T00:00:05,b,5
"""


def test_a_recording_has_the_stamps_and_gaps_of_its_file(tmp_path: Path) -> None:
    trace = Trace(write(tmp_path, UNEVEN))
    recording = trace.recording(0)
    assert recording is not None
    found: list[tuple[int, tuple[object, ...]]] = []
    instant: int | None = recording.next_us(0)
    while instant is not None:
        found += [(instant - ORIGIN_US, values) for values in recording.readings(instant, ("speed",))]
        instant = recording.next_us(instant + 1)
    last_us = 3 * 60 * MINUTES_US + 1
    assert found == [(250_000, (1,)), (7_000_000, (2,)), (7_000_000, (3,)), (17_000_000, (None,)), (last_us, (4,))]
    assert (trace.begins_us, trace.ends_us) == (ORIGIN_US + 250_000, ORIGIN_US + last_us + 1)


def test_a_trace_is_sampled_again_at_a_period_that_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, DAY)
    fast, slow = (Trace(path, resampling=Resampling(minutes * MINUTES_US)) for minutes in (1, 30))
    assert (fast.recording(0), fast.motes[0].default_period_us) == (None, MINUTES_US)
    # A reading holds until the next one, as at the commonest period; or for the period, if that is longer.
    assert [fast.sense(1, ORIGIN_US + minute * MINUTES_US, ("speed",)) for minute in (4, 5)] == [(50.0,), (None,)]
    assert [slow.sense(1, ORIGIN_US + minute * MINUTES_US, ("speed",)) for minute in (4, 5, 25)] == [
        (50.0,), (50.0,), (52.0,),
    ]  # fmt: skip


def test_parquet_and_other_column_names(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    pl.DataFrame({"at": [0, 1_000_000], "loop": [7, 7], "mph": [1.0, 2.0], "junk": ["x", "y"]}).write_parquet(path)
    trace = Trace(path, columns=TraceColumns("at", "loop", {"mph": "mph"}), stream="road")
    assert trace.motes[0].stream.field("mph").unit == "mph"
    assert trace.motes[0].stream.field_names == ("loop", "mph")
    assert trace.sense(0, 1_000_000, ("mph",)) == (2.0,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("when,sensor,speed\n2012-03-01T00:00:00,a,1\n", "no column 'time'; its columns are when, sensor, speed"),
        ("time,loop,speed\n2012-03-01T00:00:00,a,1\n", "no column 'sensor'"),
        ("time,sensor\n2012-03-01T00:00:00,a\n", "no column to sample"),
        ("time,sensor,speed\n2012-03-01T00:00:00,a,1\nyesterday,a,1\n", "row 3 .* 'yesterday'"),
        ("time,sensor,speed\n2012-03-01T00:00:00,,1\n", "row 2 .* has no sensor"),
        ("time,sensor,speed\n", "no rows"),
        ("", "cannot be read"),
        ("\n", "cannot be read"),
        ("time,sensor,speed\n1,a,99999999999999999999\n", "row 2 .* has the speed 99999999999999999999, .* too large"),
        ("time,sensor,speed\n1,a,1\n99999999999999999999,a,1\n", "row 3 .* 99999999999999999999, which is no instant"),
        (f"time,sensor,speed\n{2**63 - 1},a,1\n", f"row 2 .* {2**63 - 1}, which is no instant"),
        ("time,sensor,speed\n1.5,a,1\n", "row 2 .* 1.5, which is no instant"),
        ("time,sensor,speed\ntrue,a,1\n", "row 2 .* True, which is no instant"),
        ("time,sensor,fjord_time\n1,a,1\n", "'fjord_time'"),
        ("time,sensor,fjord_mote\n1,a,1\n", "reserved"),
        ("time,sensor,mean speed\n1,a,1\n", "column 'mean speed' .* cannot be a field"),
        ("time,sensor,1st\n1,a,1\n", "column '1st' .* cannot be a field"),
        (f"time,sensor,{'s' * 65}\n1,a,1\n", "cannot be a field"),
        (f"time,sensor,{','.join(f'c{n}' for n in range(300))}\n1,a{',1' * 300}\n", "cannot be a stream: .* <= 256"),
        (f"time,sensor,note\n1,a,b\n2,a,{'x' * 1025}\n", "row 3 .* more than 1,024 characters of note"),
        (f"time,sensor,speed\n1,{'x' * 1025},1\n", "row 2 .* more than 1,024 characters of sensor"),
        ("time,sensor,speed\n1,a,1,2\n", "cannot be read"),
        ('time,sensor,speed\n1,"a,1\n', "cannot be read"),
    ],
)
def test_bad_trace_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Trace(write(tmp_path, text))


def test_missing_field_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no column 'flow'") as caught:
        Trace(write(tmp_path, DAY), columns=TraceColumns(fields={"flow": ""}))
    assert "--field" in str(caught.value.hint)
    with pytest.raises(TraceError, match="there is no trace"):
        Trace(tmp_path / "nothing.csv")


def test_the_recorded_day_senses_every_reading_once() -> None:
    path = Path(__file__).parents[2] / "examples" / "traffic" / "la_loop_speeds_day.parquet"
    trace = Trace(path, resampling=Resampling())
    rows = pl.read_parquet(path)
    assert (len(trace.motes), trace.readings) == (207, rows.height)
    begins_us, ends_us = trace.begins_us, trace.ends_us
    assert begins_us is not None
    assert ends_us is not None
    for place in (0, 100, 206):
        name = trace.motes[place].properties["sensor"]
        expected = rows.filter(pl.col("sensor").cast(pl.String) == name).sort("time")["speed"].to_list()
        sensed = [trace.sense(place, at, ("speed",))[0] for at in range(begins_us, ends_us, trace.interval_us)]
        assert sensed == expected


def test_names_are_fit_for_topics_and_different() -> None:
    assert mote_names(["a b", "a_b", "--", "ü"]) == ["a_b", "a_b-2", "mote", "mote-2"]


def test_motes_of_a_trace_say_that_they_replay_and_those_of_a_world_do_not(tmp_path: Path) -> None:
    path = write(tmp_path, DAY)
    phenomena = (
        (Trace(path), AS_RECORDED),
        (Trace(path, resampling=Resampling()), True),
        (make_world("traffic", motes=1, seed=1), False),
    )
    for phenomenon, replays in phenomena:
        first = Fleet(phenomenon, FleetSettings()).motes[0].handle(PowerOn(0))[0]
        assert isinstance(first, Announce)
        assert first.announcement.replays == replays


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("speed", pl.Series([2**64 - 1], dtype=pl.UInt64), "row 2 .* has the speed 18446744073709551615, .* too large"),
        ("speed", pl.Series([2**100], dtype=pl.Int128), "row 2 .* too large"),
        ("speed", pl.Series([[1]]), "which no field can hold"),
        ("time", pl.Series([2**64 - 1], dtype=pl.UInt64), "row 2 .* no instant"),
        ("time", pl.Series([2**62], dtype=pl.Datetime("ms")), "row 2 .* no instant"),
        ("time", pl.Series([1], dtype=pl.Duration("us")), "row 2 .* no instant"),
        ("time", pl.Series([{"a": 1}]), "row 2 .* no instant"),
        ("sensor", pl.Series([[1]]), "column 'sensor' .* cannot be String"),
        ("sensor", pl.Series([b"\xff"]), "column 'sensor' .* cannot be String"),
    ],
)
def test_a_parquet_file_of_other_types_is_refused(tmp_path: Path, column: str, values: pl.Series, message: str) -> None:
    rows = pl.DataFrame({"time": [1], "sensor": ["a"], "speed": [1.0]}).with_columns(values.alias(column))
    rows.write_parquet(tmp_path / "odd.parquet")
    with pytest.raises(TraceError, match=message):
        Trace(tmp_path / "odd.parquet")


def test_what_is_no_number_is_no_reading_and_a_byte_order_mark_no_letter(tmp_path: Path) -> None:
    trace = Trace(write(tmp_path, "\ufefftime,sensor,speed\n1,a,NaN\n2,a,inf\n3,a,5\n"))
    assert [trace.sense(0, instant, ("speed",)) for instant in (1, 2, 3)] == [(None,), (None,), (5.0,)]

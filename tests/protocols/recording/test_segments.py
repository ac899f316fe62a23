"""Logs of events on disk: bounded, harmless to what is recorded, and read with suspicion."""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
import zlib

import msgspec
import pytest

from protocols.recording.command import _why_not
from protocols.recording.entries import (
    FORMAT,
    MAGIC,
    MAX_FRAME_BYTES,
    Chunk,
    ClockRead,
    Header,
    LogError,
    Messages,
    Sent,
    Turn,
    WallClock,
    encode,
)
from protocols.recording.reading import read_runs
from protocols.recording.segments import (
    LEAST_LOG_BYTES,
    MOST_WAITING_BYTES,
    SegmentWriter,
    frame,
    masked,
    segment_files,
)


def header(run="r", begins=True, most_bytes=0, **changes):
    return msgspec.structs.replace(
        Header(format=FORMAT, part="proxy", name="p", run=run, begins=begins, settings={}, versions={}, state={}),
        **changes,
    )


def chunk(at_ns, *entries):
    return Chunk(at_ns, 5, True, entries)


def turns(folder):
    (run,) = read_runs(folder)
    return run, list(run.turns())


def test_what_is_written_is_read(tmp_path):
    writer = SegmentWriter(tmp_path / "log", 1 << 20, header)
    sent = Sent("b", b"two", 1, False, "task x")
    arrived = Messages(("a",), (b"one",), b"\4")
    writer.put(chunk(100, Turn(10, True), arrived, sent, Turn(5, False), ClockRead(3, 150)), 0)
    writer.put(chunk(150, Turn(1, True), WallClock(9)), 0)
    writer.close()
    run, found = turns(tmp_path / "log")
    assert run.exact
    assert run.damage is None
    assert [(each.now_ns, each.ahead_ns, each.waited) for each in found] == [
        (110, 5, True), (115, 5, False), (151, 9, True)
    ]  # fmt: skip
    assert (found[0].inputs, found[0].sent, found[1].reads) == ([arrived], [sent], {3: 150})


def test_the_oldest_segments_go_first(tmp_path):
    writer = SegmentWriter(tmp_path, 80_000, header)
    for number in range(100):
        writer.put(chunk(number, Turn(0, True), Sent(str(number), bytes(2_000), 0, False, "")), 0)
    writer.close()
    assert sum(each.stat().st_size for each in segment_files(tmp_path)) <= 80_000
    run, found = turns(tmp_path)
    assert not run.exact
    numbers = [int(each.sent[0].topic) for each in found]
    assert numbers == list(range(numbers[0], 100))
    assert len(numbers) >= 20


def test_runs_are_told_apart_and_numbered_on(tmp_path):
    for _ in range(2):
        SegmentWriter(tmp_path, 1 << 20, header).close()
    assert len({each.header.run for each in read_runs(tmp_path)}) == 2


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path, monkeypatch):
    writer = SegmentWriter(tmp_path, 1 << 20, header)
    writes = os.write

    def full(descriptor, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        writer.put(chunk(1, Turn(0, True)), 0)
    writer.close()
    monkeypatch.setattr(os, "write", writes)
    assert (writer.writes, writer.trouble) == (False, "No space left on device")
    assert turns(tmp_path)[1] == []


def test_a_slow_disk_ends_the_recording_before_memory_is_full(tmp_path):
    writer = SegmentWriter(tmp_path, 1 << 20, header)
    writer.put(chunk(1, Turn(0, True)), MOST_WAITING_BYTES + 1)
    assert not writer.writes
    writer.close()


def test_a_folder_that_cannot_be_used_is_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot record"):
        SegmentWriter(tmp_path / "file", 1 << 20, header)


def test_a_folder_has_one_recorder_at_a_time(tmp_path):
    writer = SegmentWriter(tmp_path, 1 << 20, header)
    with pytest.raises(LogError, match="another process records in"):
        SegmentWriter(tmp_path, 1 << 20, header)
    writer.close()
    SegmentWriter(tmp_path, 1 << 20, header).close()


def test_whatever_a_header_fails_with_ends_the_recording_and_nothing_else(tmp_path):
    def fails_later(run, begins, most_bytes):
        if not begins:
            raise sqlite3.OperationalError("disk I/O error")
        return header(run, begins, most_bytes)

    writer = SegmentWriter(tmp_path, LEAST_LOG_BYTES, fails_later)
    for _ in range(2):
        writer.put(chunk(1, Turn(0, True), Sent("t", bytes(LEAST_LOG_BYTES // 8), 0, False, "")), 0)
    writer.close()
    assert (writer.writes, writer.trouble) == (False, "disk I/O error")


def test_no_chunk_makes_a_log_larger_than_its_limit(tmp_path):
    writer = SegmentWriter(tmp_path, 80_000, header)
    for size in (30_000, 40_000, 60_000, 79_000, 200_000):
        writer.put(chunk(1, Turn(0, True), Sent("t", bytes(size), 0, False, "")), 0)
    writer.close()
    assert sum(each.stat().st_size for each in segment_files(tmp_path)) <= 80_000
    assert writer.trouble == "too much happens at once for a log of this size"
    assert [len(each.sent[0].payload) for each in turns(tmp_path)[1]] == [79_000]


def test_a_log_that_would_hold_nothing_is_refused(tmp_path):
    with pytest.raises(LogError, match="holds nothing"):
        SegmentWriter(tmp_path / "log", LEAST_LOG_BYTES - 1, header)
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("left_out", [(), ("spool.sqlite",)])
def test_a_state_that_does_not_fit_is_reported_once(tmp_path, capsys, left_out):
    def large(run, begins, most_bytes):
        return header(run, begins, most_bytes, left_out=left_out)

    writer = SegmentWriter(tmp_path, LEAST_LOG_BYTES, large)
    for _ in range(40):
        writer.put(chunk(1, Turn(0, True), Sent("t", bytes(2_000), 0, False, "")), 0)
    writer.close()
    assert capsys.readouterr().out.count("a replay will not be compared") == len(left_out)


def segments(tmp_path, count):
    """Write a log of one run with so many segments, each with a chunk."""
    good = frame(encode(header())) + frame(encode(chunk(1, Turn(1, True))))
    for number in range(1, count + 1):
        (tmp_path / f"{number:08}.fjordlog").write_bytes(MAGIC + good)
    return tmp_path


def test_a_segment_that_is_missing_ends_a_run(tmp_path):
    (segments(tmp_path, 4) / "00000002.fjordlog").unlink()
    run, found = turns(tmp_path)
    assert (len(found), run.damage) == (1, "the segment before 00000003.fjordlog is missing; 2 segments are left out")


def test_a_segment_that_is_torn_before_the_last_ends_a_run(tmp_path):
    second = segments(tmp_path, 3) / "00000002.fjordlog"
    second.write_bytes(second.read_bytes()[:-1])
    run, found = turns(tmp_path)
    assert len(found) == 1
    assert run.damage == "00000002.fjordlog is cut off; 1 further segments are left out"


def test_a_segment_that_goes_while_a_log_is_read_is_an_error_of_ours(tmp_path):
    (run,) = read_runs(segments(tmp_path, 2))
    (tmp_path / "00000001.fjordlog").unlink()
    with pytest.raises(LogError, match=r"cannot read .*00000001\.fjordlog") as raised:
        list(run.turns())
    assert "copy the folder" in raised.value.hint


def written(tmp_path, *frames):
    (tmp_path / "00000001.fjordlog").write_bytes(MAGIC + b"".join(frames))
    return tmp_path


def test_a_torn_end_is_an_end(tmp_path):
    whole = frame(encode(chunk(1, Turn(1, True))))
    for torn in (1, 7, 8, len(whole) - 1):
        run, found = turns(written(tmp_path, frame(encode(header())), whole, whole[:torn]))
        assert (len(found), run.damage) == (1, None)


DAMAGED = {
    "a changed byte": frame(encode(chunk(1, Turn(1, True), Sent("t", b"x", 0, False, "a"))))[:-1] + b"b",
    "no chunk": frame(b"\xc1"),
    "a chunk of another kind": frame(msgspec.msgpack.encode([1, 2, True, [[99, 1]]])),
    "a payload without a topic": frame(msgspec.msgpack.encode([1, 2, True, [[3, ["a"], [b"x", b"y"]]]])),
    "an endless frame": struct.pack("<II", MAX_FRAME_BYTES + 1, 0),
    "nested too deeply": frame(b"\x91" * 100_000 + b"\xc0"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_ends_a_run_with_a_reason(tmp_path, name):
    good = frame(encode(chunk(1, Turn(1, True))))
    run, found = turns(written(tmp_path, frame(encode(header())), good, DAMAGED[name], good))
    assert len(found) == 1
    assert run.damage is not None


@pytest.mark.parametrize(
    "content",
    [b"", b"fjordlog", b"something else", MAGIC + frame(b"{}"), MAGIC + frame(encode(header(format=2)))],
)
def test_what_is_no_log_is_an_error_of_ours(tmp_path, content):
    (tmp_path / "00000001.fjordlog").write_bytes(content)
    with pytest.raises(LogError):
        read_runs(tmp_path)
    with pytest.raises(LogError):
        read_runs(tmp_path / "00000001.fjordlog")


def test_where_there_is_no_log_is_said(tmp_path):
    with pytest.raises(LogError, match="there is no log"):
        read_runs(tmp_path)
    with pytest.raises(LogError, match="cannot read"):
        read_runs(tmp_path / "nothing")


def test_checksums_are_those_of_the_content():
    assert frame(b"abc") == struct.pack("<II", 3, zlib.crc32(b"abc")) + b"abc"


def test_secrets_are_masked():
    assert masked({"name": "p", "api_token": "x", "size": 1, "path": ["a"]}) == {
        "name": "p", "api_token": "***", "size": 1, "path": "['a']"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"left_out": ("spool.sqlite",)}, "the log has no room for spool.sqlite: record with a larger --record-size"),
        ({"begins": False}, "the log does not begin where the process did"),
    ],
)
def test_a_replay_says_why_it_compared_nothing(tmp_path, changes, words):
    (run,) = read_runs(written(tmp_path, frame(encode(header(**changes)))))
    assert words in _why_not(run)

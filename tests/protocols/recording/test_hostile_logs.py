"""Logs of events from anywhere cost bounded memory and work, and end with an error of ours."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import FjordError
from protocols.recording.command import event_lines
from protocols.recording.entries import (
    MAGIC,
    MAX_FRAME_BYTES,
    MOST_PAUSE_NS,
    Chunk,
    ClockRead,
    LogError,
    Messages,
    Requested,
    Sent,
    Turn,
    WallClock,
    encode,
)
from protocols.recording.reading import decompressed, read_runs
from protocols.recording.segments import frame
from tests.protocols.recording.test_segments import header

TESTS = Path(__file__).parents[2]
LOGS = [
    TESTS / "proxy/recorded/faulty_seconds.fjordlog",
    TESTS / "firmware_sim/recorded/bad_radio.fjordlog",
    TESTS / "cluster/service/recorded/faulty_proxies.fjordlog",
]
MOST_MEMORY = 48 * 1024 * 1024
EXAMPLES = settings(max_examples=60, deadline=None)


def read(path):
    """Read all that a log has, as `--events` does; return the runs, or the error."""
    try:
        runs = read_runs(path)
    except LogError as error:
        return error
    for run in runs:
        for _ in event_lines(run):
            pass
    return runs


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile") / "00000001.fjordlog"


@EXAMPLES
@given(content=st.binary(max_size=4_096), magic=st.booleans())
def test_random_bytes_are_no_log(file, content, magic):
    file.write_bytes((MAGIC if magic else b"") + content)
    assert isinstance(read(file), LogError)


@EXAMPLES
@given(content=st.binary(max_size=2_048), framed=st.booleans())
def test_random_bytes_behind_a_header_end_the_run(file, content, framed):
    file.write_bytes(MAGIC + frame(encode(header())) + (frame(content) if framed else content))
    (run,) = read(file)
    assert list(run.turns()) == []


@pytest.mark.parametrize("log", LOGS, ids=lambda each: each.stem)
@EXAMPLES
@given(data=st.data())
def test_flipped_bits_end_a_log_where_they_are(file, log, data):
    content = bytearray(log.read_bytes())
    at = data.draw(st.integers(0, len(content) * 8 - 1))
    content[at // 8] ^= 1 << (at % 8)
    file.write_bytes(content)
    found = read(file)
    if isinstance(found, LogError):
        return
    (run,), (whole,) = found, read_runs(log)
    shorter, longer = list(run.turns()), list(whole.turns())
    assert len(shorter) < len(longer)
    assert shorter[:-1] == longer[: len(shorter[:-1])]


entries = st.one_of(
    st.builds(Turn, st.integers(0, 2**47), st.booleans()),
    st.builds(ClockRead, st.integers(0, 9), st.integers(-(2**62), 2**62)),
    st.builds(WallClock, st.integers(-(2**62), 2**62)),
    st.builds(Sent, st.text(max_size=20), st.binary(max_size=20), st.integers(), st.booleans(), st.text(max_size=20)),
    st.builds(Requested, st.text(max_size=9), st.text(max_size=20), st.binary(max_size=9), st.just(""), st.binary()),
    st.builds(lambda topic, payload: Messages((topic,), (payload,)), st.text(max_size=20), st.binary(max_size=20)),
    st.recursive(st.none() | st.integers(-(2**63), 2**63), lambda each: st.lists(each, max_size=4), max_leaves=9),
)


@EXAMPLES
@given(found=st.lists(entries, max_size=20), now_ns=st.integers(-(2**62), 2**62))
def test_whatever_entries_say_they_are_listed_or_the_run_ends(file, found, now_ns):
    try:
        content = encode([now_ns, 0, True, found])
    except OverflowError:
        return
    file.write_bytes(MAGIC + frame(encode(header())) + frame(content))
    assert isinstance(read(file), list)


def test_giant_lengths_take_no_memory(file):
    head = MAGIC + frame(encode(header()))
    lies = {
        "a frame": struct.pack("<II", MAX_FRAME_BYTES, 0),
        "an array": frame(b"\x94\x01\x02\xc3\xdd\xff\xff\xff\xff"),
        "a text": frame(b"\x94\x01\x02\xc3\x91\x96\x09\xdb\xff\xff\xff\xff"),
        "bytes": frame(b"\x94\x01\x02\xc3\x91\x96\x09\xa1t\xc6\xff\xff\xff\xff"),
        "nesting": frame(b"\x94\x01\x02\xc3" + b"\x91" * 1_000_000),
    }
    for name, lie in lies.items():
        file.write_bytes(head + lie)
        tracemalloc.start()
        try:
            (run,) = read(file)
            assert list(run.turns()) == [], name
            assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY, name
        finally:
            tracemalloc.stop()


JUMPS = {
    "centuries": [Turn(MOST_PAUSE_NS, True)] * 60_000,
    "within a turn": [Turn(1, True), ClockRead(1, 2**61)],
    "back": [Turn(1, True), ClockRead(1, -5)],
    "one long pause": [[0, 2**61, True]],
}


@pytest.mark.parametrize("name", JUMPS)
def test_time_goes_on_as_it_can(file, name):
    file.write_bytes(MAGIC + frame(encode(header())) + frame(encode([0, 0, True, JUMPS[name]])))
    (run,) = read(file)
    assert run.damage is not None


def test_a_copy_that_grows_is_not_unpacked():
    bomb = zlib.compress(bytes(256 * 1024 * 1024), 9)
    assert len(bomb) < 300_000
    tracemalloc.start()
    try:
        with pytest.raises(LogError, match="torn, or larger than"):
            decompressed(bomb, "the spool", 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


def test_a_log_of_a_newer_version_says_so(file):
    file.write_bytes(MAGIC + frame(encode(msgspec.structs.replace(header(), format=2))))
    found = read(file)
    assert isinstance(found, FjordError)
    assert "has format 2, this program reads format 1" in found.message


def test_a_chunk_beside_its_log_is_no_log(file):
    file.write_bytes(MAGIC + frame(encode(Chunk(0, 0, True, ()))))
    assert isinstance(read(file), LogError)

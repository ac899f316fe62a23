"""Recorded motes send the same again, to the last byte, and changed ones do not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from firmware_sim.fleet import Air
from firmware_sim.mote.mote import Mote
from firmware_sim.mote.mote_events import ControlReceived
from firmware_sim.phenomena.traffic import Traffic
from firmware_sim.recorded_run import RunOptions, begin_recording, replay
from protocols.recording import recorder
from protocols.recording.command import DIFFERENT, NOT_COMPARABLE, app
from protocols.recording.comparison import compare, recorded_messages
from protocols.recording.entries import LogError
from protocols.recording.reading import read_runs
from tests.firmware_sim.recorded_motes import record

LOG = Path(__file__).parent / "recorded" / "bad_radio.fjordlog"
"""Three seconds of three motes; tests/firmware_sim/recorded_motes.py says how it was made."""


def called(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_motes_that_were_just_recorded_send_the_same_bytes_in_the_same_turns(tmp_path):
    fleet = record(tmp_path / "files", tmp_path / "log")
    (run,) = read_runs(tmp_path / "log")
    recorded, player = recorded_messages(run), replay(run)
    assert player.failure is None
    assert recorded == player.sent
    assert compare(recorded, player.sent).recorded["packet"] > 50
    assert fleet.packets_lost > 0


def test_where_each_turn_is_long_the_clocks_are_read_as_often_again(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "LONG_TURN_NS", 0)
    record(tmp_path / "files", tmp_path / "log", seconds=0.8)
    (run,) = read_runs(tmp_path / "log")
    assert any(turn.reads for turn in run.turns())
    found = compare(recorded_messages(run), replay(run).sent)
    assert found.first is None, found.first


def test_a_log_from_the_field_is_a_test():
    assert LOG.stat().st_size < 100_000
    shown = called(LOG)
    assert shown.exit_code == 0, shown.output
    assert "the same: " in shown.output
    lines = called(LOG, "--events").output.splitlines()
    assert any(" > packet s001l1/" in each for each in lines)
    assert any(" < control s001l1: program" in each for each in lines)
    assert any(" = disconnected" in each for each in lines)
    assert any("not published (the broker is away)" in each for each in lines)


def deaf(old):
    """A mote that does not take its second program."""
    received = []

    def handle(self, event):
        if isinstance(event, ControlReceived):
            received.append(event)
            if len(received) > 3:
                return []
        return old(self, event)

    return handle


CHANGES = {
    "a mote does not take control": (Mote, "handle", deaf),
    "a sample is otherwise": (Traffic, "sense", lambda old: lambda *a: tuple(1.0 for _ in old(*a))),
    "a packet is sent twice": (Air, "send", lambda old: lambda *a: (old(*a), old(*a))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_motes_do_is_found(name, monkeypatch):
    owner, method, change = CHANGES[name]
    monkeypatch.setattr(owner, method, change(getattr(owner, method)))
    shown = called(LOG)
    assert shown.exit_code == DIFFERENT, shown.output
    assert "s after the beginning" in shown.output
    assert "recorded:  packet s00" in shown.output


def test_a_trace_is_in_the_log(tmp_path):
    trace = tmp_path / "trace.csv"
    rows = [f"2012-03-01T12:00:{n // 50:02}.{n % 50 * 20:03}Z,s{m},{n}.0" for n in range(200) for m in (1, 2)]
    trace.write_text("\n".join(["time,sensor,speed", *rows]))
    record(tmp_path / "files", tmp_path / "log", trace=str(trace), speed=2.0, exit_at_end=True, hold_us=100_000)
    trace.unlink()
    (run,) = read_runs(tmp_path / "log")
    assert recorded_messages(run) == replay(run).sent
    assert any(each.topic.endswith("/s1/packet") for _, each in replay(run).sent)
    lacking = msgspec.structs.replace(run.header, state={})
    run.header = lacking
    with pytest.raises(LogError, match="lacks their trace"):
        replay(run)


def test_without_its_first_segment_a_log_is_not_compared(tmp_path):
    record(tmp_path / "files", tmp_path / "log", log_bytes=16_000, seconds=3.0)
    (run,) = read_runs(tmp_path / "log")
    assert not run.exact
    assert called(tmp_path / "log").exit_code == NOT_COMPARABLE


ODD_OPTIONS = [
    "",
    "{}",
    '{"world": "no such world"}',
    '{"motes": 100000000}',
    '{"motes": "x"}',
    "[" * 100_000,
    '{"preset": "/etc/x.toml"}',
    '{"radio": "/etc/passwd"}',
]


@pytest.mark.parametrize("options", ODD_OPTIONS)
def test_options_that_are_none_are_an_error_of_ours(options):
    (run,) = read_runs(LOG)
    run.header = msgspec.structs.replace(run.header, documents={"options": options})
    if options == "{}":
        assert replay(run).failure is None
        return
    with pytest.raises(LogError):
        replay(run)


def test_a_file_that_is_no_text_is_an_error_of_ours(tmp_path):
    (tmp_path / "radio.toml").write_bytes(b"\xff")
    with pytest.raises(LogError, match="no text"):
        begin_recording(tmp_path / "log", 1 << 20, RunOptions(radio=str(tmp_path / "radio.toml")))

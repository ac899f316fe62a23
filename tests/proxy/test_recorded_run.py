"""A recorded proxy does the same again, and a changed one does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protocols.recording import recorder
from protocols.recording.command import DIFFERENT, NOT_COMPARABLE, app
from protocols.recording.comparison import compare, recorded_messages
from protocols.recording.entries import LogError, Sent, Stopped
from protocols.recording.reading import read_runs
from protocols.recording.timeline import TickingLoop
from protocols.wire import topics
from protocols.wire.batches import decode_batch
from proxy.drivers.driver_registry import DriverRegistry
from proxy.drivers.settings import load_drivers
from proxy.fleet.fleet import Fleet
from proxy.running import service
from proxy.running.delivery_window import DeliveryWindow
from proxy.running.link_interface import BEGUN, SESSION_TOPIC
from proxy.running.recorded_run import begin_recording, replay, run_on
from proxy.running.session_messages import SessionMessages
from proxy.running.settings import ProxySettings
from proxy.running.unwritten_batches import FlushSchedule
from proxy.storage.stores import open_stores
from tests.proxy.conftest import demand
from tests.proxy.recorded_proxy import DRIVERS, ClusterAndMotes, record

LOG = Path(__file__).parent / "recorded" / "faulty_seconds.fjordlog"
"""Four seconds of a proxy with three motes; tests/proxy/recorded_proxy.py says how it was made."""
OLDER = LOG.with_name("quality_1.fjordlog")
"""The same of a proxy that published batches with a quality of service of 1, and sent all again after silence."""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    record(folder / "data", folder / "log", seconds=1.2, pause=0.002)
    return folder / "log"


def outcome(run):
    return compare(recorded_messages(run), replay(run).sent)


def failing(*_, **__):
    raise ZeroDivisionError("planted")


def called(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_a_proxy_that_was_just_recorded_does_the_same_in_the_same_turns(log):
    (run,) = read_runs(log)
    recorded, player = recorded_messages(run), replay(run)
    assert [each for each in recorded if "/spool" not in each[1].topic] == [
        each for each in player.sent if "/spool" not in each[1].topic
    ]
    assert outcome(run).recorded["batches"] > 5
    assert max(turn for turn, _ in recorded) > 300


def test_a_proxy_that_goes_on_with_devices_of_an_earlier_run_does_the_same_again(tmp_path):
    for number in (1, 2):
        record(tmp_path / "data", tmp_path / f"log{number}", seconds=0.5, drivers=DRIVERS)
        (run,) = read_runs(tmp_path / f"log{number}")
        found = outcome(run)
        assert found.first is None, found.first
        batches = [decode_batch(sent.payload) for _, sent in recorded_messages(run) if "/batches" in sent.topic]
        assert sum(each.rows for each in batches if each.stream == "climate")


def test_where_each_turn_is_long_the_clocks_are_read_as_often_again(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "LONG_TURN_NS", 0)
    record(tmp_path / "data", tmp_path / "log", seconds=0.5)
    (run,) = read_runs(tmp_path / "log")
    assert any(turn.reads for turn in run.turns())
    found = compare(recorded_messages(run), replay(run).sent)
    assert found.first is None, found.first


def test_a_log_from_the_field_is_a_test(tmp_path):
    assert LOG.stat().st_size < 50_000
    shown = called(LOG)
    assert shown.exit_code == 0, shown.output
    assert "the same: " in shown.output


def test_a_log_of_a_proxy_that_published_batches_with_1_is_replayed_until_it_sends_again():
    (run,) = read_runs(OLDER)
    recorded, player = recorded_messages(run), replay(run)
    assert player.failure is None
    found = compare(recorded, player.sent)
    assert {**found.recorded, "proxy_waits": 1} == found.replayed  # which that version did not publish
    assert found.first is not None
    assert (found.first.recorded.qos, found.first.replayed.qos) == (1, 0)
    batches = [each for each in recorded if each[1].topic.endswith("/batches")]
    alike = sum(turn < found.first.turn for turn, _ in batches)
    assert (alike, len(batches)) == (29, 33)


@pytest.mark.parametrize(("topic", "differences"), [("proxies/p/batches", 0), ("proxies/p/resumptions", 1)])
def test_only_the_quality_of_service_of_batches_is_not_compared(topic, differences):
    one, other = (Sent(f"fjord/v1/{topic}", b"", qos, False, "") for qos in (1, 0))
    assert compare([(1, one)], [(1, other)]).differences == differences


ONE_ROW = {"batch_rows": 1}
CHANGES = {
    "batches are cut later": (FlushSchedule, "seconds_left", lambda old: lambda *a, **k: old(*a, **k) + 0.01),
    "a batch has one row": (service, "fleet_limits", lambda old: lambda given: old(given.model_copy(update=ONE_ROW))),
    "a watermark is late": (Fleet, "cut", lambda old: lambda fleet, now_us: old(fleet, now_us - 10**9)[:-1]),
    "nothing is sent again": (
        DeliveryWindow,
        "handle",
        lambda old: lambda window, event, now_us: old(window, event, 0),
    ),
    "no demand is merged": (Fleet, "has_motes", lambda _: lambda *_: True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_a_proxy_does_is_found(name, monkeypatch):
    owner, method, change = CHANGES[name]
    monkeypatch.setattr(owner, method, change(getattr(owner, method)))
    shown = called(LOG)
    assert shown.exit_code == DIFFERENT, shown.output
    assert "caused by: " in shown.output


def test_a_fault_of_the_code_is_shown_where_it_arises(monkeypatch):
    monkeypatch.setattr(DriverRegistry, "__contains__", failing)
    shown = called(LOG)
    assert shown.exit_code == DIFFERENT
    assert "ZeroDivisionError: planted" in shown.output


def test_events_name_their_stimuli(log):
    shown = called(log, "--events")
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert any(" < packet m1/1/2  [" in each for each in lines)
    assert any(" > control m1: program" in each and "(caused by: packet m1/1/" in each for each in lines)
    assert any(" > batch p/" in each and "(caused by: task send batches)" in each for each in lines)
    assert any(each.endswith(" = disconnected") for each in lines)


def test_without_its_first_segment_a_log_is_replayed_as_after_a_restart(tmp_path, monkeypatch):
    record(tmp_path / "data", tmp_path / "log", seconds=2.0, pause=0.003, log_bytes=64_000)
    (run,) = read_runs(tmp_path / "log")
    assert not run.exact
    assert run.header.state.keys() == {"spool.sqlite", "catalog.sqlite"}
    shown = called(tmp_path / "log")
    assert shown.exit_code == NOT_COMPARABLE, shown.output
    monkeypatch.setattr(Fleet, "receive_packet", failing)
    shown = called(tmp_path / "log")
    assert shown.exit_code == DIFFERENT
    assert "ZeroDivisionError: planted" in shown.output


def test_a_killed_proxy_is_replayed_up_to_the_end_of_its_log(log, tmp_path):
    (segment,) = log.iterdir()
    # What follows the request to stop takes longer on a busy machine, and more of the log.
    (tmp_path / segment.name).write_bytes(segment.read_bytes()[: -segment.stat().st_size // 4])
    (run,) = read_runs(tmp_path)
    assert not any(isinstance(each, Stopped) for turn in run.turns() for each in turn.inputs)
    found = outcome(run)
    assert (found.first, found.differences) == (None, 0)
    assert max(turn for turn, _ in recorded_messages(run)) > 100


def test_a_log_is_replayed_up_to_wherever_it_was_torn(tmp_path):
    whole, turns = LOG.read_bytes(), set()
    for left in range(3_000, len(whole), 4_000):
        (tmp_path / LOG.name).write_bytes(whole[:left])
        (run,) = read_runs(tmp_path / LOG.name)
        if not any(True for _ in run.turns()):
            continue
        found, player = outcome(run), replay(run)
        assert (found.first, player.failure) == (None, None)
        turns.add(player.turn)
    assert len(turns) > 5


def test_a_log_in_which_nothing_has_happened_is_an_error_of_ours(tmp_path):
    (tmp_path / LOG.name).write_bytes(LOG.read_bytes()[:2_500])
    assert isinstance(called(tmp_path / LOG.name).exception, LogError)


def test_each_start_of_the_process_is_a_run(tmp_path):
    for _ in range(2):
        record(tmp_path / "data", tmp_path / "log", seconds=0.3)
    first, second = read_runs(tmp_path / "log")
    assert first.header.run != second.header.run
    for each in (first, second):
        assert outcome(each).first is None
    assert called(tmp_path / "log", "--run", 1).exit_code == 0
    assert isinstance(called(tmp_path / "log", "--run", 3).exception, LogError)


def test_the_log_holds_no_password(log):
    (run,) = read_runs(log)
    assert not [each for each in run.header.settings if "password" in each]


ROOMS = """
[[driver]]
kind = "json"
name = "rooms"
topic = "rooms/{mote}"
stream = "climate"
minimum_period = "1ms"
field = [{name = "t", path = "t", type = "real"}]
"""


class LinkOfDevices(ClusterAndMotes):
    """A link with a session of devices, which delivers some of their messages again."""

    def __init__(self, session):
        super().__init__(session)
        self.acknowledged = []

    def acknowledge(self, numbers):
        self.acknowledged += numbers


async def _play(recorder, link, count):
    await asyncio.sleep(0.02)
    link.put(topics.demand("climate"), demand(("a", ["t"], 1_000), stream="climate"), retain=True)
    link.put(SESSION_TOPIC, BEGUN)
    for number in range(1, count + 1):
        payload = b'{"t": %d}' % number
        link.put("rooms/hall", payload, number=1 << 16 | number)
        await asyncio.sleep(0.005)
        if number % 5 == 0:
            link.put("rooms/hall", payload, number=1 << 16 | number, again=True)
            await asyncio.sleep(0.005)
    while len(link.acknowledged) < count + count // 5:  # noqa: ASYNC110 - a disk makes it true
        await asyncio.sleep(0.005)
    recorder.stop()


def test_messages_of_the_session_of_devices_are_recorded_with_their_numbers(tmp_path, monkeypatch):
    (tmp_path / "drivers.toml").write_text(ROOMS)
    settings = ProxySettings(
        name="p", data=str(tmp_path / "data"), flush_interval=20_000, drivers=str(tmp_path / "drivers.toml")
    )
    links = []

    def make_link(session):
        links.append(LinkOfDevices(session))
        return links[0]

    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        recorder = begin_recording(tmp_path / "log", 1 << 20, settings)
        playing = []

        def began(_):
            playing.append(asyncio.create_task(_play(recorder, links[0], 20), context=recorder.outside.copy()))

        async def run():
            await run_on(recorder, settings, stores, make_link, load_drivers(tmp_path / "drivers.toml"), began)

        with asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
            runner.run(run())
        recorder.close()
    assert [each & 0xFFFF for each in links[0].acknowledged][:6] == [1, 2, 3, 4, 5, 5]
    (run,) = read_runs(tmp_path / "log")
    found = outcome(run)
    assert (found.first, found.differences) == (None, 0)
    assert found.recorded["batches"] > 1
    monkeypatch.setattr(SessionMessages, "received", lambda *_: True)
    assert outcome(run).differences, "the replay recognises what came again"

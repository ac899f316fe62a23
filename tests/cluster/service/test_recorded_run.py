"""A recorded cluster acknowledges, demands and answers the same again, and a changed one does not."""

from __future__ import annotations

import zlib
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.ingest.batch_reception import CommitCycle
from cluster.physical.plan_files import PlanFiles
from cluster.service.publishing.demand_publication import DemandPublication
from cluster.service.recorded_run import begin_recording, replay
from cluster.service.registry.registry import Registry
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from protocols.recording import recorder
from protocols.recording.command import DIFFERENT, NOT_COMPARABLE, app
from protocols.recording.comparison import compare, recorded_messages
from protocols.recording.entries import LogError, Requested
from protocols.recording.reading import read_runs
from tests.cluster.service.recorded_cluster import TOKEN, record

LOG = Path(__file__).parent / "recorded" / "faulty_proxies.fjordlog"
"""A second of a cluster; tests/cluster/service/recorded_cluster.py says how it was made."""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return the log of two runs over one data folder."""
    folder = tmp_path_factory.mktemp("recorded")
    statuses = record(folder / "data", folder / "log", seconds=0.8)
    assert {200, 201, 204, 400, 401} == set(statuses)
    record(folder / "data", folder / "log", seconds=0.4)
    return folder / "log"


def called(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.mark.parametrize("number", [0, 1])
def test_a_cluster_that_was_just_recorded_publishes_the_same_bytes(log, number):
    run = read_runs(log)[number]
    player = replay(run)
    found = compare(recorded_messages(run), player.sent)
    assert (player.failure, found.first) == (None, None)
    assert found.recorded["acks"] > 5
    assert found.recorded["demand"] > 1
    assert found.recorded["answer"] > 0


def test_a_cluster_begins_with_its_streams_as_they_were(log):
    first, second = read_runs(log)
    assert not any("_delta_log" in name for name in first.header.state)
    assert any(name.startswith("streams/traffic/_delta_log/") for name in second.header.state)
    assert not any(name.endswith(".parquet") and "_delta_log" not in name for name in second.header.state)
    sequences = [each.topic for _, each in replay(second).sent if each.topic.endswith("/acks")]
    assert sequences


def test_where_each_turn_is_long_the_clocks_are_read_as_often_again(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "LONG_TURN_NS", 0)
    record(tmp_path / "data", tmp_path / "log", seconds=0.4)
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
    assert any(" < batch p/e/traffic/7  [" in each for each in lines)
    assert any(" < request POST /v1/queries" in each for each in lines)
    assert any(" > ack p/e/traffic/" in each and "(caused by: batch p/e/traffic/" in each for each in lines)
    assert any(" > demand traffic@" in each and "(caused by: task request " in each for each in lines)
    assert any(each.endswith(" = disconnected") for each in lines)


CHANGES = {
    "an acknowledgement is withheld": (
        CommitCycle,
        "made",
        lambda old: lambda cycle, commit: old(cycle, commit)[:-1],
    ),
    "a batch that comes twice is a gap": (
        StreamAdmission,
        "decide",
        lambda old: lambda *a, **k: Verdict.HOLD if (found := old(*a, **k)) is Verdict.REPEATED else found,
    ),
    "a broker that returns is sent no demands": (
        DemandPublication,
        "publish_again",
        lambda old: lambda self, streams: old(self, []),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_a_cluster_does_is_found(name, monkeypatch):
    owner, method, change = CHANGES[name]
    monkeypatch.setattr(owner, method, change(getattr(owner, method)))
    shown = called(LOG)
    assert shown.exit_code == DIFFERENT, shown.output
    assert "s after the beginning" in shown.output
    assert "caused by: " in shown.output


def test_the_log_holds_no_token_and_no_address(log):
    content = b"".join(each.read_bytes() for each in log.iterdir())
    assert TOKEN.encode() not in content
    (*_, run) = read_runs(log)
    assert {"api_token", "broker", "folder"}.isdisjoint(run.header.settings)


def test_a_request_without_its_token_is_no_input(log):
    run = read_runs(log)[0]
    requests = [each for turn in run.turns() for each in turn.inputs if isinstance(each, Requested)]
    assert requests
    assert len([each for each in requests if (each.method, each.path) == ("DELETE", "/v1/queries/q5")]) == 1


def test_what_is_killed_is_replayed_up_to_the_end_of_its_log(tmp_path):
    whole, turns = LOG.read_bytes(), set()
    for left in range(len(whole) // 3, len(whole), len(whole) // 5):
        (tmp_path / LOG.name).write_bytes(whole[:left])
        (run,) = read_runs(tmp_path / LOG.name)
        if not any(True for _ in run.turns()):
            continue
        player = replay(run)
        assert (compare(recorded_messages(run), player.sent).first, player.failure) == (None, None)
        turns.add(player.turn)
    assert len(turns) > 2


def test_without_its_first_segment_a_log_is_not_compared(tmp_path):
    record(tmp_path / "data", tmp_path / "log", seconds=2.0, log_bytes=50_000)
    (run,) = read_runs(tmp_path / "log")
    assert not run.exact
    assert called(tmp_path / "log").exit_code == NOT_COMPARABLE


def test_a_cluster_with_relations_is_not_recorded(tmp_path):
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"), max_queries=5)
    registry.relations.create("cities", "CREATE RELATION ...", ())
    registry.close()
    with pytest.raises(LogError, match="with relations cannot be recorded"):
        begin_recording(tmp_path / "log", 1 << 20, ClusterSettings(folder=tmp_path))
    assert not (tmp_path / "log").exists()


def test_a_cluster_that_records_keeps_its_plans(tmp_path):
    settings = ClusterSettings(folder=tmp_path / "data", replan=True)
    with closing(begin_recording(tmp_path / "log", 1 << 20, settings)) as recording:
        server = ClusterServer(settings, timeline=recording)
        assert not server.parts.queries.replanning._on
        server.close()


ODD_FILES = [
    "",
    "../outside",
    "/etc/passwd",
    "plans/1.json",
    "plans/../../outside",
    "streams/../x/_delta_log/a",
    "streams/a/_delta_log/../../../b",
    "streams/.hidden/_delta_log/a",
    "streams/a/b.parquet",
    "registry.sqlite/x",
    "checkpoint-a/offsets/0",
]


@pytest.mark.parametrize("name", ODD_FILES)
def test_files_that_no_data_folder_has_are_never_written(name):
    (run,) = read_runs(LOG)
    content = next(iter(run.header.state.values()))
    run.header = msgspec.structs.replace(run.header, state={**run.header.state, name: content})
    with pytest.raises(LogError, match="that no data folder has"):
        replay(run)


ODD_HEADERS = {
    "no settings": {"settings": {"buckets": "many"}},
    "too many buckets": {"settings": {"buckets": 10**9}},
    "too many publishers": {"settings": {"publishers": 10**9}},
    "no compressed file": {"state": {"registry.sqlite": b"x"}},
    "no registry": {"state": {"registry.sqlite": zlib.compress(b"no database" * 100)}},
}


@pytest.mark.parametrize("name", ODD_HEADERS)
def test_a_header_that_no_cluster_writes_is_an_error_of_ours(name):
    (run,) = read_runs(LOG)
    run.header = msgspec.structs.replace(run.header, **ODD_HEADERS[name])
    with pytest.raises(LogError):
        replay(run)

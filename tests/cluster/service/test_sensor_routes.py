"""Sensors over HTTP and on the command line."""

from __future__ import annotations

import asyncio
import json

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from cluster.errors import ClusterError
from cluster.service.catalog.sensor_catalog import EntryPublished, ProxyChanged, SensorCatalog
from cluster.service.catalog.sensors_command import app
from cluster.service.client.api_client import ApiClient, ApiUnreachableError, RefusedError
from cluster.service.http.catalog_routes import sensor_routes
from cluster.service.http.error_responses import handle_errors
from cluster.service.http.sensor_questions import SensorQuestions
from protocols.wire.catalog import MoteEntry, MoteState
from protocols.wire.packets import Health
from tests.cluster.service.driven_devices import device

PROPERTIES = {"m1": {"segment": 3, "position": "mile 1.5"}, "m2": {"segment": 4}, "m3": {}}


def entry(mote, **changes):
    found = MoteEntry(
        version=1,
        mote=mote,
        proxy="north",
        kind="loop",
        stream="traffic",
        properties=PROPERTIES[mote],
        state=MoteState.SLEEPING if mote == "m3" else MoteState.SAMPLING,
        period_us=0 if mote == "m3" else 1_500_000,
        default_period_us=300_000_000,
        minimum_period_us=16_000,
        program=7,
        packets_received=9,
        packets_lost=1,
        packets_rejected=0,
        samples_received=90,
        samples_late=0,
        health=None if mote == "m3" else Health(0.125, 90, 9, 0, 0),
        heard_us=1_330_560_000_000_000,
    )
    return msgspec.structs.replace(found, **changes)


@pytest.fixture
def catalog():
    found = SensorCatalog()
    found.apply(ProxyChanged("north", online=True))
    for mote in PROPERTIES:
        found.apply(EntryPublished(entry(mote)))
    return found


@pytest.fixture
def questions():
    found = SensorQuestions()
    yield found
    found.end()


@pytest.fixture
def application(catalog, questions):
    api = FastAPI()
    handle_errors(api)
    api.include_router(sensor_routes(catalog, questions))
    return api


@pytest.fixture
async def api(application):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://cluster") as found:
        yield found


async def test_sensors_are_listed_with_all_columns(api):
    body = (await api.get("/v1/sensors")).json()
    assert [row["sensor"] for row in body["rows"]] == ["m1", "m2", "m3"]
    assert body["columns"][:3] == ["sensor", "proxy", "type"]
    assert body["columns"][-3:] == ["proxy_online", "position", "segment"]
    assert body["rows"][1]["position"] is None


async def test_sensors_are_listed_by_a_condition(api):
    answer = await api.get("/v1/sensors", params={"where": "type = 'loop' AND segment IN (3, 5)"})
    assert [row["sensor"] for row in answer.json()["rows"]] == ["m1"]


async def test_a_select_over_sensors_is_answered(api):
    answer = await api.get("/v1/sensors", params={"sql": "SELECT state, COUNT(*) AS n FROM sensors GROUP BY state"})
    assert answer.json()["columns"] == ["state", "n"]
    assert sorted(row["n"] for row in answer.json()["rows"]) == [1, 2]


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"where": "segmnt = 3"}, 400),
        ({"sql": "SELECT * FROM read_csv('/etc/passwd')"}, 400),
        ({"where": "TRUE", "sql": "SELECT * FROM sensors"}, 400),
        ({"where": ""}, 422),
        ({"where": "x" * 10_001}, 422),
    ],
)
async def test_wrong_requests_are_refused_with_the_reason(api, parameters, status):
    assert (await api.get("/v1/sensors", params=parameters)).status_code == status


async def test_bad_sql_comes_underlined(api):
    body = (await api.get("/v1/sensors", params={"where": "segmnt = 3"})).json()
    assert body["error"] == "FjordSqlError"
    assert "^^^^^^" in body["underlined"]
    assert "did you mean segment?" in body["hint"]


# --- command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(application, monkeypatch):
    """Run ``fjord sensors`` against the application."""

    def answer(request):
        async def send():
            transport = httpx.ASGITransport(application)
            async with httpx.AsyncClient(transport=transport) as sending:
                answered = await sending.request(request.method, request.url)
                return httpx.Response(answered.status_code, content=answered.content, headers=answered.headers)

        return asyncio.run(send())

    def in_process(client, address, *, token=None, tls=None):
        client._http = httpx.Client(base_url=address, transport=httpx.MockTransport(answer))

    monkeypatch.setattr(ApiClient, "__init__", in_process)
    monkeypatch.setenv("COLUMNS", "40")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_a_table_for_people(run):
    result = run()
    assert result.exit_code == 0, result.output
    heading, first, _, third = (line.split() for line in result.output.splitlines())
    before = [
        "sensor",
        "proxy",
        "proxy_online",
        "type",
        "stream",
        "state",
        "period",
        "battery",
        "lifetime_days",
        "loss",
    ]
    assert heading == [*before, "heard", "position", "segment"]
    assert " ".join(first) == (
        "m1 north yes loop traffic sampling 1s500ms 12.5% - 10.0% 2012-03-01T00:00:00Z mile 1.5 3"
    )
    assert third[5:8] == ["sleeping", "asleep", "-"]


def test_sensors_that_sample_less_often_for_their_batteries_are_shown(run, catalog):
    catalog.apply(EntryPublished(entry("m1", stretched=4, lifetime_kept=False)))
    heading, first, second, _ = (line.split() for line in run().output.splitlines())
    place = heading.index("stretched")
    assert heading[place + 1] == "lifetime_kept"
    assert (first[place], second[place]) == ("4", "1")
    assert (first[place + 1], second[place + 1]) == ("no", "yes")


def test_a_device_is_shown_with_its_driver_and_what_became_of_its_messages(run, catalog):
    counts = {"not_demanded": 12, "duplicate": 3, "retained": 2, "no_value": 1, "reset": 1}
    catalog.apply(EntryPublished(device(counts=counts, trouble="the bridge is unknown")))
    heading, row = (line for line in run("--where", "sensor = 'bell'").output.splitlines())
    assert {"driver", "counts", "trouble"} <= set(heading.split())
    assert "mains" not in heading.split()
    shown = " ".join(row.split())
    assert "sampling own rules 50.0%" in shown
    assert "shed not_demanded 12, duplicate 3, retained 2 and 2 more the bridge is unknown" in shown
    (found,) = json.loads(run("--json", "--where", "sensor = 'bell'").output)
    assert found["counts"] == "not_demanded 12, duplicate 3, retained 2, no_value 1, reset 1"
    assert (found["publishes"], found["mains"], found["driver"]) == (True, False, "shed")
    named = run("--where", "sensor = 'bell'", "--columns", "period_us,expected_every_us").output
    assert [" ".join(line.split()) for line in named.splitlines()] == ["period expected_every_us", "own rules -"]


def test_the_command_prints_the_columns_that_are_named(run):
    result = run("--where", "segment = 3", "--columns", "Sensor, minimum_period_us")
    assert [line.split() for line in result.output.splitlines()] == [["sensor", "minimum_period"], ["m1", "16ms"]]


def test_the_command_prints_all_columns_only_on_request(run):
    assert "samples_late" in run("--columns", "all").output
    assert "samples_late" not in run().output


def test_json_has_every_column(run):
    rows = json.loads(run("--json").output)
    assert (len(rows), rows[0]["period_us"], rows[0]["samples_late"]) == (3, 1_500_000, 0)
    assert json.loads(run("--json", "--columns", "segment").output)[0] == {"segment": 3}


def test_the_result_of_a_select_has_its_columns(run):
    result = run("--sql", "SELECT type, COUNT(*) AS motes, MIN(battery) FROM sensors GROUP BY type")
    assert [line.split() for line in result.output.splitlines()] == [
        ["type", "motes", "min_battery"],
        ["loop", "3", "12.5%"],
    ]


def test_names_of_motes_are_printed_without_control_characters(run):
    assert run("--sql", "SELECT '[red]\x1b[2J' AS kind FROM sensors LIMIT 1").output.split() == [
        "kind",
        "[red]\N{REPLACEMENT CHARACTER}[2J",
    ]


def test_the_command_prints_that_nothing_was_found(run):
    assert run("--where", "FALSE").output == "nothing found\n"


def test_a_condition_and_a_select_together_are_wrong_usage(run):
    assert run("--where", "TRUE", "--sql", "SELECT * FROM sensors").exit_code == 2


def test_errors_of_the_cluster_and_of_columns_are_errors_of_fjord(run):
    refused = run("--where", "segmnt = 3")
    assert isinstance(refused.exception, RefusedError)
    assert "^^^^^^" in refused.exception.message
    unknown = run("--columns", "sensr")
    assert isinstance(unknown.exception, ClusterError)
    assert "did you mean sensor?" in str(unknown.exception)


def test_without_a_cluster_the_command_fails_with_an_error_of_ours():
    result = CliRunner().invoke(app, ["--api", "http://127.0.0.1:9"])
    assert isinstance(result.exception, ApiUnreachableError)
    assert result.exit_code == 1

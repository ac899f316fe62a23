"""Energy over HTTP and on the command line."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

from cluster.service.billing.bill import Divided, Spent, Splitter, make_bill
from cluster.service.billing.command import print_bill, print_energy
from cluster.service.catalog.sensor_catalog import EntryPublished, ProxyChanged
from cluster.service.client.api_client import ApiClient
from cluster.service.query_command import query
from protocols.wire.packets import Health
from protocols.wire.programs import SamplingProgram
from tests.cluster.service.conftest import application
from tests.cluster.service.driven_devices import device
from tests.cluster.service.energy_cases import SCHEMAS, SECOND, entry

SQL = "SELECT speed FROM traffic SAMPLE EVERY 1 SECOND"
AVERAGE = "SELECT AVG(speed) AS mean FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)"
HERTZ = SamplingProgram(("speed",), SECOND)


def report_health(sensors, minutes, mote="m1"):
    """Let a mote report that it has sampled at 1 Hz for so many minutes."""
    done = minutes * 60
    health = Health(None, done, done, done * 500, done * 50_000)
    about = entry(mote, health=health, heard_us=done * SECOND, wanted=HERTZ, milliwatts=3.0)
    sensors.apply(EntryPublished(msgspec.structs.replace(about, properties={"sensor": mote})))


@pytest.fixture
def sensors(service):
    service.sensors.apply(ProxyChanged("north", online=True))
    return service.sensors


@pytest.fixture
async def api(service):
    async with application(service.parts()) as found:
        yield found


async def add(api, name, sql):
    assert (await api.post("/v1/queries", json={"sql": sql, "name": name})).status_code == 201


async def bill(api):
    answer = await api.get("/v1/bill")
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize("words", ["", "EXPLAIN ENERGY ", "  explain\n energy\n"])
async def test_explain_energy_returns_the_cost_of_a_query(api, sensors, words):
    report_health(sensors, 0)
    report_health(sensors, 1)
    answer = await api.post("/v1/explain/energy", json={"sql": words + AVERAGE})
    assert answer.status_code == 200
    (line,) = answer.json()["lines"]
    assert (line["motes"], line["examples"], line["before"]["does"]) == (1, ["m1"], "sleep")
    assert line["alone"]["does"] == line["after"]["does"]
    assert line["measured_milliwatts"] > 0
    assert (await api.get("/v1/queries")).json() == []


async def test_a_query_that_runs_already_costs_nothing_more(api, sensors):
    report_health(sensors, 0)
    await add(api, "q1", SQL)
    body = (await api.post("/v1/explain/energy", json={"sql": SQL})).json()
    assert body["totals"]["adds"]["value"] == 0


async def test_errors_point_into_the_text_that_was_sent(api):
    answer = await api.post("/v1/explain/energy", json={"sql": "EXPLAIN ENERGY SELECT sped FROM traffic"})
    assert answer.status_code == 400
    assert (answer.json()["error"], answer.json()["column"]) == ("FjordSqlError", 23)
    assert (await api.post("/v1/explain/energy", json={"sql": ""})).status_code == 422


async def test_without_queries_the_bill_is_empty(api):
    found = await bill(api)
    assert (found["queries"], found["joules"], found["since_us"], found["motes"]) == ([], 0.0, None, 0)


async def test_each_query_pays_for_the_time_it_ran(api, sensors):
    """
    minutes   0      10      20      30
    a         |------|-------|-------|
    b                |-------|
    """
    await add(api, "a", SQL)
    report_health(sensors, 0)
    report_health(sensors, 10)
    await add(api, "b", SQL)
    first = await bill(api)
    report_health(sensors, 20)
    second = await bill(api)
    assert (await api.delete("/v1/queries/b")).status_code == 204
    report_health(sensors, 30)
    third = await bill(api)

    def joules(found):
        return {each["query"]: each["joules"] for each in found["queries"]}

    assert joules(first)["b"] == 0
    assert joules(first)["a"] != 0
    assert joules(second)["b"] == pytest.approx(joules(first)["a"] / 2)
    assert joules(third)["a"] == pytest.approx(2.5 * joules(first)["a"])
    assert third["ended_joules"] == pytest.approx(joules(second)["b"])
    assert third["joules"] == pytest.approx(3 * first["joules"])
    parts = sum(joules(third).values()) + third["ended_joules"] + third["everybody_joules"] + third["unbilled_joules"]
    assert parts == pytest.approx(third["joules"])
    assert third["expected_joules"] == pytest.approx(3e-3 * 1800)
    assert [each["milliwatts_share"] for each in second["queries"]] == pytest.approx(
        [second["queries"][0]["milliwatts_share"]] * 2
    )


async def test_periods_are_separate_even_if_no_bill_is_requested_between_them(api, sensors):
    await add(api, "a", SQL)
    report_health(sensors, 0)
    report_health(sensors, 10)
    await add(api, "b", SQL)
    report_health(sensors, 20)
    await api.delete("/v1/queries/a")
    report_health(sensors, 30)
    found = await bill(api)
    assert [each["query"] for each in found["queries"]] == ["b"]
    (query,) = found["queries"]
    assert query["joules"] == pytest.approx(found["ended_joules"])


# -- on the command line


@pytest.fixture
def answers(monkeypatch):
    found = {}
    monkeypatch.setattr(ApiClient, "explain", lambda self, sql, parameters=None: "as text")
    monkeypatch.setattr(ApiClient, "explain_energy", lambda self, sql, parameters=None: found["energy"])
    monkeypatch.setattr(ApiClient, "bill", lambda self: found["bill"])
    return found


async def test_explain_energy_prints_motes_devices_and_programs(api, sensors, answers):
    for minutes in (0, 10):
        report_health(sensors, minutes)
        report_health(sensors, minutes, "m2")
    sensors.apply(EntryPublished(entry("m3", device="", battery_joules=None)))
    answers["energy"] = (await api.post("/v1/explain/energy", json={"sql": SQL})).json()
    for arguments in (["explain", "--energy", SQL], ["explain", f"EXPLAIN ENERGY {SQL}"]):
        shown = CliRunner().invoke(query, arguments)
        assert shown.exit_code == 0, shown.output
        assert "m1, m2" in shown.output
        assert "telosb?" in shown.output
        assert all(line["alone"]["does"] in shown.output for line in answers["energy"]["lines"])
        assert "assumed: 1 mote does not report a device" in shown.output
    assert json.loads(CliRunner().invoke(query, ["explain", "--energy", "--json", SQL]).output) == answers["energy"]
    assert CliRunner().invoke(query, ["explain", SQL]).output == "as text\n"
    assert CliRunner().invoke(query, ["explain", "--json", SQL]).exit_code == 2


async def test_explain_energy_prints_that_no_mote_is_needed(api, capsys):
    print_energy((await api.post("/v1/explain/energy", json={"sql": SQL})).json())
    assert "it demands nothing of any mote: no proxy has announced a mote of traffic" in capsys.readouterr().out


async def test_the_bill_is_printed_by_query(api, sensors, answers, capsys):
    print_bill(await bill(api))
    assert "it is unknown yet" in capsys.readouterr().out
    await add(api, "fast", SQL)
    await add(api, "slow", AVERAGE)
    report_health(sensors, 0)
    report_health(sensors, 10)
    answers["bill"] = await bill(api)
    shown = CliRunner().invoke(query, ["bill"])
    assert shown.exit_code == 0, shown.output
    for word in ("fast", "slow", "shared (asleep)", "in all", "since 1970-01-01T00:00:00Z"):
        assert word in shown.output
    assert json.loads(CliRunner().invoke(query, ["bill", "--json"]).output) == answers["bill"]


async def test_devices_without_an_energy_model_and_those_of_a_proxy_that_is_gone_are_not_billed(api, sensors):
    report_health(sensors, 0)
    await add(api, "q1", SQL)
    before = await bill(api)
    described = (await api.post("/v1/explain/energy", json={"sql": SQL})).json()
    for number, changes in enumerate(UNMODELLED):
        found = device(f"d{number}", **changes)
        sensors.apply(EntryPublished(found))
        later = msgspec.structs.replace(found, heard_us=found.heard_us + 60 * SECOND, health=Health(0.5, 9, 9, 99, 99))
        sensors.apply(EntryPublished(later))
    now = await bill(api)
    assert now == {**before, "without_model": len(UNMODELLED)}
    explained = (await api.post("/v1/explain/energy", json={"sql": SQL})).json()
    assert explained == {**described, "without_model": len(UNMODELLED)}
    sensors.apply(EntryPublished(device("known", publishes=False, device="micaz", battery_joules=20_000.0)))
    assert (await bill(api))["motes"] == before["motes"] + 1
    sensors.apply(ProxyChanged("north", online=False))
    gone = await bill(api)
    assert (gone["motes"], gone["milliwatts"]["value"], gone["without_model"]) == (0, 0, 0)
    assert gone["joules"] == before["joules"]


UNMODELLED = (
    {"publishes": True},
    {"publishes": False, "mains": True, "device": "micaz"},
    {"publishes": False, "device": "TS0201"},
    {"publishes": False, "device": ""},
)
"""Entries of devices of which no model says what they draw."""


def test_a_bill_says_how_many_devices_are_not_in_it(capsys):
    bill = make_bill([entry(), device()], {}, SCHEMAS, Splitter(), Spent(Divided()))
    print_bill(msgspec.to_builtins(bill))
    assert "not billed: 1 device on mains, or of which it is unknown what they draw" in capsys.readouterr().out

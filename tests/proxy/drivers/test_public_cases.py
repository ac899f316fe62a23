"""Messages built after public reports, with answers computed by hand: nothing is lost between a device and its stream.

half messages   Koenkk/zigbee2mqtt 9113         retained copies   1technophile/OpenMQTTGateway 922
bare nan        ioBroker/ioBroker.sonoff 65     bridge updated    Koenkk/zigbee2mqtt 25379
zeros left out  chirpstack/chirpstack 43
"""

from __future__ import annotations

import json
from datetime import datetime
from statistics import mean

import pytest

from protocols.wire.packets import Announcement, Packet
from protocols.wire.programs import program_number, publishing_program
from proxy.drivers.driver import KnownDevice
from proxy.drivers.settings import read_drivers
from tests.proxy.drivers.conftest import NOW, RECORDED, S


def instant(text):
    return datetime.fromisoformat(text).timestamp()


class Table:
    """The tuples that a driver makes: by column, NULL as None, with `at` in seconds since 1970."""

    def __init__(self, session, entry):
        (driver,) = read_drivers({"driver": [{"kind": "json", "name": "d", **entry}]}, "test")
        self.it = session(driver)
        self.rows = []
        self.reasons = []
        self.streams = {}

    def add(self, output):
        self.reasons += [each.reason for each in output.rejections]
        for frame in output.frames:
            if isinstance(frame, Announcement):
                self.streams[frame.mote] = frame.stream
                continue
            program = publishing_program(self.streams[frame.mote])
            assert frame.program == program_number(program)
            for sample in frame.samples:
                at = (frame.clock_us - sample.age_us) / S
                self.rows.append({"at": at, **dict(zip(program.fields, sample.values, strict=True))})
        return output

    def send(self, at, topic, content, **options):
        return self.add(self.it.at(at - NOW / S).send(topic, content, **options))

    def tick(self, at):
        return self.add(self.it.at(at - NOW / S).tick())

    def column(self, name):
        return [each[name] for each in self.rows if each[name] is not None]


def lines(name):
    return [json.loads(each) for each in (RECORDED / name).read_text().splitlines()]


OPTIONAL = [{"name": each, "path": each, "type": "real", "optional": True} for each in ("temperature", "humidity")]


@pytest.mark.parametrize(
    ("changes", "rows", "pairs"), [({}, 7, 0), ({"merge_within": "500ms"}, 4, 3)], ids=["each", "merged"]
)
@pytest.mark.parametrize("device_time", [True, False])
def test_half_messages(session, changes, rows, pairs, device_time):
    time = {"time": {"path": "ts", "form": "iso8601"}} if device_time else {}
    table = Table(session, {"topic": "rooms/{mote}", "stream": "rooms", "field": OPTIONAL, **time, **changes})
    for each in lines("half_messages.jsonl"):
        table.send(instant(each["ts"]), "rooms/hall", each)
    table.tick(instant("2026-03-02T08:01:00Z"))
    temperature, humidity = table.column("temperature"), table.column("humidity")
    found = (len(table.rows), len(temperature), len(humidity), mean(temperature), mean(humidity))
    assert found == (rows, 3, 3, 22.0, 42.0)
    assert sum(None not in each.values() for each in table.rows) == pairs
    assert len(table.rows) + table.it.driver.counts_of("hall").get("merged", 0) == 7
    assert table.rows[0]["at"] == instant("2026-03-02T08:00:05Z")


def test_a_bare_nan_costs_its_fields_only(session):
    fields = [{"name": f"p{place}", "path": f"P-{place}.Temperature", "type": "real"} for place in (0, 2, 4)]
    time = {"path": "Time", "form": "iso8601"}
    entry = {"topic": "tele/{mote}/SENSOR", "stream": "probes", "field": fields, "time": time}
    table = Table(session, entry)
    for line in (RECORDED / "bare_nan.txt").read_text().splitlines():
        topic, _, payload = line.partition(" ")
        at = instant(payload.partition('"Time":"')[2][:19] + "Z")
        table.send(at, topic, payload.encode())
    assert (len(table.rows), table.reasons) == (3, [])
    p2 = table.column("p2")
    assert (mean(table.column("p0")), len(p2), mean(p2), mean(table.column("p4"))) == (17.5, 2, 12.5, 10.5)
    assert table.it.driver.counts_of("boiler") == {"field_broken": 1}


def test_zeros_that_are_left_out_have_defaults(session):
    fields = [
        {"name": "frame", "path": "fCnt", "type": "integer", "kind": "counter", "modulus": 65_536, "default": 0},
        {"name": "dr", "path": "dr", "type": "real", "default": 0},
        {"name": "level", "path": "object.level", "type": "real", "default": 0},
    ]
    entry = {
        "topic": "up/{mote}",
        "stream": "tanks",
        "field": fields,
        "time": {"path": "time", "form": "iso8601"},
        "property": [{"name": "tank", "path": "deviceInfo.deviceName"}],
    }
    table = Table(session, entry)
    for each in lines("zeros_left_out.jsonl"):
        table.send(instant(each["time"]), "up/0011223344556677", each)
    got, sent = len(table.rows), max(table.column("frame")) - min(table.column("frame")) + 1
    assert (got, sent, sent - got, mean(table.column("dr")), mean(table.column("level"))) == (4, 5, 1, 2.0, 12.5)
    announced = table.it.driver.announce("0011223344556677", **table.it.times).frames[0]
    assert announced.properties == {"sensor": "0011223344556677", "tank": "tank-7"}


def test_retained_copies_are_no_samples_and_the_first_live_message_after_a_restart_is(session):
    entry = {"topic": "site/{mote}/state", "stream": "site", "field": [{"name": "t", "path": "temp", "type": "real"}]}
    table, boot = Table(session, entry), 1
    for each in lines("retained_copies.jsonl"):
        if "note" in each:  # the proxy was restarted
            driver = table.it.driver
            announcement = driver.announce("cellar", **table.it.times).frames[0]
            again, boot = Table(session, entry), boot + 1
            again.rows, again.reasons = table.rows, table.reasons
            known = KnownDevice("cellar", driver.device_of("cellar"), boot, announcement, driver.state_of("cellar"))
            table = again
            restored = table.it.at(instant(each["rx"]) - NOW / S).driver.restore([known], **table.it.times)
            first, promise = table.add(restored).frames
            assert (first.boot, promise.boot, promise.records) == (boot, boot, ())
        table.send(instant(each["rx"]), each["topic"], each["payload"], retained=bool(each["retain"]))
    hours = [(each["at"] // 3600, each["t"]) for each in table.rows]
    assert [(hour - hours[0][0], value) for hour, value in hours] == [(0, 21.0), (1, 23.0)]
    assert table.reasons == ["retained", "retained"]


def test_a_bridge_that_is_updated_changes_paths(session):
    entry = {
        "topic": "zigbee2mqtt/{mote}",
        "stream": "yards",
        "field": [{"name": "lux", "path": "illuminance", "type": "real", "unit": "lx"}],
        "version": {"topic": "zigbee2mqtt/bridge/info"},
        "mapping": [{"versions": "<2", "paths": {"lux": "illuminance_lux"}}, {"versions": ">=2, <3"}],
    }
    table = Table(session, entry)
    messages = lines("bridge_updated.jsonl")
    table.send(instant(messages[1]["rx"]), messages[1]["topic"], messages[1]["payload"])
    assert table.reasons == ["bridge_version"], "a number by the wrong path would be a wrong number"
    for each in messages:
        table.send(instant(each["rx"]), each["topic"], each["payload"], retained=bool(each.get("retain")))
    assert (mean(table.column("lux")), table.it.driver.trouble_of("yard")) == (18.75, "")
    output = table.send(instant("2026-03-08T06:06:00Z"), "zigbee2mqtt/bridge/info", {"version": "3.1"}, retained=True)
    assert "'3.1'" in output.notices[0].text
    assert "'3.1'" in table.it.driver.trouble_of("yard")


def test_the_version_of_a_bridge_is_known_after_a_restart(session):
    entry = {
        "topic": "z/{mote}",
        "stream": "yards",
        "field": [{"name": "lux", "path": "a", "type": "real"}],
        "version": {"topic": "z/bridge/info"},
        "mapping": [{"versions": "<2", "paths": {"lux": "b"}}],
    }
    table = Table(session, entry)
    table.send(NOW / S, "z/bridge/info", {"version": "1.2"})
    table.send(NOW / S, "z/yard", {"a": 1, "b": 2})
    announcement = table.it.driver.announce("yard", **table.it.times).frames[0]
    again = Table(session, entry)
    known = KnownDevice("yard", "yard", 2, announcement, table.it.driver.state_of("yard"))
    again.add(again.it.driver.restore([known], **again.it.times))
    again.send(NOW / S + 1, "z/yard", {"a": 1, "b": 2})
    assert again.column("lux") == table.column("lux") == [2.0]


def test_packets_are_of_one_kind(session):
    table = Table(session, {"topic": "a/{mote}", "stream": "s", "field": OPTIONAL})
    output = table.send(NOW / S, "a/b", {"temperature": 1})
    assert [type(each) for each in output.frames] == [Announcement, Packet]

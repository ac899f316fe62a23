"""Every kind of driver, setting and reason of rejection is in docs/how-to/connect-devices.md; no payload raises."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import proxy.drivers
from protocols.deployment.broker_configuration import Access, part_rules
from protocols.deployment.names import Names, ProxyPart
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from proxy.drivers import settings
from proxy.drivers.field_mapping import ValueFault
from proxy.drivers.settings import read_drivers

S = 1_000_000
NOW = 1_700_000_000 * S
ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "how-to" / "connect-devices.md").read_text("utf-8")
(EXAMPLE,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)
ENTRIES = tomllib.loads(EXAMPLE)["driver"]
REJECTING = {"Rejection", "PayloadError", "_rejected", "_rejection"}
PAYLOADS = st.binary(max_size=80) | st.sampled_from(
    [b"", b"21.5", b"T=21.5;H=40", b"{}", b"[{}]", b'{"temperature": 1e999}', b'{"battery": "x"}', b"\xff" * 300_000]
)


def models() -> list[type[settings._Settings]]:
    return [each for each in settings._Settings.__subclasses__() if each.__module__ == settings.__name__]


def reasons() -> Iterator[str]:
    for file in Path(proxy.drivers.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and node.args:
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if name in REJECTING and isinstance(node.args[0], ast.Constant):
                    yield node.args[0].value


def counted() -> Iterator[str]:
    yield from ValueFault
    for file in Path(proxy.drivers.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                named = node.args[0]
                if (
                    node.func.attr in {"count", "_count"}
                    and isinstance(named, ast.Constant)
                    and isinstance(named.value, str)
                ):
                    yield named.value
                if isinstance(node.func.value, ast.Name) and node.func.value.id == "happened":
                    names = [each.value for each in ast.walk(named) if isinstance(each, ast.Constant)]
                    yield from (each for each in names if isinstance(each, str))


def first_column(header: str) -> set[str]:
    table = DOCUMENT.partition(header)[2].partition("\n\n")[0]
    return set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))))


def test_every_kind_has_an_example_and_a_row_of_what_it_can():
    assert {entry["kind"] for entry in ENTRIES} == set(settings._KINDS)
    assert set(settings._KINDS) <= set(re.findall(r"^\| `(\w+)`", DOCUMENT, re.MULTILINE))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_setting_is_documented(model):
    assert set(model.model_fields) - set(re.findall(r"\w+", DOCUMENT)) == set()


def test_every_reason_of_rejection_is_in_the_table():
    assert set(reasons()) - first_column("| reason | meaning |") == set()


def test_every_count_is_in_the_table():
    assert {"field_broken", "merged", "counter_wrap", "state_unreadable"} <= set(counted())
    assert set(counted()) - first_column("| count | of | meaning |") == set()


def test_the_start_shows_the_file_of_the_example():
    (shown,) = re.findall(r"```toml examples/devices/devices.toml\n(.*?)```", DOCUMENT, re.DOTALL)
    assert shown == (ROOT / "examples" / "devices" / "devices.toml").read_text("utf-8")
    (driver,) = read_drivers(tomllib.loads(shown), "examples/devices/devices.toml")
    topics = re.findall(r"mosquitto_pub .*-t (\S+) -m '(.*)'", DOCUMENT)
    rejected = [driver.received(topic, sent.encode(), radio_us=0, received_us=NOW).rejections for topic, sent in topics]
    assert [each.reason for found in rejected for each in found] == ["garbled", "missing"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.get("name", entry["kind"]))
def test_access_rules_may_name_the_topics_that_a_driver_reads(entry):
    (driver,) = read_drivers({"driver": [entry]}, "the example")
    part = ProxyPart("roadside", reads=tuple(driver.subscriptions))
    Names(proxies=(part,)).check()
    assert {each.filter for each in part_rules(part) if each.access is Access.READ} >= set(driver.subscriptions)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.get("name", entry["kind"]))
@given(first=PAYLOADS, second=PAYLOADS)
def test_no_payload_makes_a_driver_raise(entry, first, second):
    (driver,) = read_drivers({"driver": [entry]}, "the example")
    times = {"radio_us": 0, "received_us": NOW}
    for subscription in driver.subscriptions:
        topic = subscription.replace("+", "x").replace("#", "bridge/devices")
        for payload in (first, second):
            output = driver.received(topic, payload, **times)
            for mote in {each.mote for each in output.frames if isinstance(each, Announcement)}:
                fields = tuple(field.name for field in output.frames[0].stream.fields if not field.fixed)
                driver.run(mote, SamplingProgram(fields, S), **times)
            driver.received(topic, payload, **times, retained=True)
    driver.time_passed(**times)

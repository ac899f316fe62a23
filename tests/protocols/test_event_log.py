import asyncio
import json
import logging
import subprocess
import sys

import pytest
import structlog

from protocols.event_format import HIDDEN, hide_secrets
from protocols.event_log import LogLevelError, configure_logging, name_in_events


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"password": "hunter2", "user": "ann"}, {"password": HIDDEN, "user": "ann"}),
        (
            {"mqtt_passwd": "x", "API_KEY": "y", "token": "z"},
            {"mqtt_passwd": HIDDEN, "API_KEY": HIDDEN, "token": HIDDEN},
        ),
        ({"broker": {"host": "h", "secret": "s"}}, {"broker": {"host": "h", "secret": HIDDEN}}),
        ({"all": [{"password": "p"}, 3]}, {"all": [{"password": HIDDEN}, 3]}),
        ({"key": "sensor", "keys": 3}, {"key": "sensor", "keys": 3}),
    ],
)
def test_values_of_secret_keys_are_hidden(event, shown):
    assert hide_secrets(None, "info", event) == shown


def test_events_and_library_logs_go_to_stderr_as_json_lines(capsys):
    configure_logging("info", json=True)
    structlog.get_logger("proxy").info("connected", port=1883, password="hunter2")
    logging.getLogger("some.library").warning("slow %s", "disk")
    logging.getLogger("amqtt.broker").info("one of many")

    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.err.splitlines()]

    assert output.out == ""
    assert [(line["event"], line["level"]) for line in lines] == [("connected", "info"), ("slow disk", "warning")]
    assert (lines[0]["port"], lines[0]["password"]) == (1883, HIDDEN)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("get_logger", [structlog.get_logger, logging.getLogger])
def test_an_exception_is_logged_without_values_of_variables(capsys, as_json, get_logger):
    """Among them were tokens of requests, when the web server logged an exception."""
    configure_logging("info", json=as_json)
    hidden = "hunter2"

    def fail(authorization):
        raise ValueError(len(authorization))

    try:
        fail(hidden)
    except ValueError:
        get_logger("api").exception("it failed")
    output = capsys.readouterr().err
    assert "in fail" in output
    assert "ValueError: 7" in output
    assert hidden not in output


@pytest.mark.parametrize(("variable", "shown"), [(None, ["w"]), ("INFO", ["i", "w"]), ("error", [])])
def test_the_level_comes_from_the_environment_if_no_option_sets_it(monkeypatch, capsys, variable, shown):
    monkeypatch.delenv("FJORD_LOG_LEVEL", raising=False)
    if variable is not None:
        monkeypatch.setenv("FJORD_LOG_LEVEL", variable)
    configure_logging(json=True)
    structlog.get_logger().info("i")
    structlog.get_logger().warning("w")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == shown


async def test_names_are_in_the_events_of_a_task_and_of_those_that_it_starts(capsys):
    configure_logging("info", json=True)

    async def named():
        name_in_events(publisher=1)
        await asyncio.create_task(log("its own"))

    async def log(event):
        structlog.get_logger().info(event)

    await asyncio.create_task(named())
    await log("another's")
    found = {line["event"]: line.get("publisher") for line in map(json.loads, capsys.readouterr().err.splitlines())}
    assert found == {"its own": 1, "another's": None}


def test_an_unknown_level_is_refused():
    with pytest.raises(LogLevelError, match="loud"):
        configure_logging("loud")


@pytest.mark.parametrize(
    "logs",
    ["get_logger('proxy').warning('slow disk')", "import logging; logging.getLogger('proxy').warning('slow disk')"],
)
def test_structlog_is_imported_when_somebody_logs(logs):
    program = (
        "import sys\n"
        "from protocols.event_log import configure_logging, get_logger\n"
        "configure_logging(json=True)\n"
        "print('structlog' in sys.modules)\n"
        f"{logs}\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    event = json.loads(ended.stderr)
    assert ended.stdout == "False\n"
    assert (event["event"], event["level"], event["logger"]) == ("slow disk", "warning", "proxy")

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import tomllib

import pytest
from typer.testing import CliRunner

from protocols.security.certificates import Purpose, issue, make_authority
from protocols.security.errors import ExpiredCertificateError
from protocols.security.expiry import ExpiryCollector
from protocols.security.private_files import PUBLIC, SECRET, write_file
from proxy.command import app
from proxy.errors import DataFolderInUseError
from proxy.running.metrics import ProxyMetrics, serve_metrics
from proxy.storage.stores import owned_data_folder

RUN = "from proxy.command import app; app()"


def test_print_config_is_toml_with_the_options_in_it():
    result = CliRunner().invoke(app, ["--print-config", "--flush-interval", "2s"])
    assert result.exit_code == 0
    assert tomllib.loads(result.output)["flush_interval"] == "2s"


@pytest.mark.parametrize("arguments", [["--flush-interval", "soon"], ["--metrics-port", "x"], ["--colour", "red"]])
def test_wrong_usage(arguments):
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_second_proxy_on_a_data_folder_is_rejected(tmp_path):
    with owned_data_folder(tmp_path):
        result = CliRunner().invoke(app, ["--data", str(tmp_path)])
    assert isinstance(result.exception, DataFolderInUseError)


def test_metrics_are_served_on_this_machine_only(tmp_path):
    import socket
    import urllib.request

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    metrics = ProxyMetrics()
    metrics.count("packets", by=3)
    write_file(tmp_path / "ca.crt", make_authority("Test", now=time.time(), days=3).certificate, mode=PUBLIC)
    end = serve_metrics(metrics, port, ExpiryCollector({"broker authority": str(tmp_path / "ca.crt")}))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            shown = answer.read().decode()
        assert "fjord_proxy_packets_total 3.0" in shown
        assert 'fjord_certificate_expiry_timestamp_seconds{use="broker authority"}' in shown
    finally:
        end()


@pytest.mark.faults
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_ends_cleanly_without_a_broker(tmp_path, ending):
    environment = os.environ | {"FJORD_BROKER_PASSWORD": "hidden-word"}
    arguments = ["--data", str(tmp_path / "d"), "--broker", "127.0.0.1:1", "--username", "u"]
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        output = process.stdout.readline()
        process.send_signal(ending)
        output += process.communicate(timeout=20)[0]
    assert process.returncode == 0, output
    assert re.search(r"proxy: roadside at broker 127\.0\.0\.1:1", output)
    assert "hidden-word" not in output


def test_an_expired_certificate_is_refused_before_anything_starts(tmp_path, monkeypatch):
    now = time.time()
    authority = make_authority("Test", now=now, days=3)
    old = issue(authority, "roadside", Purpose.CLIENT, now=now - 10 * 86_400, days=5)
    write_file(tmp_path / "ca.crt", authority.certificate, mode=PUBLIC)
    write_file(tmp_path / "p.crt", old.certificate, mode=PUBLIC)
    write_file(tmp_path / "p.key", old.key, mode=SECRET)
    monkeypatch.setenv("FJORD_BROKER_CA", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("FJORD_BROKER_CERTIFICATE", str(tmp_path / "p.crt"))
    monkeypatch.setenv("FJORD_BROKER_KEY", str(tmp_path / "p.key"))
    result = CliRunner().invoke(app, ["--data", str(tmp_path / "data")])
    assert isinstance(result.exception, ExpiredCertificateError)
    assert not (tmp_path / "data").exists()

"""Certificates that expire soon: warned of once a day, and shown as a gauge."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from prometheus_client import CollectorRegistry

from protocols.security import expiry
from protocols.security.certificates import Purpose, issue, make_authority
from protocols.security.expiry import ExpiryCollector, ExpiryWarnings, files_to_watch, read_expiries, watched
from protocols.security.private_files import PUBLIC, write_file
from protocols.security.tls import TlsFiles

DAY = 86_400.0
NOW = time.time() // 1


def test_warned_once_a_day_from_thirty_days_on():
    warnings = ExpiryWarnings()
    expiries = {"broker": 31 * DAY}
    found = [(hour, warnings.due(expiries, hour * 3_600.0)) for hour in range(33 * 24)]
    days = [(hour / 24, due["broker"]) for hour, due in found if due]
    assert days[0] == (25 / 24, 29)
    assert [round(after - before, 3) for (before, _), (after, _) in itertools.pairwise(days)] == [1.0] * 31
    assert days[-1][1] == -2


@pytest.fixture
def files(tmp_path):
    authority = make_authority("Test", now=NOW, days=50)
    part = issue(authority, "wall", Purpose.CLIENT, now=NOW, days=20)
    old = make_authority("Old", now=NOW, days=3)
    write_file(tmp_path / "ca.crt", old.certificate + authority.certificate, mode=PUBLIC)
    write_file(tmp_path / "wall.crt", part.certificate + old.certificate, mode=PUBLIC)
    return files_to_watch(
        broker=TlsFiles(str(tmp_path / "ca.crt"), str(tmp_path / "wall.crt"), "unread"),
        api=TlsFiles(None, str(tmp_path / "none.crt"), "unread"),
        other=None,
    )


def test_the_own_certificate_is_the_first_of_its_file_and_of_authorities_the_last_counts(files):
    assert read_expiries(files) == {"broker": NOW + 20 * DAY, "broker authority": NOW + 50 * DAY}


def test_the_gauge_is_a_time_in_seconds(files, tmp_path):
    registry = CollectorRegistry()
    registry.register(ExpiryCollector(files))

    def value(use):
        return registry.get_sample_value("fjord_certificate_expiry_timestamp_seconds", {"use": use})

    assert value("broker") == NOW + 20 * DAY
    assert value("api") is None
    renewed = make_authority("New", now=NOW, days=70)
    write_file(tmp_path / "wall.crt", renewed.certificate, mode=PUBLIC, overwrite=True)
    assert value("broker") == NOW + 70 * DAY


def test_the_watch_warns_and_ends(files, capsys, monkeypatch):
    monkeypatch.setattr(expiry, "LOOK_SECONDS", 0.01)
    clock = [NOW]
    with watched(files, clock=lambda: clock[0]):
        deadline = time.monotonic() + 20
        shown = ""
        while shown.count("a certificate expires soon") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
            shown += capsys.readouterr().out
            if "days_left=20" in shown:
                clock[0] = NOW + 1.5 * DAY
    assert "days_left=20" in shown
    assert "days_left=18" in shown
    assert shown.count("a certificate expires soon") == 2
    assert "use=broker" in shown
    assert "wall.crt" in shown
    assert not any(each.name == "certificates" for each in threading.enumerate())


def test_without_files_there_is_no_thread():
    with watched({}):
        assert not any(each.name == "certificates" for each in threading.enumerate())

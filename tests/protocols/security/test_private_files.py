"""Folders of a part's own files: other users get into no new one, and open ones are warned of."""

import os
import stat

import pytest
import typer
from structlog.testing import capture_logs
from typer.testing import CliRunner

from protocols.command_line.application import app
from protocols.security.private_files import keep_private, make_private, warn_of_open


@pytest.fixture
def open_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
def test_files_and_folders_that_are_made_are_for_their_user_only(tmp_path):
    (tmp_path / "before").touch()
    keep_private()
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "below").mkdir(parents=True)
    assert [mode(tmp_path / each) for each in ("before", "file", "folder", "folder/below")] == [
        *(0o644, 0o600),
        *(0o700, 0o700),
    ]


@pytest.mark.usefixtures("open_umask")
def test_a_folder_is_for_its_user_only_whatever_the_umask_is_and_one_that_is_there_stays_as_it_is(tmp_path):
    (tmp_path / "shared").mkdir(mode=0o755)
    make_private(tmp_path / "shared" / "fjord" / "proxy-p")
    make_private(tmp_path / "shared")
    assert [mode(tmp_path / each) for each in ("shared", "shared/fjord", "shared/fjord/proxy-p")] == [
        0o755,
        *(0o700, 0o700),
    ]


@pytest.mark.parametrize(("found", "warned"), [(0o700, False), (0o750, True), (0o701, True), (0o755, True)])
def test_folder_that_others_get_into_is_warned_of(tmp_path, found, warned):
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(found)
    with capture_logs() as events:
        warn_of_open(tmp_path / "data")
    assert [each["hint"] for each in events] == ([f"chmod 700 {tmp_path / 'data'}"] if warned else [])


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (["broker", "--port", "0"], "proxy.broker.running.broker_by_settings"),
        (["cluster"], "cluster.spark.java.find_java"),
        (["demo"], "cluster.demo.run.run_demo"),
        (["proxy"], "proxy.storage.stores.open_stores"),
    ],
)
def test_commands_keep_what_they_write_for_their_user(arguments, begins, monkeypatch, tmp_path):
    found = []

    def stop(*_, **__):
        found.append(os.umask(0o077))
        raise typer.Exit

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(begins, stop)
    CliRunner().invoke(app, arguments)
    assert found == [0o077]

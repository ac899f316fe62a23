"""A Java is started without waiting for it; PySpark is shown where it listens, and it ends with its standard input."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.spark import java_process
from cluster.spark.java import find_java
from cluster.spark.java_process import PORT, SECRET, JavaEndedError, JavaProcess, start_java
from cluster.spark.session import SPARK_HOME, SessionSettings, class_archive, open_session
from cluster.spark.spark_log import SparkStartError

SECONDS = 30.0
LISTENING = """\
echo "$@"
printf '\\000\\000\\037\\220\\000\\000\\000\\006secret' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""

Start = Callable[[str], JavaProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a script in place of Spark's program that starts Java."""
    begun: list[JavaProcess] = []

    def started(script: str) -> JavaProcess:
        program = tmp_path / "bin" / "spark-submit"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)
        (tmp_path / "log").write_bytes(b"before\n")
        with (tmp_path / "log").open("ab") as log:
            begun.append(start_java(tmp_path, {"spark.master": "local[2]"}, log))
        return begun[0]

    yield started
    for java in begun:
        java.end()
        java.process.kill()
        java.process.wait(SECONDS)


def test_pyspark_finds_where_java_listens_and_no_other_program_does(start: Start) -> None:
    java = start(LISTENING)
    with java.found():
        assert (os.environ[PORT], os.environ[SECRET]) == ("8080", "secret")
    assert PORT not in os.environ
    assert SECRET not in os.environ
    assert not java.where.parent.exists(), "the file says how to be obeyed"


def test_java_gets_settings_and_writes_to_the_log(start: Start, tmp_path: Path) -> None:
    java = start(LISTENING)
    with java.found():
        pass
    log = (tmp_path / "log").read_bytes()
    assert log[java.log_begins :] == b"--conf spark.master=local[2] pyspark-shell\n"


def test_a_java_that_ends_early_is_an_error(start: Start) -> None:
    java = start("exit 3\n")
    with pytest.raises(JavaEndedError, match="code 3"), java.found():
        pass
    assert not java.where.parent.exists()


def test_java_ends_with_its_input_and_not_with_an_interrupt(start: Start) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background shells ignore it
    java = start(LISTENING)
    signal.signal(signal.SIGINT, before)
    with java.found():
        java.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        java.process.wait(0.3)
    java.end()
    assert java.process.wait(SECONDS) == 0


def test_a_java_that_does_not_listen_yet_ends(start: Start) -> None:
    java = start("exec sleep 1000\n")
    java.end()
    assert java.process.wait(SECONDS) == -signal.SIGTERM
    assert not java.where.parent.exists()


def test_a_java_that_never_listens_is_an_error_and_ends(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_process, "LONGEST_START_SECONDS", 0.1)
    java = start("exec sleep 1000\n")
    with pytest.raises(JavaEndedError, match="does not listen"), java.found():
        pass
    assert java.process.wait(SECONDS) == -signal.SIGTERM


def test_nothing_that_is_started_later_keeps_java_running(start: Start) -> None:
    java = start(LISTENING)
    with subprocess.Popen(["sleep", "1000"], close_fds=False) as other:
        with java.found():
            java.end()
        assert java.process.wait(SECONDS) == 0
        other.kill()


def test_an_archive_with_which_java_has_not_started_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    """Else no later start would succeed either: Java ends when it maps a file that is damaged in its middle."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(SPARK_HOME, str(tmp_path))
    archive = class_archive(find_java(), tmp_path)
    archive.file.write_bytes(b"damaged")
    with pytest.raises(SparkStartError, match="code 134"):
        open_session(SessionSettings(), tmp_path, java=start("exit 134"))
    assert not archive.file.exists()


def test_java_gets_no_token_and_no_password(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FJORD_API_TOKEN", "FJORD_BROKER_PASSWORD", "FJORD_LOG_LEVEL"):
        monkeypatch.setenv(name, "set")
    java = start(f"env > {tmp_path / 'environment'}\n")
    java.process.wait(SECONDS)
    seen = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert {each for each in seen if each.startswith("FJORD_")} >= {"FJORD_LOG_LEVEL"}
    assert not seen & {"FJORD_API_TOKEN", "FJORD_BROKER_PASSWORD"}

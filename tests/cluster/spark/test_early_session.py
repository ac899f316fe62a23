"""A fork has Java make Spark's session while this process does other things; PySpark finds it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cluster.spark import early_session
from cluster.spark.early_session import ask_for_session, begin_session
from cluster.spark.java_process import JavaProcess
from cluster.spark.session import OF_PYSPARK

SECONDS = 20.0
ROOT = Path(__file__).parents[3]

SESSION = """\
import sys, time
from pathlib import Path
from cluster.spark.early_session import {begin}
from cluster.spark.session import SessionSettings, begin_java, open_session
from cluster.spark.spark_log import SparkLog
folder = Path(sys.argv[1])
log = SparkLog(folder / "log")
settings = SessionSettings(master="local[1]", extra={{"spark.fjord.test": "kept"}})
java = begin_java(settings, folder, log)
{begin}(java)
opened = time.time()
session = open_session(settings, folder, log, java)
context = session.sparkContext
print(context.startTime / 1000 < opened)
print(session.conf.get("spark.fjord.test"), context.getConf().get("spark.fjord.test"))
print(session.conf.get("spark.sql.shuffle.partitions"), session.conf.get("spark.sql.adaptive.enabled"))
print(session.range(3).count())
print(session._jsparkSession.equals(session._jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()))
session.stop()
"""


@pytest.mark.spark
@pytest.mark.parametrize(("begin", "before"), [("ask_for_session", True), ("begin_session", None)])
def test_pyspark_uses_the_session_that_java_has_made(tmp_path: Path, begin: str, before: bool | None) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SESSION.format(begin=begin), str(tmp_path)],
        capture_output=True, text=True, timeout=240, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    early, *others = ended.stdout.splitlines()
    assert before is None or early == str(before), "the fork may still ask when PySpark does"
    assert others == ["kept kept", "2 false", "3", "True"]


def test_settings_are_those_that_pyspark_would_add() -> None:
    from pyspark.core.context import DEFAULT_CONFIGS

    assert {name: str(value) for name, value in DEFAULT_CONFIGS.items()} == OF_PYSPARK


def java_that(script: str, folder: Path) -> JavaProcess:
    """Start a script in place of Java; it never listens."""
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE)
    where = folder / "java" / "where"
    where.parent.mkdir()
    return JavaProcess(process, {}, where, 0)


FORKED = """\
import os, select, subprocess, sys, psutil
from pathlib import Path
from cluster.spark.early_session import begin_session
from cluster.spark.java_process import JavaProcess
where = Path(sys.argv[1], "java", "where")
where.parent.mkdir()
java = JavaProcess(subprocess.Popen(["cat"], stdin=subprocess.PIPE), {}, where, 0)
reading, writing = os.pipe()
assert begin_session(java, closing=[writing])
os.close(writing)
print(select.select([reading], [], [], 20)[0] == [reading], [each.name() for each in psutil.Process().children()])
java.end()
java.process.wait(20)
"""


def test_the_fork_holds_nothing_and_is_no_child(tmp_path: Path) -> None:
    """Run in another process: one that tests Spark has threads, and is not forked."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "True ['cat']\n")


REFUSED = """\
import logging, os, select, struct, subprocess, sys
from pathlib import Path
from cluster.spark.early_session import begin_session
from cluster.spark.java_process import JavaProcess
logging.basicConfig(level=logging.ERROR)
where = Path(sys.argv[1], "java", "where")
where.parent.mkdir()
where.write_bytes(struct.pack("!ii", 1, 1) + b"s")
java = JavaProcess(subprocess.Popen(["cat"], stdin=subprocess.PIPE), {}, where, 0)
reading, writing = os.pipe()
assert begin_session(java)
os.close(writing)
print(select.select([reading], [], [], 60)[0] == [reading])
java.end()
java.process.wait(20)
"""
"""The fork reaches no Java: one that is ended at once, as a faulty setting is found, answers no more."""


def test_a_fork_that_cannot_ask_says_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", REFUSED, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "True\n")


def test_waiting_for_a_java_that_has_ended_is_an_error(tmp_path: Path) -> None:
    java = java_that("exit 0", tmp_path)
    java.process.wait(SECONDS)
    with pytest.raises(ProcessLookupError):
        ask_for_session(java)
    java.end()


def test_waiting_ends_when_pyspark_was_first_and_after_a_long_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = java_that("exec cat", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(early_session, "LONGEST_START_SECONDS", 0.05)
        ask_for_session(java)
    java.where.parent.rmdir()  # as when PySpark has read the file
    ask_for_session(java)
    java.end()
    java.process.wait(SECONDS)


def test_a_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    java, ending = java_that("exec cat", tmp_path), threading.Event()
    other = threading.Thread(target=ending.wait)
    other.start()
    try:
        assert not begin_session(java)
    finally:
        ending.set()
        other.join()
        java.end()
        java.process.wait(SECONDS)

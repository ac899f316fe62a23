"""The file that Spark writes to: its size is bounded, and errors quote its important lines."""

import os
import shutil

import pytest

from cluster.spark.spark_log import QUOTED_LINES, SparkLog, SparkStartError

STARTED_BEFORE = "26/11/22 18:41:13 ERROR SparkContext: of an earlier start\n"
FAILED = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
26/11/22 18:41:13 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...
26/11/22 18:41:13 ERROR SparkContext: Error initializing SparkContext.
org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'
\tat org.apache.spark.SparkContext$.org$apache$spark$SparkContext$$createTaskScheduler(SparkContext.scala:3231)
\t... 12 more

"""
IMPORTANT = [
    "26/11/22 18:41:13 ERROR SparkContext: Error initializing SparkContext.",
    "org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'",
]


@pytest.fixture
def log(tmp_path):
    return SparkLog(tmp_path / "logs" / "spark.log", most_bytes=100)


def test_a_file_that_is_too_large_becomes_the_older_one_while_it_is_written_to(log):
    with log.open() as file:
        for letter in (b"a", b"b", b"c"):
            os.write(file.fileno(), letter * 101)
            log.rotate()
        os.write(file.fileno(), b"d")
    assert log.path.read_bytes() == b"d"
    assert log.older.read_bytes() == b"c" * 101
    assert {each.name for each in log.path.parent.iterdir()} == {"spark.log", "spark.log.1"}


def test_a_file_that_is_not_too_large_stays(log):
    with log.open() as file:
        file.write(b"a" * 100)
    log.rotate()
    assert log.path.read_bytes() == b"a" * 100
    assert not log.older.exists()


def test_without_a_file_there_is_nothing_to_do(log):
    log.rotate()
    assert log.important_lines() == []


def test_a_disk_without_room_for_the_older_file_is_not_filled_further(log, monkeypatch):
    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", no_room)
    with log.open() as file:
        file.write(b"a" * 101)
    log.rotate()
    assert log.path.read_bytes() == b""


def test_important_lines_are_those_since_this_start(log):
    with log.open() as file:
        file.write(STARTED_BEFORE.encode())
    with log.open() as file:
        since = file.tell()
        file.write(FAILED.encode())
    assert since == len(STARTED_BEFORE)
    assert log.important_lines(since) == IMPORTANT
    assert log.important_lines() == [STARTED_BEFORE.rstrip(), *IMPORTANT]


def test_only_the_last_lines_are_quoted(log):
    with log.open() as file:
        file.writelines(b"%d\n" % number for number in range(100_000))
    assert log.important_lines() == [str(number) for number in range(100_000 - QUOTED_LINES, 100_000)]


def test_the_error_quotes_the_log_and_names_it(log):
    with log.open() as file:
        file.write(FAILED.encode())
    error = SparkStartError("Java gateway process exited", log)
    assert error.message == "Spark did not start; its last output:\n" + "\n".join(IMPORTANT)
    assert error.hint == f"its whole output is in {log.path}"


@pytest.mark.parametrize("where", ["nothing is written", "the terminal"])
def test_without_anything_to_quote_the_error_gives_the_reason(log, where):
    error = SparkStartError("No such file: spark-submit", None if where == "the terminal" else log)
    assert error.message == "Spark did not start: No such file: spark-submit"

"""What a Spark session keeps in memory of finished work, and how it writes files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster.spark.hosting import use_settings_in_all_threads
from tests.cluster.spark.java_threads import threads_write_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

DONE = 60


def test_spark_keeps_few_finished_executions_and_jobs(spark: SparkSession) -> None:
    session: Any = spark
    for _ in range(DONE):
        session.range(1).collect()
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    remembered = session._jsparkSession.sharedState().statusStore().executionsCount()
    jobs = session.sparkContext._jsc.sc().statusStore().jobsList(None).size()
    assert remembered < DONE / 2, "executions, with their plans"
    assert jobs < DONE


def test_java_starts_no_process_for_a_file_on_a_local_disk(spark: SparkSession, tmp_path: Path) -> None:
    session: Any = spark
    hadoop = session._jvm.org.apache.hadoop
    local = hadoop.fs.Path(str(tmp_path))
    files = local.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    before = processes_of(session)
    for number in range(20):
        files.create(hadoop.fs.Path(local, str(number)), True).close()
    assert processes_of(session) == before, "that have ended: one for each file"
    assert {path.name for path in tmp_path.iterdir()} == set(map(str, range(20))), "no checksums"
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


def test_files_on_a_local_disk_have_the_permissions_that_were_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    session: Any = spark
    hadoop = session._jvm.org.apache.hadoop
    file = hadoop.fs.Path(str(tmp_path / "file"))
    files = file.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    files.create(file, True).close()
    for mode in (0o640, 0o777, 0o1777, 0o400):
        files.setPermission(file, hadoop.fs.permission.FsPermission(f"{mode:o}"))
        assert (tmp_path / "file").stat().st_mode & 0o7777 == mode


def test_threads_without_a_session_write_no_java_either(spark: SparkSession) -> None:
    spark._jsparkSession.newSession()  # type: ignore[attr-defined] # as for each streaming query
    assert threads_write_java(spark), "Spark's defaults"
    use_settings_in_all_threads(spark)
    assert not threads_write_java(spark)


def test_tasks_are_sent_no_settings_of_what_does_not_run(spark: SparkSession) -> None:
    session: Any = spark
    use_settings_in_all_threads(spark)
    sent = session._jsparkSession.sessionState().newHadoopConf()
    names = {each.getKey() for each in entries(sent)}
    assert not [name for name in names if name.startswith(("yarn.", "mapreduce."))]
    assert {"fs.defaultFS", "io.file.buffer.size"} <= names


def entries(settings: Any) -> Iterator[Any]:
    found = settings.iterator()
    while found.hasNext():
        yield found.next()


def processes_of(session: Any) -> int:
    """Return a number that grows with each process that Java has started and that has ended: their page faults."""
    java = session._jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split()
    return int(fields[8])

"""The command that Spark's launcher runs is noted, and is run without the launcher as long as nothing has changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster.spark.java_process import MAIN, SHELL, JavaProcess, LaunchNote, start_java

SECONDS = 30.0
OPTIONS = {"spark.driver.memory": "1g", "spark.local.dir": "/data/spark"}
LAUNCHER = """\
#!/bin/sh
[ "$1" = --conf ] || exit 7
SPARK_SET=launched PYTHONHASHSEED=0 exec {java} -Xmx1g '-Dquoted=a b' {main} "$@"
"""
JAVA = """\
import os, sys
where = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
print(os.environ.get("SPARK_SET"), os.environ.get("PYTHONHASHSEED"), sys.argv, flush=True)
with open(where + ".new", "wb") as file:
    file.write(b"\\0\\0\\x1f\\x90\\0\\0\\0\\x06secret")
os.rename(where + ".new", where)
sys.stdin.read()
"""
"""A script of the shell would be seen as the shell; Python's arguments are those that it was given."""


def note_in(
    folder: Path, options: Mapping[str, str] = OPTIONS, variables: Mapping[str, str] | None = None
) -> LaunchNote:
    found = LaunchNote.of(folder / "classes-1.jsa", folder, options, variables or {})
    assert found is not None
    return found


def test_the_note_depends_on_all_that_the_launcher_reads(tmp_path: Path) -> None:
    files = {
        note_in(tmp_path).file,
        note_in(tmp_path, {**OPTIONS, "spark.driver.memory": "2g"}).file,
        note_in(tmp_path, {**OPTIONS, "spark.driver.extraClassPath": "/more"}).file,
        note_in(tmp_path, OPTIONS, {"SPARK_SUBMIT_OPTS": "-Xint"}).file,
        note_in(tmp_path, OPTIONS, {"HADOOP_CONF_DIR": "/etc/hadoop"}).file,
        note_in(tmp_path, OPTIONS, {"JAVA_HOME": "/other"}).file,
    }
    other = LaunchNote.of(tmp_path / "classes-2.jsa", tmp_path, OPTIONS, {})  # of another Java, or other jars
    assert other is not None
    assert len({*files, other.file}) == 7
    elsewhere = {**OPTIONS, "spark.local.dir": "/other", "spark.executorEnv.PYTHONPATH": "/x"}
    assert note_in(tmp_path, elsewhere, {"PATH": "/bin"}).file == note_in(tmp_path).file


def test_nothing_is_noted_where_the_launcher_reads_files(tmp_path: Path) -> None:
    assert LaunchNote.of(tmp_path / "a", tmp_path, OPTIONS, {"SPARK_CONF_DIR": "/etc/spark"}) is None
    (tmp_path / "conf").mkdir()
    assert LaunchNote.of(tmp_path / "a", tmp_path, OPTIONS, {}) is None


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"command":[],"variables":{}}', b'{"command":["/no"],"variables":{}}']
)
def test_a_note_that_says_nothing_is_as_none(tmp_path: Path, content: bytes) -> None:
    note = note_in(tmp_path)
    assert note.read() is None
    note.file.write_bytes(content)
    assert note.read() is None


def test_a_process_that_is_no_java_of_spark_is_not_noted(tmp_path: Path) -> None:
    note = note_in(tmp_path)
    note.write(os.getpid(), {})
    note.write(2**22 + 1, {})  # there is none
    assert not note.file.exists()


def run(java: JavaProcess) -> None:
    with java.found():
        pass
    java.end()
    assert java.process.wait(SECONDS) == 0


def test_java_is_run_by_the_launcher_once_and_then_as_it_was(tmp_path: Path) -> None:
    java, launcher = tmp_path / "java", tmp_path / "bin" / "spark-submit"
    launcher.parent.mkdir()
    java.write_text(JAVA)
    python = f"{sys.executable} {java}"
    launcher.write_text(LAUNCHER.format(java=python, main=MAIN))
    launcher.chmod(0o755)
    note, log = note_in(tmp_path), tmp_path / "log"
    unused, used = tmp_path / "launch-1.json", tmp_path / "launch-2.json"
    for each in (unused, used):
        each.touch()
    os.utime(unused, (1, 1))
    with log.open("wb") as output:
        run(start_java(tmp_path, OPTIONS, output, note))
        launch = note.read()
        assert launch is not None
        assert launch.command[1:] == (str(java), "-Xmx1g", "-Dquoted=a b")
        assert {name: launch.variables[name] for name in ("SPARK_SET", "PYTHONHASHSEED")} == {
            "SPARK_SET": "launched",
            "PYTHONHASHSEED": "0",
        }
        assert (unused.exists(), used.exists()) == (False, True)
        launcher.unlink()
        other = {**OPTIONS, "spark.local.dir": "/other folder"}
        run(start_java(tmp_path, other, output, note_in(tmp_path, other)))
    first, second = log.read_text().splitlines()
    assert first.startswith("launched 0 ")
    assert second == first.replace("/data/spark", "/other folder")
    assert first.endswith(f"'--conf', 'spark.local.dir=/data/spark', '{SHELL}']")


def test_a_note_is_removed_once(tmp_path: Path) -> None:
    note = note_in(tmp_path)
    note.file.touch()
    note.remove()
    note.remove()
    assert not note.file.exists()

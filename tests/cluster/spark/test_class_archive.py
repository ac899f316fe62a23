"""Classes that Java has listed are archived in the background; Java maps the archive, or does without."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from cluster.spark.class_archive import UNUSED_SECONDS, ClassArchive, until_quiet
from cluster.spark.java import find_java

OPTIONS = "-XX:+UseSerialGC"
SLOW_JAVA = (
    "#!/bin/sh\nfor each; do case $each in -XX:SharedArchiveFile=*) : > ${each#*=};; esac; done\nexec sleep 1000"
)
FAULTY_JAVA = "#!/bin/sh\nfor each; do case $each in -XX:SharedArchiveFile=*) : > ${each#*=};; esac; done\nexit 1"


def archive_in(folder: Path, *, java: Path | None = None, options: str = OPTIONS) -> ClassArchive:
    home = find_java().home if java is None else java
    return ClassArchive.of(home, folder / "spark", options, cache=folder, classes=folder / "listed classes")


def run_java(archive: ClassArchive, *more: str) -> subprocess.CompletedProcess[str]:
    """Run Java as Spark does: options are words in quotes."""
    command = [archive.java, *shlex.split(archive.java_options()), *more, "-version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def program(folder: Path, text: str) -> Path:
    """Make a home of a Java that is a script."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(text)
    java.chmod(0o755)
    return folder


def kinds(folder: Path) -> set[str]:
    """Return which kinds of files there are."""
    return {each.suffix for each in folder.glob("classes-*")}


def wait_for(file: Path) -> None:
    until = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.01)


async def test_listed_classes_are_archived_once_and_java_maps_them(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    assert not await archive.write("nothing"), "Java has listed no class"
    assert run_java(archive).returncode == 0
    assert "java/lang/Object" in archive.classes.read_text()
    assert await archive.write("nothing")
    assert "SharedArchiveFile" in archive.java_options()
    mapped = run_java(archive, "-Xshare:on", "-cp", "nothing")
    assert mapped.returncode == 0, mapped.stdout
    assert not await archive.write("nothing"), "it is there"
    assert kinds(tmp_path) == {".jsa", ".lock"}


def test_java_does_without_an_archive_that_is_damaged(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.file.write_bytes(b"no archive")
    assert run_java(archive).returncode == 0


def test_another_java_other_options_and_other_jars_have_other_archives(tmp_path: Path) -> None:
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    files = {archive_in(tmp_path).file, archive_in(tmp_path, options="-Xint").file}
    files.add(archive_in(tmp_path, java=program(tmp_path / "other", FAULTY_JAVA)).file)
    os.utime(jars, (1, 1))  # as if installed anew
    files.add(archive_in(tmp_path).file)
    (jars / "spark.jar").touch()
    os.utime(jars, (1, 1))
    files.add(archive_in(tmp_path).file)
    os.utime(jars / "spark.jar", (2, 2))  # restored from a copy, for instance: Java does not map the archive then
    files.add(archive_in(tmp_path).file)
    assert len(files) == 6
    assert archive_in(tmp_path) == archive_in(tmp_path)


async def test_a_java_that_fails_leaves_no_archive(tmp_path: Path) -> None:
    archive = archive_in(tmp_path, java=program(tmp_path / "java", FAULTY_JAVA))
    archive.classes.write_text("java/lang/Object\n")
    assert not await archive.write("nothing")
    assert kinds(tmp_path) == {".lock"}


async def test_a_writer_that_is_cancelled_leaves_neither_archive_nor_process(tmp_path: Path) -> None:
    archive = archive_in(tmp_path, java=program(tmp_path / "java", SLOW_JAVA))
    archive.classes.write_text("java/lang/Object\n")
    writing = asyncio.create_task(archive.write("nothing"))
    draft = archive.file.with_suffix(".draft")
    await asyncio.to_thread(wait_for, draft)
    assert not await archive.write("nothing"), "another one writes it"
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert not draft.exists()
    assert not archive.file.exists()
    with archive.file.with_suffix(".lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_archives_that_are_used_no_more_are_removed(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    unused, used = tmp_path / "classes-1.jsa", tmp_path / "classes-2.jsa"
    for each in (unused, used):
        each.touch()
    long_ago = time.time() - UNUSED_SECONDS - 60
    os.utime(unused, (long_ago, long_ago))
    run_java(archive)
    assert await archive.write("nothing")
    assert (unused.exists(), used.exists(), archive.file.exists()) == (False, True, True)


async def test_an_archive_waits_for_a_machine_that_has_little_to_do() -> None:
    used = iter([0.0, 90.0, 100.0, 25.0, 24.9, 0.0])  # the first is of the time before
    await until_quiet(lambda: next(used), seconds=0.0)
    assert list(used) == [0.0]


async def test_how_much_the_machine_does_is_measured() -> None:
    await until_quiet(seconds=0.01, least_busy=101.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await until_quiet(seconds=0.01, least_busy=0.0)

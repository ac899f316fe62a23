"""An archive of the 17,000 classes that Spark loads: Java maps it into memory instead of reading and checking them.

    first start      Java lists the classes that it loads
    a minute later   another Java, in the background, writes the archive, once the machine has little else to do
    later starts     Java maps it

Java itself compares an archive with its own version and with all files of the class path; where they differ, it does
without. So the name of an archive distinguishes these, and a new one is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocols.child_process import child_environment, ending_with_this_process
from protocols.event_log import get_logger

LEAST_PRIORITY: Final = "19"
UNUSED_SECONDS: Final = 30 * 24 * 3600.0
"""Archives of other versions that no Java has mapped for so long are removed; they take some 200 MB each."""
QUIET_SECONDS: Final = 10.0
"""For so long the machine must have had little to do."""
BUSY_PERCENT: Final = 25.0
"""Of all processors. Micro-batches come in bursts that keep them all busy, so that a load of a third is one of bursts:
on two processors these took about a tenth longer while an archive was written, and fell seconds behind with a load of
70 %. The least priority leaves caches, and processors that share a core, no freer."""
_SUFFIX: Final = ".jsa"

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where an archive is, or will be.

    Parameters
    ----------
    file
        The archive.
    classes
        Where Java lists what it loads while there is no archive.
    java
        The program.
    options
        With which Java runs, and which the archive depends on.
    """

    file: Path
    classes: Path
    java: Path
    options: str

    @classmethod
    def of(cls, java_home: Path, spark_home: Path, options: str, *, cache: Path, classes: Path) -> ClassArchive:
        """Return the archive for a Java, a Spark and options, in a folder for archives."""
        found = [str(java_home), str(spark_home), options]
        for part in (java_home / "lib" / "server" / "libjvm.so", spark_home / "jars"):
            with contextlib.suppress(OSError):
                found.append(f"{part.resolve()} {_version_of(part)}")
        with contextlib.suppress(OSError), os.scandir(spark_home / "jars") as jars:
            # Each of them: Java does without an archive if one of its jars has another size or time.
            found.extend(sorted(f"{jar.name} {_version_of(jar)}" for jar in jars))
        name = hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]
        return cls(cache / f"classes-{name}{_SUFFIX}", classes, java_home / "bin" / "java", options)

    def java_options(self) -> str:
        """Return what makes Java map the archive, or list classes if there is none yet."""
        if self.file.exists():
            with contextlib.suppress(OSError):
                os.utime(self.file)  # it is in use
            return f'{self.options} "-XX:SharedArchiveFile={self.file}"'
        return f'{self.options} "-XX:DumpLoadedClassList={self.classes}"'

    def remove(self) -> None:
        """Remove the archive, if there is one: the next start lists classes for another."""
        with contextlib.suppress(OSError):
            self.file.unlink(missing_ok=True)

    async def write(self, class_path: str) -> bool:
        """Write the archive, unless it is there or another process writes it; return whether it has been written.

        Parameters
        ----------
        class_path
            Of the Java that has listed the classes.
        """
        if self.file.exists() or not self.classes.exists():
            return False
        with self._alone() as alone:
            return alone and await self._written(class_path)

    async def _written(self, class_path: str) -> bool:
        draft = self.file.with_suffix(".draft")
        began = time.monotonic()
        command: list[str | Path] = [
            "nice", "-n", LEAST_PRIORITY, self.java, "-Xshare:dump", *shlex.split(self.options),
            f"-XX:SharedClassListFile={self.classes}", f"-XX:SharedArchiveFile={draft}", "-cp", class_path,
        ]  # fmt: skip
        silent = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *ending_with_this_process(command), stdin=silent, stdout=silent, stderr=silent, env=child_environment()
        )
        try:
            code = await process.wait()
            if code == 0 and draft.exists():
                await asyncio.to_thread(_sync, draft)  # Java does not start with an archive of which a part is missing
                draft.replace(self.file)
                log.info("the next start is faster: Java's classes are archived", seconds=int(time.monotonic() - began))
                self._remove_unused()
                return True
            log.info("Java's classes cannot be archived", code=code)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            draft.unlink(missing_ok=True)
        return False

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process writes this archive at the same time."""
        with self.file.with_suffix(".lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _remove_unused(self) -> None:
        for other in self.file.parent.glob(f"classes-*{_SUFFIX}"):
            if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
                other.unlink(missing_ok=True)


async def until_quiet(
    used_percent: Callable[[], float] | None = None, *, seconds: float = QUIET_SECONDS, least_busy: float = BUSY_PERCENT
) -> None:
    """Wait until the machine has had little to do for some time.

    Parameters
    ----------
    used_percent
        Returns how much of all processors was used since it was called last; None measures this machine.
    seconds
        For so long.
    least_busy
        What counts as busy, in percent.
    """
    if used_percent is None:
        from psutil import cpu_percent  # noqa: PLC0415 - nothing that starts a cluster needs it

        used_percent = cpu_percent
    used_percent()
    while True:
        await asyncio.sleep(seconds)
        if used_percent() < least_busy:
            return


def _version_of(file: Path | os.DirEntry[str]) -> str:
    status = file.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened)

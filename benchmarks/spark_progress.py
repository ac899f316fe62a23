"""Spark's progress reports on every micro-batch of a cluster that runs as a process of its own.

A cluster's status shows the last report only. Spark logs them all, but not at the level that a cluster sets; settings
of our own (``LOG4J_CONFIGURATION_FILE``) send what that logger says to a file. With a folder of Spark's settings Java
would have another class path, and not map its archive of classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_REPORT = "Streaming query made progress: "
_SETTINGS = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
appender.progress.type = File
appender.progress.name = progress
appender.progress.fileName = {file}
appender.progress.layout.type = PatternLayout
appender.progress.layout.pattern = %m%n
logger.progress.name = org.apache.spark.sql.execution.streaming.runtime
logger.progress.level = info
logger.progress.additivity = false
logger.progress.appenderRef.progress.ref = progress
"""
_TIME_ZONE = re.compile(r"Z$")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch as Spark reports it.

    Parameters
    ----------
    host
        Which of the two Spark queries ran it: ``stateless`` or ``stateful``.
    number
        Its number.
    began
        Seconds since 1970.
    seconds
        How long it took.
    parts
        Seconds by part of the work, in Spark's words.
    state_rows
        How many values it wrote to the state store.
    epoch
        The plan that it ran.
    """

    host: str
    number: int
    began: float
    seconds: float
    parts: dict[str, float]
    state_rows: int
    epoch: int


def settings_that_log_progress(folder: Path) -> dict[str, str]:
    """Write the settings to a folder; return the environment of a cluster that uses them."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "log4j2.properties"
    settings.write_text(_SETTINGS.format(file=folder / "progress.log"))
    return {"LOG4J_CONFIGURATION_FILE": str(settings)}


def micro_batches(folder: Path) -> list[MicroBatch]:
    """Return the micro-batches that Spark has reported so far, in order of their reports."""
    path = folder / "progress.log"
    return list(_reports(path.read_text())) if path.exists() else []


def _reports(text: str) -> Iterator[MicroBatch]:
    decoder = json.JSONDecoder()
    place = 0
    while (place := text.find(_REPORT, place)) >= 0:
        place += len(_REPORT)
        try:
            report, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            return  # the last one is being written
        parts = {name: milliseconds / 1000 for name, milliseconds in report["durationMs"].items()}
        if report["batchId"] < 0 or "addBatch" not in parts:
            continue  # it had nothing to do
        yield MicroBatch(
            host=report["name"].split()[-1],
            number=report["batchId"],
            began=datetime.fromisoformat(_TIME_ZONE.sub("+00:00", report["timestamp"])).timestamp(),
            seconds=parts["triggerExecution"],
            parts=parts,
            state_rows=sum(each["numRowsUpdated"] for each in report["stateOperators"]),
            epoch=report["sources"][0]["endOffset"]["epoch"],
        )

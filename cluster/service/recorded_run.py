"""The main process of a cluster on a timeline: recorded while it runs, or replayed from its log. What runs is the same.

A log begins with the small files of the data folder: the registry, plans, and the logs of streams' tables, without
the rows of these. A replay has them in a folder of its own; there are neither Spark, publishers, broker nor network.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from cluster.errors import ClusterError
from cluster.physical.plan_files import PlanFiles
from cluster.service.data_folder.folder import MARKER, REGISTRY
from cluster.service.publishing.published import SHARDS
from cluster.service.registry.registry import Registry
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from cluster.storage.archived_log import LOG
from cluster.storage.table_folders import FOLDER as DROPPED
from protocols.event_log import get_logger
from protocols.recording.entries import FORMAT, Header, LogError
from protocols.recording.player import Player, play
from protocols.recording.reading import RecordedRun, decompressed
from protocols.recording.recorder import Recorder
from protocols.recording.segments import SegmentWriter
from protocols.recording.timeline import Timeline

log = get_logger(__name__)

PART: Final = "cluster"
MOST_COPIED_BYTES: Final = 64 * 1024**2
"""Larger files are not copied into a log."""
MOST_FILES: Final = 20_000
MAX_STATE_BYTES: Final = 1024**3
"""Of all files in a log."""
NOT_KEPT: Final = frozenset(
    {
        *("folder", "broker", "api_host", "api_port", "api_tls", "api_token", "api_tokens", "api_allowed_hosts"),
        "api_allowed_origins",
        *(
            "adopt",
            "keys",
            "master",
            "spark",
            "relation_folders",
            "relation_hosts",
            "relation_credentials",
            "functions",
        ),
    }
)
"""Settings that a replay does not need, or must not know."""
MOST_BUCKETS: Final = 1024
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.@=-]{0,250}"
_ALLOWED: Final = re.compile(
    rf"{re.escape(MARKER)}|{re.escape(REGISTRY)}|plans/\d{{12}}\.json|"
    rf"streams/{_NAME}/{LOG}/{_NAME}|streams/{re.escape(DROPPED)}/{_NAME}\.json"
)
"""Files of a data folder that a log may have; no other is ever written."""


async def run_on(timeline: Timeline, server: ClusterServer, ready: asyncio.Event | None = None) -> None:
    """Run a cluster that was made with a timeline, until that asks it to stop."""
    task = asyncio.current_task()
    if task is not None:
        task.set_name(PART)
    timeline.taped_threads()
    await server.run(ready=ready)


def begin_recording(folder: Path, limit_bytes: int, settings: ClusterSettings) -> Recorder:
    """Return a recorder of a cluster that has not opened its data folder, in a folder of at most so many bytes.

    Raises
    ------
    LogError
        The folder cannot be used, or the cluster has relations.
    """
    data = settings.folder.resolve()
    registry = Registry(data / REGISTRY, PlanFiles(data / "plans"), max_queries=settings.max_queries)
    log.info("recording", folder=str(folder), cluster=registry.engine_id)  # which is drawn now, if there is none yet
    has_relations = bool(registry.relations.relations())
    registry.close()
    if has_relations:
        raise LogError(
            "a cluster with relations cannot be recorded: their sources are outside, and their addresses may be secret",
            hint="run it without --record",
        )

    def header(run: str, begins: bool, most_bytes: int) -> Header:  # noqa: FBT001 - see MakeHeader
        state, left_out = copied_files(data, most_bytes)
        return Header(
            format=FORMAT,
            part=PART,
            name=settings.name,
            run=run,
            begins=begins,
            settings={
                each.name: getattr(settings, each.name) for each in fields(settings) if each.name not in NOT_KEPT
            },
            versions={"fjord": version("fjord"), "python": platform.python_version()},
            state=state,
            left_out=left_out,
        )

    return Recorder(SegmentWriter(folder, limit_bytes, header))


def copied_files(folder: Path, most_bytes: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the small files of a data folder, compressed, by name; and which are left out because there is no room."""
    found: dict[str, bytes] = {}
    room = most_bytes
    for path in _small_files(folder):
        name = path.relative_to(folder).as_posix()
        content = b""
        with contextlib.suppress(FileNotFoundError):  # a log that was shortened meanwhile
            if path.stat().st_size > MOST_COPIED_BYTES or len(found) == MOST_FILES:
                return found, (name,)
            content = zlib.compress(_database(path) if name == REGISTRY else path.read_bytes(), 1)
            found[name] = content
        room -= len(content)
        if room < 0:
            return {}, (name,)
    return found, ()


def _small_files(folder: Path) -> Iterator[Path]:
    for pattern in (REGISTRY, MARKER, "plans/*.json", f"streams/{DROPPED}/*.json", f"streams/*/{LOG}/*"):
        yield from (each for each in sorted(folder.glob(pattern)) if _is_allowed(each, folder))


def _is_allowed(path: Path, folder: Path) -> bool:
    return path.is_file() and _ALLOWED.fullmatch(path.relative_to(folder).as_posix()) is not None


def _database(path: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        return database.serialize()


def replay(run: RecordedRun) -> Player:
    """Run a cluster again as the log says, and return what it has done.

    Raises
    ------
    LogError
        The log does not hold what a cluster begins with.
    """
    settings = _settings_of(run.header)
    player = Player(run)
    with tempfile.TemporaryDirectory(prefix="fjord-replay-") as name:
        folder = Path(name)
        _restore(run.header, folder)
        try:
            _check_registry(folder, settings)
        except ClusterError as error:
            raise LogError(f"the log of cluster {run.header.name!r} cannot be replayed: {error.message}") from error
        play(player, lambda: run_on(player, ClusterServer(replace(settings, folder=folder), timeline=player)))
    return player


def _restore(header: Header, folder: Path) -> None:
    """Write the log's files, of which only names that a data folder has are allowed."""
    left = MAX_STATE_BYTES
    if len(header.state) > MOST_FILES:
        raise LogError(
            f"the log of cluster {header.name!r} has {len(header.state):,} files, the limit is {MOST_FILES:,}"
        )
    for name, content in header.state.items():
        if _ALLOWED.fullmatch(name) is None:
            raise LogError(f"the log of cluster {header.name!r} has a file {name[:200]!r} that no data folder has")
        found = decompressed(content, name, left)
        left -= len(found)
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(found)
        except OSError as error:
            raise LogError(f"cannot write the files of the log: {error.strerror}") from error


def _check_registry(folder: Path, settings: ClusterSettings) -> None:
    registry = Registry(folder / REGISTRY, PlanFiles(folder / "plans"), max_queries=settings.max_queries)
    try:
        if registry.relations.relations():
            raise LogError("the log of a cluster has relations, which are never replayed")
    finally:
        registry.close()


def _settings_of(header: Header) -> ClusterSettings:
    known = {each.name for each in fields(ClusterSettings)} - NOT_KEPT
    given = {name: value for name, value in header.settings.items() if name in known}
    try:
        settings = msgspec.convert(given, ClusterSettings)
    except (msgspec.ValidationError, TypeError) as error:
        raise LogError(f"the log of cluster {header.name!r} has settings that are none: {error}") from error
    if not (1 <= settings.buckets <= MOST_BUCKETS and 1 <= settings.publishers <= SHARDS):
        raise LogError(f"the log of cluster {header.name!r} has settings that no cluster can have")
    return settings

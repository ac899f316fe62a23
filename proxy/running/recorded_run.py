"""A proxy on a timeline: recorded while it runs, or replayed from its log. What runs is the same.

A replay begins with the databases that the log holds, in a folder of its own, and needs no broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import sqlite3
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from protocols.errors import FjordError
from protocols.recording.entries import FORMAT, Header, LogError
from protocols.recording.player import Player, play
from protocols.recording.reading import RecordedRun, decompressed
from protocols.recording.recorder import Recorder
from protocols.recording.segments import SegmentWriter, masked
from protocols.recording.timeline import Timeline
from proxy.drivers.driver import Driver
from proxy.drivers.settings import read_drivers
from proxy.running.link_interface import ClientSession, Clocks, Link, LinkFactory
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import Stores, open_stores

PART: Final = "proxy"
DATABASES: Final = ("spool.sqlite", "catalog.sqlite")
"""What a proxy begins with; it never reads its quarantine."""
MOST_COPIED_BYTES: Final = 64 * 1024**2
"""A larger database is not copied into a log: the copy is in memory for a moment."""
MAX_STATE_BYTES: Final = 2 * 1024**3
"""Of a database in a log."""
_DRIVERS: Final = "drivers"


async def run_on(  # noqa: PLR0917 - all that a proxy needs
    timeline: Timeline,
    settings: ProxySettings,
    stores: Stores,
    make_link: LinkFactory,
    drivers: Iterable[Driver],
    began: Callable[[ProxyService], None],
) -> None:
    """Run a proxy on a timeline until that asks it to stop; `began` is called before it runs."""
    service = ProxyService(
        settings,
        replace(stores, thread=timeline.taped_threads(stores.thread)),
        _taped(timeline, make_link),
        clocks=Clocks(timeline.radio_us, timeline.real_us),
        drivers=drivers,
    )
    began(service)
    task = asyncio.current_task()
    if task is not None:
        task.set_name(PART)
    await service.run(timeline.stopped)


def begin_recording(folder: Path, limit_bytes: int, settings: ProxySettings) -> Recorder:
    """Return a recorder of a proxy whose stores are open, in a folder of at most so many bytes; raises LogError."""

    def header(run: str, begins: bool, most_bytes: int) -> Header:  # noqa: FBT001 - see MakeHeader
        state, left_out = copy_databases(settings.folder, most_bytes)
        documents = {_DRIVERS: Path(settings.drivers).read_text("utf-8")} if settings.drivers else {}
        return Header(
            format=FORMAT,
            part=PART,
            name=settings.name,
            run=run,
            begins=begins,
            settings=masked(settings.model_dump()),
            versions={"fjord": version("fjord"), "python": platform.python_version()},
            state=state,
            left_out=left_out,
            documents=documents,
        )

    return Recorder(SegmentWriter(folder, limit_bytes, header))


def copy_databases(folder: Path, most_bytes: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return copies of the databases, by name, and the names of those for which there is no room."""
    found: dict[str, bytes] = {}
    left_out: list[str] = []
    for name in reversed(DATABASES):  # the spool last: it may be large
        path = folder / name
        sizes = [each.stat().st_size for each in (path, path.with_name(f"{name}-wal")) if each.exists()]
        if sum(sizes) <= MOST_COPIED_BYTES:
            with (
                contextlib.suppress(sqlite3.DatabaseError),
                contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database,
            ):
                found[name] = zlib.compress(database.serialize(), 1)
        if name not in found or sum(map(len, found.values())) > most_bytes:
            found.pop(name, None)
            left_out.append(name)
    return found, tuple(left_out)


def replay(run: RecordedRun) -> Player:
    """Run a proxy again as the log says, and return what it has done.

    Raises
    ------
    LogError
        The log does not hold what a proxy begins with.
    """
    settings, drivers = _settings_of(run.header), _drivers_of(run.header)
    player = Player(run)
    with tempfile.TemporaryDirectory(prefix="fjord-replay-") as name:
        folder = Path(name)
        for file in DATABASES:
            if file in run.header.state:
                (folder / file).write_bytes(decompressed(run.header.state[file], file, MAX_STATE_BYTES))
        settings = settings.model_copy(update={"data": name})
        with open_stores(
            folder, settings.name, quarantine_entries=settings.quarantine_entries, same_writer=True
        ) as stores:
            play(player, lambda: run_on(player, settings, stores, _no_link, drivers, began=void))
    return player


def void(_: object) -> None:
    """Do nothing."""


def _no_link(_: ClientSession) -> Link:
    raise AssertionError("a replay needs no broker")


def _taped(timeline: Timeline, make_link: LinkFactory) -> LinkFactory:
    def make(session: ClientSession) -> Link:
        return timeline.taped_link(
            lambda connect, disconnect: make_link(replace(session, on_connect=connect, on_disconnect=disconnect)),
            session.on_connect,
        )

    return make


def _settings_of(header: Header) -> ProxySettings:
    known = {name: value for name, value in header.settings.items() if name in ProxySettings.model_fields}
    known.setdefault("device_session", "never")  # it was recorded before there was one
    try:
        return ProxySettings.model_validate(known)
    except (ValidationError, FjordError) as error:
        raise LogError(f"the log of proxy {header.name!r} has settings that are none: {error}") from error


def _drivers_of(header: Header) -> list[Driver]:
    text = header.documents.get(_DRIVERS)
    if text is None:
        return []
    try:
        return read_drivers(tomllib.loads(text), _DRIVERS)
    except tomllib.TOMLDecodeError as error:
        raise LogError(f"the log of proxy {header.name!r} has drivers that are none: {error}") from error

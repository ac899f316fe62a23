"""The proxy's databases and the one thread that waits for their disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from proxy.storage.catalog_store import CatalogStore
from proxy.storage.data_folder import owned_data_folder
from proxy.storage.quarantine import Quarantine
from proxy.storage.spool import Spool

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stores:
    """All databases of a data folder."""

    spool: Spool
    catalog: CatalogStore
    quarantine: Quarantine
    thread: Executor

    async def in_thread(self, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Do disk work in the stores' thread; calls run in the order in which they are made."""
        future = self.thread.submit(work, *arguments, **keywords)
        return await asyncio.wrap_future(future)


@contextlib.contextmanager
def open_stores(
    folder: Path, proxy: str, *, quarantine_entries: int, adopt: bool = False, same_writer: bool = False
) -> Iterator[Stores]:
    """Own the data folder and its databases for the duration of the context.

    `adopt` is as in :func:`proxy.storage.data_folder.owned_data_folder`, and `same_writer` as in
    :class:`proxy.storage.spool.Spool`.

    Raises
    ------
    DataFolderError
        The folder cannot be used, or another process does.
    StoreError
        A database cannot be used.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(owned_data_folder(folder, adopt=adopt))
        spool = Spool(folder / "spool.sqlite", proxy, same_writer=same_writer)
        stack.callback(spool.close)
        catalog = CatalogStore(folder / "catalog.sqlite")
        stack.callback(catalog.close)
        quarantine = Quarantine(folder / "quarantine.sqlite", quarantine_entries)
        stack.callback(quarantine.close)
        spool.room.shrink()  # the reserve comes last: on a full disk, opening needs room, too
        thread = stack.enter_context(ThreadPoolExecutor(max_workers=1, thread_name_prefix="proxy stores"))
        yield Stores(spool, catalog, quarantine, thread)

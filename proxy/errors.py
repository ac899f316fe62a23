"""A proxy's errors: its branch of Fjord's exception tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.errors import FjordError

if TYPE_CHECKING:
    from pathlib import Path


class ProxyError(FjordError):
    """Root of the proxy's own errors."""


class ConfigurationError(ProxyError):
    """A setting that is unknown, of a wrong form or out of range."""


class DataFolderError(ProxyError):
    """The data folder cannot be made or written."""


class DataFolderInUseError(DataFolderError):
    """Another proxy already works on this data folder."""

    def __init__(self, folder: Path, owner: str) -> None:
        super().__init__(
            f"another proxy{owner} already works on {folder}",
            hint="stop it, or give this one a --name or --data of its own",
        )
        self.folder = folder


class DataFolderMovedError(DataFolderError):
    """The data folder is a copy, or on another machine than before."""

    def __init__(self, folder: Path, problem: str, hint: str) -> None:
        super().__init__(problem, hint=hint)
        self.folder = folder


class NameSharedError(ProxyError):
    """Another process runs with the name and the identity of this proxy."""

    def __init__(self, proxy: str, identity: str) -> None:
        super().__init__(
            f"another process runs as proxy {proxy!r} with the same identity, {identity}, on a copy of this folder",
            hint="stop one of them, or give it a --name and a fresh --data of its own",
        )
        self.proxy = proxy
        self.identity = identity


class ContestedError(ProxyError):
    """The cluster has stored batches under this proxy's name that another process wrote."""

    def __init__(self, folder: Path, proxy: str, stream: str, *, through: int, spooled: int) -> None:
        super().__init__(
            f"the cluster has stored batches of stream {stream!r} up to {through:,} under the name of proxy {proxy!r} "
            f"that {folder} does not hold (its last is {spooled:,}): another proxy runs on a copy of this folder, or "
            "this folder is older than what was sent",
            hint="stop the other one if there is one, and go on here with a fresh --data; with a --name of its own, "
            "too, if both are to run. This folder keeps what the cluster has not stored",
        )
        self.folder = folder
        self.stream = stream
        self.through = through
        self.spooled = spooled


class StoreError(ProxyError):
    """A file of the data folder cannot be used."""

    def __init__(self, path: Path, message: str, *, hint: str) -> None:
        super().__init__(f"{path}: {message}", hint=hint)
        self.path = path


class StoreVersionError(StoreError):
    """A file written by a newer program."""

    def __init__(self, path: Path, found: int, supported: int) -> None:
        super().__init__(
            path,
            f"written by a newer Fjord (schema version {found}, this program supports up to {supported})",
            hint="upgrade this program; it leaves the file as it is",
        )
        self.found = found
        self.supported = supported


class StoreCorruptError(StoreError):
    """A file that is no database, or a damaged one."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            path,
            f"not a readable database: {reason}",
            hint="move the file away to begin anew (what it holds is not sent), or restore it",
        )


class StoreFullError(StoreError):
    """The disk is full or failing."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            path,
            f"cannot be written: {reason}",
            hint="free disk space, or let the cluster acknowledge batches: the proxy goes on by itself",
        )

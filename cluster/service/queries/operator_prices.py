"""The prices of operators on this machine: those in the data folder, if some were measured there."""

from __future__ import annotations

from pathlib import Path

from cluster.costs.prices import SHIPPED, Prices, prices_text, read_prices
from cluster.errors import PlanError, StorageError
from cluster.storage.synced_files import write_whole
from protocols.event_log import get_logger

log = get_logger(__name__)

FILE = "prices.json"
MOST_BYTES = 1024**2
"""No more is read of a file: a larger one holds no prices."""


class OperatorPrices:
    """Reads the file when it has changed; a file that cannot be read is noted once, and shipped prices hold.

    Parameters
    ----------
    folder
        The data folder; None for shipped prices.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._path = None if folder is None else folder / FILE
        self._seen: tuple[int, int] | None = None
        self._prices = SHIPPED

    def current(self) -> Prices:
        """Return the prices that hold now."""
        if self._path is None:
            return SHIPPED
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                self._seen, self._prices = seen, SHIPPED
                self._prices = read_prices(self._path.read_bytes()[:MOST_BYTES])
        except FileNotFoundError:
            self._seen, self._prices = None, SHIPPED
        except (OSError, PlanError) as error:
            log.warning("prices of operators cannot be read", file=str(self._path), reason=str(error))
        return self._prices


def check_folder(folder: Path) -> None:
    """Raise unless there is a data folder.

    Raises
    ------
    StorageError
        If there is none.
    """
    if not folder.is_dir():
        raise StorageError(
            f"there is no data folder {folder}", hint="name that of the cluster with --data; `fjord cluster` makes it"
        )


def write_prices(folder: Path, prices: Prices) -> Path:
    """Write prices into a data folder, where a cluster that runs finds them at once; return the file.

    Raises
    ------
    StorageError
        If there is no such folder, or it cannot be written to.
    """
    check_folder(folder)
    path = folder / FILE
    try:
        write_whole(path, prices_text(prices))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    return path

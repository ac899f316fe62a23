"""Corrects a checkpoint that was moved, or copied to another place: Spark stores full paths of its schemas.

Stored in ``state/0/_metadata/v2/0``: ``"stateSchemaFilePaths": ["file:/old/state/0/_stateSchema/default/0_da92"]``. The
schema itself has moved with everything else.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cluster.storage.synced_files import write_whole
from protocols.event_log import get_logger

log = get_logger(__name__)

_SCHEMAS = "_stateSchema"
_PATHS, _STORES = "stateSchemaFilePaths", "stateStoreInfo"


def relocate_checkpoint(checkpoint: Path) -> None:
    """Correct the paths stored in a checkpoint, if it is not where it was written.

    Parameters
    ----------
    checkpoint
        Its folder; there need not be one.

    Raises
    ------
    OSError
        If something cannot be read or written; then it is as it was.
    """
    for stored in checkpoint.glob("state/*/_metadata/v2/*"):
        if not stored.name.isdigit():
            continue
        before = stored.read_bytes()
        operator = stored.parents[2]
        after = corrected(before, f"file:{operator.resolve()}")
        if after != before:
            log.warning("the data folder was moved: paths that Spark has stored are corrected", operator=str(operator))
            stored.with_name(f".{stored.name}.crc").unlink(missing_ok=True)  # of what was there
            write_whole(stored, after)


def corrected(content: bytes, operator: str) -> bytes:
    r"""Return what Spark stores of a stateful operator, with the path where its folder is now.

    What cannot be read is returned as it is: Spark raises an error about it.

    >>> stored = b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/a/state/0/_stateSchema/default/0_da"]}]}'
    >>> corrected(stored, "file:/b/state/0")
    b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/b/state/0/_stateSchema/default/0_da"]}]}'
    """
    version, _, text = content.partition(b"\n")
    try:
        found = msgspec.json.decode(text)
        for store in found[_STORES]:
            store[_PATHS] = [_below(operator, path) for path in store[_PATHS]]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return content
    return version + b"\n" + msgspec.json.encode(found)


def _below(operator: str, path: str) -> str:
    _, found, name = path.rpartition(f"/{_SCHEMAS}/")
    return f"{operator}{found}{name}" if found else path

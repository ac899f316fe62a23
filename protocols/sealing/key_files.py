"""The files of a deployment's keys, read and written; readable by their owner only."""

from __future__ import annotations

from pathlib import Path

from protocols.errors import SettingsError
from protocols.sealing.keys import CLUSTER_FILE, Deployment, read_deployment
from protocols.security.private_files import SECRET, write_file

SUFFIX = ".keys"


def read_files(folder: Path) -> dict[str, str]:
    """Return the content of the files of keys in a folder, by name.

    Raises
    ------
    SettingsError
        If one cannot be read.
    """
    try:
        return {each.name: each.read_text(encoding="utf-8") for each in sorted(folder.glob(f"*{SUFFIX}"))}
    except OSError as error:
        raise SettingsError(f"cannot read the keys in {folder}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"a file of keys in {folder} is no text") from None


def write_files(folder: Path, before: dict[str, str], keys: Deployment) -> list[str]:
    """Write the files that have changed, readable by their owner only, and remove those that are gone; return which.

    The cluster's file is written last: until then the cluster knows no part under a new key.

    Raises
    ------
    SecurityError
        If one cannot be written.
    SettingsError
        If one cannot be removed.
    """
    after, changed = keys.files(), []
    for name in sorted(after, key=lambda name: (name == CLUSTER_FILE, name)):
        if before.get(name) != after[name]:
            write_file(folder / name, after[name].encode(), mode=SECRET, overwrite=True)
            changed.append(f"written: {folder / name}")
    for name in sorted(_ours(before) - after.keys()):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise SettingsError(f"cannot remove {folder / name}: {error.strerror}") from error
        changed.append(f"removed: {folder / name}")
    return changed


def _ours(before: dict[str, str]) -> set[str]:
    """Return the files that the keys before were in; others, such as copies that were kept, are left alone."""
    return set(read_deployment(before).files()) & before.keys() if CLUSTER_FILE in before else set()

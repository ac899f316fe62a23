"""``fjord security keys``: makes the keys of a deployment, renews and revokes them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from protocols.errors import SettingsError
from protocols.security.keys import CLUSTER_FILE, SECRET_BYTES, Deployment, make_keys, read_deployment

SUFFIX = ".keys"


def keys_command(
    folder: Annotated[Path, typer.Argument(help="Folder of the keys; it is made if there is none.")],
    *,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="A proxy of the deployment; one that has no keys gets some.", metavar="NAME"),
    ] = None,
    renew: Annotated[
        list[str] | None, typer.Option(help="A proxy that gets a new key of its own.", metavar="NAME")
    ] = None,
    renew_cluster: Annotated[bool, typer.Option("--renew-cluster", help="The cluster gets a new key.")] = False,
    renew_mote: Annotated[
        list[str] | None, typer.Option(help="A mote that gets a new secret.", metavar="PROXY/MOTE")
    ] = None,
    revoke: Annotated[
        list[str] | None,
        typer.Option(help="A proxy whose keys, and those of its motes, count no more.", metavar="NAME"),
    ] = None,
) -> None:
    """Make keys for a cluster, its proxies and their motes, or change those in FOLDER.

    Give each part its own file, with which it starts: `fjord cluster --keys`, `fjord proxy --keys`, `fjord motes run
    --keys`. Parts read their keys when they start.
    """
    before = read_files(folder)
    wanted = set(proxy or ())
    keys = make_keys(secrets.token_bytes(SECRET_BYTES), ()) if not before else read_deployment(before)
    unknown = set(renew or ()) - keys.proxies.keys()
    if unknown:
        raise SettingsError(f"there are no keys of proxy {min(unknown)!r} to renew", hint="name it with --proxy")
    keys = keys.renewed(
        secrets.token_bytes(SECRET_BYTES),
        cluster=renew_cluster,
        proxies=(wanted - keys.proxies.keys()) | set(renew or ()),
    )
    for name in revoke or ():
        keys = keys.without(name)
    for each in renew_mote or ():
        owner, separator, mote = each.partition("/")
        if not separator:
            raise SettingsError(f"{each!r} names no mote", hint="write PROXY/MOTE")
        keys = keys.with_renewed_mote(owner, mote)
    for name in write_files(folder, before, keys):
        typer.echo(name)


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
    SettingsError
        If one cannot be written.
    """
    after, changed = keys.files(), []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in sorted(after, key=lambda name: (name == CLUSTER_FILE, name)):
            if before.get(name) != after[name]:
                _write(folder / name, after[name])
                changed.append(f"written: {folder / name}")
        for name in sorted(before.keys() - after.keys()):
            (folder / name).unlink(missing_ok=True)
            changed.append(f"removed: {folder / name}")
    except OSError as error:
        raise SettingsError(f"cannot write the keys in {folder}: {error.strerror}") from error
    return changed


def _write(file: Path, content: str) -> None:
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    beside.replace(file)

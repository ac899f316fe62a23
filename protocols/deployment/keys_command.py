"""``fjord security keys``: makes the keys that seal frames, renews and revokes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocols.errors import SettingsError


def keys_command(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a deployment, or of keys alone; it is made if there is none.")
    ],
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
    """Change the keys that seal frames of a deployment, or make some without certificates.

    `fjord security init` makes them for a deployment, each part's in its folder. Made alone, they are in FOLDER: give
    each part its own file, with which it starts: `fjord cluster --keys`, `fjord proxy --keys`, `fjord motes run
    --keys`. Parts read their keys when they start.
    """
    import secrets

    from protocols.deployment.folder import DeploymentFolder
    from protocols.deployment.identities import KEYS, STATE
    from protocols.sealing.key_files import read_files, write_files
    from protocols.sealing.keys import CLUSTER_FILE, SECRET_BYTES, make_keys, read_deployment

    deployed = DeploymentFolder.open(folder) if (folder / STATE).exists() else None
    if deployed is not None and (proxy or revoke):
        raise SettingsError(
            "a deployment has keys for the proxies that it has",
            hint="`fjord security add proxy` adds one, `fjord security revoke` takes one away",
        )
    if deployed is not None:
        kept, (before, known) = folder / KEYS, deployed.kept_keys()
    else:
        kept, before = folder, read_files(folder)
        known = read_deployment(before) if CLUSTER_FILE in before else None
    wanted = set(proxy or ())
    keys = known or make_keys(secrets.token_bytes(SECRET_BYTES), ())
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
    changed = write_files(kept, before, keys)
    if deployed is not None:
        changed = [f"written: {folder / each}" for each in deployed.hand_out_keys()]
    for line in changed:
        typer.echo(line)

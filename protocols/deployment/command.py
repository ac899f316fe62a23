"""`fjord security`: certificates, keys and access rules for a deployment; files `*.key` and `*.keys` are secret."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocols.errors import SettingsError

if TYPE_CHECKING:
    from protocols.deployment.folder import DeploymentFolder
    from protocols.deployment.names import Names, Part


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
    from protocols.sealing.keys import CLUSTER_FILE, SECRET_BYTES, make_keys, read_deployment, read_files, write_files

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


app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Certificates, keys and access rules: make, renew, revoke."
)
add = typer.Typer(add_completion=False, no_args_is_help=True, help="Add a part to a deployment.")
app.add_typer(add, name="add")
app.command("keys")(keys_command)

Folder = Annotated[Path, typer.Argument(help="Folder of the deployment.", file_okay=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reads = Annotated[
    list[str] | None, typer.Option("--read", metavar="FILTER", help="Topics of devices that it reads; repeatable.")
]
Writes = Annotated[
    list[str] | None, typer.Option("--write", metavar="FILTER", help="Topics of devices that it writes; repeatable.")
]
Days = Annotated[
    int | None, typer.Option(min=1, max=36_500, help="How long certificates are valid.", show_default="365")
]


@app.command()
def init(
    folder: Folder,
    *,
    broker_host: Annotated[
        list[str], typer.Option(help="Name or address by which clients call the broker; repeatable, the first is used.")
    ],
    proxy: Annotated[list[str], typer.Option(help="Name of a proxy; repeatable.")],
    mote: Annotated[
        list[str] | None,
        typer.Option(
            help="A mote that connects through the gateway PROXY-motes, or through another; repeatable.",
            metavar="PROXY/MOTE[@GATEWAY]",
        ),
    ] = None,
    subscriber: Annotated[
        list[str] | None,
        typer.Option(
            help="A program that reads results, of all queries or of some; repeatable.", metavar="NAME[=QUERY,...]"
        ),
    ] = None,
    cluster: Annotated[str, typer.Option(help="Name of the cluster.")] = "cluster",
    api_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or address by which clients call the API; repeatable.", show_default="localhost, 127.0.0.1"
        ),
    ] = None,
    api_port: Annotated[int, typer.Option(min=1, max=65_535, help="Port of the API.")] = 8642,
    days: Days = None,
    broker_port: Annotated[int, typer.Option(min=1, max=65_535, help="Port of the broker.")] = 8883,
    broker_listen: Annotated[str, typer.Option(help="Address that the broker listens on.")] = "127.0.0.1",
    broker_folder: Annotated[
        str | None,
        typer.Option(help="Where FOLDER/broker will be on the broker's machine.", show_default="where it is made"),
    ] = None,
    broker_data: Annotated[
        str | None, typer.Option(help="Where the broker keeps messages over a restart.", show_default="nowhere")
    ] = None,
    password_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_535, help="Second port, without TLS, for devices that show a password.", show_default="none"
        ),
    ] = None,
    password_listen: Annotated[str, typer.Option(help="Address of that port.")] = "127.0.0.1",  # noqa: S107 - no password
    broker_user: Annotated[
        str | None,
        typer.Option(help="User that the broker runs as if root starts it.", show_default="Mosquitto's choice"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an authority, certificates, keys, access rules and the broker's configuration."""
    from protocols.deployment.broker_configuration import BrokerPart
    from protocols.deployment.folder import DeploymentFolder
    from protocols.deployment.identities import FORMAT, Deployment
    from protocols.deployment.names import Names, ProxyPart, parse_mote, parse_subscriber

    names = Names(
        cluster,
        tuple(ProxyPart(each) for each in dict.fromkeys(proxy)),
        subscribers=tuple(parse_subscriber(each) for each in dict.fromkeys(subscriber or ())),
    ).with_motes(map(parse_mote, mote or ()))
    broker = BrokerPart(
        tuple(broker_host),
        broker_folder or str((folder / "broker").absolute()),
        port=broker_port,
        listen=broker_listen,
        data=broker_data,
        user=broker_user,
        password_port=password_port,
        password_listen=password_listen,
    )
    wanted = Deployment(
        FORMAT, broker, names, tuple(api_host or ("localhost", "127.0.0.1")), days or 365, api_port=api_port
    )
    _summarize(DeploymentFolder.create(folder, wanted, time.time()), as_json=as_json)


@add.command("proxy")
def add_proxy(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Name of the proxy.")],
    *,
    reads: Reads = None,
    writes: Writes = None,
    as_json: AsJson = False,
) -> None:
    """Add a proxy, or topics of devices of other makers to one that is there."""
    from protocols.deployment.names import ProxyPart

    opened = _open(folder)
    known = next((each for each in opened.deployment.names.proxies if each.name == name), ProxyPart(name))
    part = ProxyPart(name, _joined(known.reads, reads), _joined(known.writes, writes))
    _change(opened, _with(opened, part), as_json=as_json)


@add.command("mote")
def add_mote(
    folder: Folder,
    mote: Annotated[list[str], typer.Argument(help="The motes.", metavar="PROXY/MOTE[@GATEWAY]...")],
    *,
    as_json: AsJson = False,
) -> None:
    """Add motes to the gateway PROXY-motes, or to another; a mote that connects by itself is its own gateway."""
    from protocols.deployment.names import parse_mote

    opened = _open(folder)
    _change(opened, opened.deployment.names.with_motes(map(parse_mote, mote)), as_json=as_json)


@add.command("subscriber")
def add_subscriber(
    folder: Folder,
    subscriber: Annotated[str, typer.Argument(help="A program that reads results.", metavar="NAME[=QUERY,...]")],
    *,
    as_json: AsJson = False,
) -> None:
    """Add a program that reads results of all queries or of some; of one that is there, change which."""
    from protocols.deployment.names import parse_subscriber

    opened = _open(folder)
    _change(opened, _with(opened, parse_subscriber(subscriber)), as_json=as_json)


@add.command("device")
def add_device(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Name of the device, or of a bridge of devices.")],
    *,
    reads: Reads = None,
    writes: Writes = None,
    password: Annotated[
        bool, typer.Option("--password", help="It cannot show a certificate: draw a password for it.")
    ] = False,
    password_from: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its password is the first line of FILE, - for standard input.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a device of another maker, or topics to one that is there."""
    from protocols.deployment.identities import password_file
    from protocols.deployment.names import DevicePart
    from protocols.security.errors import SecurityError

    opened = _open(folder)
    known = next((each for each in opened.deployment.names.devices if each.name == name), DevicePart(name))
    shows = known.password or password or password_from is not None
    if shows and not known.password and known in opened.deployment.names.devices:
        raise SecurityError(f"{name} has a certificate", hint=f"`fjord security revoke {folder} {name}` first")
    if shows and opened.deployment.broker.password_port is None:
        raise SecurityError(
            "the broker does not listen for passwords", hint=f"`fjord security passwords {folder} --port 1883` first"
        )
    part = DevicePart(name, _joined(known.reads, reads), _joined(known.writes, writes), shows)
    names = _with(opened, part)
    if password_from is not None:
        opened.set_password(name, _first_line(password_from))
    _change(opened, names, as_json=as_json)
    if shows and not as_json:
        typer.echo(f"its user is {name}, its password is in {folder / password_file(name)}")


@app.command()
def passwords(
    folder: Folder,
    *,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port for them.")] = 1883,
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Let the broker listen, without TLS, for devices that show a password as they can show no certificate."""
    from protocols.deployment.broker_configuration import password_lines

    opened = _open(folder)
    written = opened.listen_for_passwords(port, listen, time.time())
    lines = password_lines(opened.deployment.broker)
    if as_json:
        typer.echo(json.dumps({"written": written, "lines": lines}))
        return
    file = opened.path / "broker" / "mosquitto.conf"
    if written:
        typer.echo(f"{file} has a second listener; copy it and passwords to the broker, and start that again")
    else:
        typer.echo(f"{file} was edited, so add these lines yourself, before acl_file:")
        typer.echo("\n".join(lines))


@app.command()
def renew(
    folder: Folder,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Whose certificates; authority, broker and api are names, too.", show_default="those that expire soon"
        ),
    ] = None,
    *,
    days: Days = None,
    revoke_old: Annotated[
        bool, typer.Option("--revoke-old", help="Revoke the old ones at once: their keys have leaked.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make new certificates and keys in place of old ones, which stay valid until they expire."""
    opened, now = _open(folder), time.time()
    renewed = opened.renew(names or (), now, days)
    if revoke_old:
        opened.revoke_old(renewed, now)
    if as_json:
        typer.echo(json.dumps({"renewed": renewed}))
    elif renewed:
        typer.echo(f"renewed: {', '.join(renewed)}; copy these files to their machines, and start the parts again")
    else:
        typer.echo("nothing expires within 30 days")


@app.command()
def revoke(
    folder: Folder, name: Annotated[str, typer.Argument(help="Whose certificates.")], *, as_json: AsJson = False
) -> None:
    """Let the broker accept a part no more: its certificates are listed as revoked, its access rules are gone."""
    opened = _open(folder)
    count = opened.revoke(name, time.time())
    if as_json:
        typer.echo(json.dumps({"revoked": name, "certificates": count, "keys": opened.changed_keys}))
    else:
        typer.echo(
            f"revoked: {name}; copy {folder / 'broker' / 'revoked.crl'} and {folder / 'broker' / 'acl'} "
            "to the broker, and let it read them again (SIGHUP)"
        )
        _show_keys(opened)


@app.command()
def show(folder: Folder, *, as_json: AsJson = False) -> None:
    """Show whose certificates there are, and when they expire."""
    from protocols.deployment.identities import expiry_report

    report = expiry_report(_open(folder).deployment, time.time())
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "role", "expires", "days left")
    table.add_column("file", overflow="fold")
    for each in report:
        table.add_row(each["name"], each["role"], each["expires"], each["left"], each["file"])
    Console().print(table)


def _first_line(file: str) -> str:
    import sys

    from protocols.security.errors import SecurityError

    try:
        text = sys.stdin.readline() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SecurityError(f"the password cannot be read: {error}") from error
    return text.partition("\n")[0].rstrip("\r")


def _open(folder: Path) -> DeploymentFolder:
    from protocols.deployment.folder import DeploymentFolder

    return DeploymentFolder.open(folder)


def _joined(known: tuple[str, ...], given: list[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *(given or ()))))


def _with(opened: DeploymentFolder, part: Part) -> Names:
    """Return the names with a part; one of another kind has not its name."""
    from protocols.security.errors import SecurityError

    known = next((each for each in opened.deployment.names.parts if each.name == part.name), part)
    if type(known) is not type(part):
        raise SecurityError(f"the name {part.name} belongs to another part", hint="choose another name")
    return opened.deployment.names.with_part(part)


def _change(opened: DeploymentFolder, names: Names, *, as_json: bool) -> None:
    before = opened.deployment
    new = opened.change(names, time.time())
    if as_json:
        typer.echo(json.dumps({"added": new, "changed": before.names != names, "keys": opened.changed_keys}))
    elif before.names == names:
        typer.echo("nothing to add: it is there already")
    else:
        with_password = {each.name for each in names.devices if each.password}
        certified = [each for each in new if each not in with_password]
        made = f"made certificates of {', '.join(certified)}; " if certified else ""
        files = [opened.path / "broker" / "acl"]
        if with_password:
            files.append(opened.path / "broker" / "passwords")
        again = "them" if with_password else "that"
        copied = " and ".join(map(str, files))
        typer.echo(f"{made}copy {copied} to the broker, and let it read {again} again (SIGHUP)")
        _show_keys(opened)


def _show_keys(opened: DeploymentFolder) -> None:
    if opened.changed_keys:
        typer.echo("keys that seal frames have changed; copy these files to their machines, and start the parts again:")
        for each in opened.changed_keys:
            typer.echo(f"  {opened.path / each}")


def _summarize(opened: DeploymentFolder, *, as_json: bool) -> None:
    from protocols.deployment.summary import summary, summary_lines

    found: dict[str, Any] = summary(opened.deployment, str(opened.path.absolute()))
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(summary_lines(found)))

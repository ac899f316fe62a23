"""Options, client and output that all commands of a running cluster share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from cluster.service.client.api_client import ApiClient
    from protocols.security.tls import TlsFiles

Broker = Annotated[
    str,
    typer.Option(
        "--broker",
        envvar="FJORD_BROKER",
        help="MQTT broker, HOST or HOST:PORT; without a port it is 1883, or 8883 with TLS.",
    ),
]
Api = Annotated[str, typer.Option("--api", envvar="FJORD_API", help="Address of the cluster's HTTP API.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_BROKER = "127.0.0.1"
DEFAULT_API = "http://127.0.0.1:8642"
WIDEST = 10_000
"""Characters of a line that is measured."""


def make_client(api: str) -> ApiClient:
    """Return a client of the API at an address, with the token of the environment, and its files for TLS.

    Raises
    ------
    SecurityError
        If one of these files cannot be used.
    """
    import os

    from cluster.service.client.api_client import ApiClient
    from cluster.service.client.api_token import api_token

    return ApiClient(api, token=api_token(os.environ), tls=_tls_files(api, os.environ))


def _tls_files(api: str, environment: Mapping[str, str]) -> TlsFiles | None:
    """Return the files of the environment, if the address has TLS."""
    variables = "FJORD_API_CA", "FJORD_API_CLIENT_CERTIFICATE", "FJORD_API_CLIENT_KEY"
    if not api.lower().startswith("https:") or not any(map(environment.get, variables)):
        return None
    import time

    from protocols.security.tls import TlsNames, check_at_start

    files = TlsNames(*variables).read(environment)
    if files is not None:
        check_at_start(files, time.time())
    return files


def mismatch_texts(mismatches: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each proxy that does not offer a stream as it is declared."""
    return [
        f"proxy {each['proxy']}{'' if each['online'] else ' (offline)'} does not feed stream {each['stream']}, and its "
        f"sensors are not asked: {'; '.join(each['reasons'])}"
        for each in mismatches
    ]


SHORTEST_WAIT_SECONDS = 15.0
"""What a stream has waited for less long is not mentioned: motes send a packet now and then, proxies a batch."""


def wait_texts(waits: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each stream that has waited for long: for which proxy, which mote there, and since when."""
    return [wait_text(each) for each in waits if each["seconds"] >= SHORTEST_WAIT_SECONDS]


def wait_text(wait: dict[str, Any]) -> str:
    """Return in a sentence what a stream waits for.

    Examples
    --------
    >>> wait_text({"stream": "s", "proxy": "p", "online": False, "since": "12:00:03", "mote": None})
    'stream s waits for proxy p, which is offline, since 12:00:03'
    """
    text = f"stream {wait['stream']} waits for proxy {wait['proxy']}"
    mote = wait["mote"]
    if not wait["online"]:
        return f"{text}, which is offline, since {wait['since']}"
    if mote is None:
        return f"{text} since {wait['since']}"
    if mote["silent"]:
        return f"{text} since {wait['since']}: all motes there are silent, mote {mote['mote']} since {mote['since']}"
    return f"{text} since {wait['since']}: mote {mote['mote']} there sent its last packet at {mote['since']}"


def trouble_texts(troubles: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for everything that keeps messages of devices from a stream.

    Examples
    --------
    >>> trouble = {"stream": "air", "proxy": "home", "online": True, "devices": 2, "examples": ["a", "b"]}
    >>> trouble_texts([trouble | {"reason": "pressure is offered as REAL UNIT 'kPa'"}])
    ["messages of 2 devices of proxy home (a, b) do not get to stream air: pressure is offered as REAL UNIT 'kPa'"]
    """
    return [
        f"messages of {each['devices']:,} {'device' if each['devices'] == 1 else 'devices'} of proxy {each['proxy']}"
        f"{'' if each['online'] else ' (offline)'} ({', '.join(each['examples'])}"
        f"{'' if each['devices'] == len(each['examples']) else ', ...'}) do not get to stream {each['stream']}: "
        f"{each['reason']}"
        for each in troubles
    ]


def rejection_texts(rejected: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each stream of which samples were rejected."""
    return [
        f"{each['samples']:,} samples of stream {each['stream']} were rejected; the last: {each['reason']}"
        for each in rejected
    ]


def refusal_texts(refused: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each stream whose sensors receive no demand for what a query needs."""
    return [
        f"sensors of stream {each['stream']} are not asked by "
        f"{'any proxy' if each['proxy'] is None else 'proxy ' + each['proxy']}"
        f"{'' if each['online'] else ' (offline)'}: {each['reason']}"
        for each in refused
    ]


def lag_text(lag: dict[str, Any] | None) -> str:
    """Return the lag in words: the rows stored and not yet answered.

    Examples
    --------
    >>> lag_text({"rows": 2400, "seconds": 1.25})
    '1.2s, 2,400 rows'
    """
    if lag is None:
        return "-"
    return f"{lag['seconds']:.1f}s, {lag['rows']:,} rows" if lag["rows"] or lag["seconds"] else "none"


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    import json

    typer.echo(json.dumps(value, indent=2))


def print_lines(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, most: Mapping[str, int] | None = None
) -> None:
    """Print a table with one line a row: a terminal shows as much of the last column as fits, a file gets all of it.

    `most` has, by header, how many characters of a column a terminal shows.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = Console().is_terminal
    table = Table(box=None)
    for header in headers[:-1]:
        table.add_column(header, no_wrap=True)
    table.add_column(headers[-1])  # the only one that is made narrower
    for *others, last in rows:
        limits = [(most or {}).get(header, WIDEST) if is_terminal else WIDEST for header in headers]
        shown = (Text(shortened(each, limit)) for each, limit in zip(others, limits, strict=False))
        table.add_row(*shown, Text(last, no_wrap=True, overflow="ellipsis"))
    if is_terminal:
        Console(markup=False, highlight=False).print(table)
    else:
        print_whole(table)


def shortened(text: str, most: int) -> str:
    """Return a text of no more than so many characters."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip(' :,')}…"


def print_whole(*things: RenderableType) -> None:
    """Print tables and texts, each as wide as it is: a terminal may wrap lines, but no end is cut off, nor in a file.

    Brackets in texts are no markup.
    """
    from rich.console import Console

    width = max(Console(width=WIDEST, markup=False).measure(each).maximum for each in things)
    console = Console(width=max(width, 1), markup=False, highlight=False)
    for each in things:
        console.print(each, soft_wrap=True)

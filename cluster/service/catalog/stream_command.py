"""``fjord stream`` creates, lists and drops the streams that queries may name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cluster.service.client.command import (
    DEFAULT_API,
    Api,
    AsJson,
    lag_text,
    make_client,
    mismatch_texts,
    print_json,
    print_lines,
    rejection_texts,
    trouble_texts,
    wait_text,
    wait_texts,
)
from cluster.service.client.faults import print_faults
from protocols.command_line.options import byte_size_option, duration_option
from protocols.text.quantities import format_byte_size, format_duration

stream = typer.Typer(help="Create, list and drop streams.", no_args_is_help=True)


@stream.command("create")
def create_stream(
    sql: Annotated[str, typer.Argument(help="A CREATE STREAM statement, or - to read it from standard input.")],
    *,
    api: Api = DEFAULT_API,
) -> None:
    """Create a stream before a proxy offers it, or derive one: CREATE STREAM name AS SELECT ..."""
    import sys

    with make_client(api) as client:
        typer.echo(f"created {client.declare(sys.stdin.read() if sql == '-' else sql)}")


@stream.command("list")
def list_streams(*, api: Api = DEFAULT_API, as_json: AsJson = False) -> None:
    """List streams with their columns, their low watermarks, and the offers that do not fit them."""
    with make_client(api) as client:
        streams = client.streams()
        if not as_json:
            print_faults(client)
    if as_json:
        print_json(streams)
        return
    if not streams:
        typer.echo("there are no streams")
    rows = []
    for each in streams:
        columns = ", ".join(
            f"{field['name']} {field['type']}" + (f" [{field['unit']}]" if field["unit"] else "")
            for field in each["fields"]
        )
        up_to = "derived" if each["kind"] == "derived" else each.get("watermark") or "-"
        up_to = "cannot be read" if each.get("error") else up_to
        rows.append((each["name"], up_to, lag_text(each.get("lag")), columns))
    if rows:
        print_lines(("name", "up to", "queries lag", "columns"), rows)
    for each in streams:
        for text in _remarks(each):
            typer.echo(text)


@stream.command("show")
def show_stream(
    name: Annotated[str, typer.Argument(help="Name of a stream.")], *, api: Api = DEFAULT_API, as_json: AsJson = False
) -> None:
    """Show one stream: how far it has come, what it waits for, and what came too late."""
    with make_client(api) as client:
        found = next((each for each in client.streams() if each["name"] == name), None)
    if found is None:
        raise typer.BadParameter(f"there is no stream {name!r}; `fjord stream list` has all", param_hint="name")
    if as_json:
        print_json(found)
        return
    typer.echo(f"{'name':12}{found['name']}")
    typer.echo(f"{'kind':12}{found['kind']}")
    for field in found["fields"]:
        unit = f" [{field['unit']}]" if field["unit"] else ""
        typer.echo(f"{'column':12}{field['name']} {field['type']}{unit}")
    if found["kind"] == "base":
        typer.echo(f"{'up to':12}{found['watermark'] or '-'}")
        typer.echo(f"{'queries lag':12}{lag_text(found.get('lag'))}")
        wait = found["waits_for"]
        typer.echo(f"{'waits for':12}{'-' if wait is None else wait_text({'stream': found['name'], **wait})}")
        typer.echo(f"{'gone after':12}{_duration_text(found['gone_after_seconds'])}")
    for text in _remarks(found):
        typer.echo(f"{'note':12}{text}")


def _duration_text(seconds: float | None) -> str:
    return "never" if seconds is None else format_duration(round(seconds * 1e6))


def _remarks(stream: dict[str, Any]) -> list[str]:
    """Return a sentence for each problem with a stream, its offers and its samples."""
    offers = stream.get("offers", [])
    remarks = []
    if stream.get("error"):
        remarks.append(
            f"stream {stream['name']} was created by an earlier version and cannot be read: {stream['error']}; "
            f"drop it with `fjord stream drop {stream['name']}`, and create it anew: running queries continue"
        )
    if stream.get("damage"):
        remarks.append(f"stream {stream['name']} was damaged when the cluster was started: {stream['damage']}")
    remarks += mismatch_texts([{"stream": stream["name"], **offer} for offer in offers if not offer["fits"]])
    remarks += [
        f"proxy {offer['proxy']} keeps samples that do not fit stream {stream['name']} in its spool"
        for offer in offers
        if offer["held"]
    ]
    if wait := stream.get("waits_for"):
        remarks += wait_texts([{"stream": stream["name"], **wait}])
    gone = stream.get("gone", {"proxies": [], "late_rows": {}})
    remarks += [
        f"stream {stream['name']} goes on without proxy {proxy}, which is gone: rows in its spool may be too late"
        for proxy in gone["proxies"]
    ]
    remarks += [
        f"{rows:,} rows of stream {stream['name']} came too late from proxy {proxy}: they are in the quarantine"
        for proxy, rows in gone["late_rows"].items()
    ]
    retention = stream.get("retention") or {"dropped_rows": 0, "over": None}
    if retention["dropped_rows"]:
        remarks.append(
            f"{retention['dropped_rows']:,} rows of stream {stream['name']} have been removed because they were too "
            f"old or too many; it is kept since {retention['kept_since']}"
        )
    if retention["over"]:
        remarks.append(
            f"stream {stream['name']} exceeds its budget by {format_byte_size(retention['over']['bytes'])}: "
            f"{retention['over']['reason']}"
        )
    remarks += trouble_texts(stream.get("troubles", []))
    rejected = stream.get("rejected", {"batches": 0})
    if rejected["batches"]:
        remarks += rejection_texts([{"stream": stream["name"], **rejected}])
    lost = stream.get("lost", {})
    remarks += [
        f"{count:,} {what} of stream {stream['name']} were stored and are lost" for what, count in lost.items() if count
    ]
    return remarks


@stream.command("keep")
def keep_stream(
    name: Annotated[str, typer.Argument(help="Name of a stream.")],
    *,
    retention: Annotated[
        int | None,
        duration_option(
            "--retention", help="How far back behind its low watermark.", shown_default="for ever", least_us=1
        ),
    ] = None,
    size: Annotated[int | None, byte_size_option("--size", help="How much on disk.", shown_default="no bound")] = None,
    as_others: Annotated[bool, typer.Option("--as-others", help="Use the cluster's default again.")] = False,
    api: Api = DEFAULT_API,
) -> None:
    """Set how much of a stream is kept; older rows are removed once no query has to read them."""
    if as_others and (retention is not None or size is not None):
        raise typer.BadParameter("give either a bound or --as-others", param_hint="--as-others")
    with make_client(api) as client:
        if as_others:
            client.keep_stream_as_others(name)
        else:
            client.keep_stream(name, age_seconds=None if retention is None else retention / 1e6, size=size)


@stream.command("set")
def set_stream(
    name: Annotated[str, typer.Argument(help="Name of a stream.")],
    *,
    gone_after: Annotated[
        int | None,
        duration_option(
            "--gone-after",
            help="Go on without a proxy that is gone for this long: rows in its spool may be too late then.",
            shown_default="never",
            least_us=1_000_000,
        ),
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="Wait for proxies that are gone, however long.")] = False,
    as_others: Annotated[bool, typer.Option("--as-others", help="Use the cluster's default again.")] = False,
    api: Api = DEFAULT_API,
) -> None:
    """Set how long a stream waits for proxies that are gone."""
    if (gone_after is not None) + never + as_others != 1:
        raise typer.BadParameter("give one of --gone-after, --never and --as-others", param_hint="--gone-after")
    with make_client(api) as client:
        if as_others:
            client.reset_gone_after(name)
        else:
            client.set_gone_after(name, None if gone_after is None else gone_after / 1e6)


@stream.command("drop")
def drop_stream(
    names: Annotated[list[str], typer.Argument(help="Names of streams.")],
    *,
    api: Api = DEFAULT_API,
) -> None:
    """Drop streams that nothing uses, and their tables."""
    with make_client(api) as client:
        for name in names:
            client.drop_stream(name)
            typer.echo(f"dropped {name}")

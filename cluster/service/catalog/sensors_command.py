"""``fjord sensors`` shows sensors: where they are, and their state."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cluster.errors import ClusterError
from cluster.service.client.command import DEFAULT_API, Api, AsJson, make_client, print_json, print_whole
from cluster.service.client.faults import print_faults
from protocols.text.closeness import did_you_mean
from protocols.text.quantities import format_duration

app = typer.Typer()

SHOWN_FIRST = (
    "sensor",
    "proxy",
    "proxy_online",
    "type",
    "stream",
    "state",
    "period_us",
    "battery",
    "lifetime_days",
    "loss",
    "heard",
)
DETAILS = (
    "default_period_us",
    "minimum_period_us",
    "packets_received",
    "packets_lost",
    "packets_rejected",
    "samples_received",
    "samples_late",
    "program",
    "device",
    "milliwatts",
    "stretched",
    "lifetime_kept",
    "clock_offset_us",
    "clock_fault",
    "samples_ahead",
    "samples_behind",
    "driver",
    "publishes",
    "mains",
    "expected_every_us",
    "counts",
    "trouble",
    "doing",
    "mismatch",
    "proxy_clock_fault",
    "refused_demands",
)
"""Shown only if they are named."""
UNREMARKABLE = {"stretched": 1, "lifetime_kept": True, "mismatch": None, "clock_fault": None, "samples_ahead": 0,
                "samples_behind": 0, "proxy_clock_fault": None, "refused_demands": None, "driver": None,
                "counts": None, "trouble": None}  # fmt: skip
"""Details that are shown if any sensor has another value: its battery makes it sample less often, or will not last; its
stream is declared with other columns, or its proxy leaves out queries, so that it is not asked for samples; or its
clock, or that of its proxy, is wrong; or it is driven, and messages of it did not become rows."""
OWN_RULES = "own rules"
"""The period of a device that publishes by its own rules."""
COUNTS_SHOWN = 3
"""Reasons; ``--json`` has all."""
SHARES = frozenset(f"{of}{name}" for of in ("", "avg_", "min_", "max_", "median_") for name in ("battery", "loss"))
"""Shown as percent."""


@app.command()
def sensors(
    *,
    condition: Annotated[
        str | None,
        typer.Option("--where", metavar="CONDITION", help="Only sensors for which this SQL condition is true."),
    ] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", metavar="QUERY", help="A whole SELECT over the table sensors instead.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="A,B,...", help="Columns to show, in this order; 'all' for every column."),
    ] = None,
    api: Api = DEFAULT_API,
    as_json: AsJson = False,
) -> None:
    """Show sensors: type, place, state, battery, radio statistics.

    A fixed property of a sensor, such as its segment, is a column like any other. Texts are in single quotes:

    fjord sensors --where "type = 'loop' AND segment IN (3, 4)"

    fjord sensors --where "battery < 0.2" --columns sensor,position,battery

    fjord sensors --sql "SELECT type, COUNT(*) AS motes, MIN(battery) FROM sensors GROUP BY type"
    """
    if condition is not None and sql is not None:
        raise typer.BadParameter("give a condition or a whole query, not both", param_hint="--where / --sql")
    with make_client(api) as client:
        found = client.sensors(where=condition, sql=sql)
        if not as_json:
            print_faults(client)
    names, rows = [str(name) for name in found["columns"]], list(found["rows"])
    shown = names if sql is not None or as_json else _default_columns(names, rows)
    if columns is not None:
        shown = _named_columns(columns, names)
    if as_json:
        print_json([{name: row[name] for name in shown} for row in rows])
    elif rows:
        _print_table(shown, rows)
    else:
        typer.echo("nothing found" if condition or sql else "no proxy has announced a sensor")


def _default_columns(names: list[str], rows: list[dict[str, Any]]) -> list[str]:
    return [
        *(name for name in SHOWN_FIRST if name in names),
        *(name for name, usual in UNREMARKABLE.items() if any(row.get(name, usual) != usual for row in rows)),
        *(name for name in names if name not in SHOWN_FIRST and name not in DETAILS),
    ]


def _named_columns(columns: str, names: list[str]) -> list[str]:
    if columns.strip().casefold() == "all":
        return names
    by_folded = {name.casefold(): name for name in names}
    found = []
    for word in (part.strip() for part in columns.split(",")):
        name = by_folded.get(word.casefold())
        if name is None:
            close = did_you_mean(word, names)
            hint = f"the columns are {', '.join(names)}"
            raise ClusterError(f"there is no column {word!r}", hint=f"{close} {hint}" if close else hint)
        found.append(name)
    return found


def _print_table(names: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None)
    for name in names:
        numbers = all(isinstance(row[name], int | float | None) and not isinstance(row[name], bool) for row in rows)
        table.add_column(
            name.removesuffix("_us") if name.endswith("period_us") else name,
            justify="right" if numbers else "left",
            no_wrap=True,
        )
    for row in rows:
        table.add_row(*(_cell(name, row) for name in names))
    print_whole(table)


def _cell(name: str, row: dict[str, Any]) -> str:
    return OWN_RULES if name == "period_us" and row.get("publishes") else _shown(name, row[name])


def _shown(name: str, value: Any) -> str:
    """Return a value for people to read."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() if name.endswith("period_us"):
            return format_duration(value) if value else "asleep"
        case int() if name == "expected_every_us":
            return format_duration(value)
        case str() if name == "counts" and value.count(", ") >= COUNTS_SHOWN:
            first = value.split(", ")
            return f"{', '.join(first[:COUNTS_SHOWN])} and {len(first) - COUNTS_SHOWN} more"
        case float() if name in SHARES:
            return f"{value:.1%}"
        case float():
            return f"{value:g}"
        case str() if name == "heard" and "." in value:
            return f"{value.partition('.')[0]}Z"
        case _:
            return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))

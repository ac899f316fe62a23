"""What ``fjord query explain --energy`` and ``fjord query bill`` print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

_EXPLAIN_ENERGY = re.compile(r"\s*EXPLAIN\s+ENERGY\s", re.IGNORECASE | re.ASCII)
HOURS_BELOW_DAYS = 1.0
YEARS_FROM_DAYS = 730.0
YEAR_DAYS = 365.25


SAVING = (
    "less than nothing: a sleeping mote sends packets only to open listen windows; one that sends samples opens them "
    "with these"
)


def asks_for_energy(sql: str) -> bool:
    """Return whether a text begins with EXPLAIN ENERGY.

    >>> asks_for_energy("explain energy SELECT 1"), asks_for_energy("SELECT energy")
    (True, False)
    """
    return _EXPLAIN_ENERGY.match(sql) is not None


def print_energy(answer: Mapping[str, Any]) -> None:
    """Print what a query would cost."""
    from rich.table import Table

    for each in answer["refused"]:
        _print(f"cannot be answered on {each['stream']}: {each['reason']}")
    totals = answer["totals"]
    if not totals["motes"]:
        _print(f"it demands nothing of any mote: {_untouched(answer)}")
        return
    table = Table(box=None)
    for heading, right in (
        ("motes", True), ("on", False), ("device", False), ("alone", True), ("lasts", True),
        ("adds", True), ("with all queries", True), ("lasts", True), ("measured now", True),
    ):  # fmt: skip
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for number, line in enumerate(answer["lines"], start=1):
        table.add_row(
            f"{line['motes']:,}",
            f"{line['stream']} [{number}]",
            line["device"] + ("?" if line["device_assumed"] else ""),
            _joules(line["alone"]["joules_per_day"]),
            _days(line["alone"]["days"]),
            _joules(line["adds_joules_per_day"], sign=True),
            _joules(line["after"]["joules_per_day"]),
            _days(line["after"]["days"]),
            "-" if line["measured_milliwatts"] is None else _number(line["measured_milliwatts"] * 86.4),
        )
    _print("joules per day and battery life of each mote, and how far off they may be", table, "")
    for number, line in enumerate(answer["lines"], start=1):
        others = "" if line["motes"] == len(line["examples"]) else ", ..."
        _print(f"[{number}] {', '.join(line['examples'])}{others}")
        for what, drawn in (("alone", line["alone"]), ("now", line["before"]), ("with all queries", line["after"])):
            _print(f"    {what}: {_plain(drawn)}")
    lives = ", ".join(
        f"{words} {_days(totals[name])}"
        for name, words in (("first_dies_before", "now"), ("first_dies_after", "with this query"))
        if totals[name]
    )
    _print(
        "",
        f"in all {totals['motes']:,} {'mote' if totals['motes'] == 1 else 'motes'}: alone "
        f"{_joules(totals['alone'])} J a day; adds {_joules(totals['adds'], sign=True)} to "
        f"{_joules(totals['before'])}, which makes {_joules(totals['after'])}",
        *([f"the first battery is empty after: {lives}"] if lives else []),
        *([_untouched(answer)] if answer["untouched"] else []),
        *([_without_model(answer["without_model"])] if answer.get("without_model") else []),
        *([SAVING] if any(_saves(line["adds_joules_per_day"]) for line in answer["lines"]) else []),
        *(f"assumed: {each}" for each in answer["assumptions"]),
    )


def print_bill(bill: Mapping[str, Any]) -> None:
    """Print the bill."""
    from rich.table import Table

    table = Table(box=None)
    table.add_column("query", no_wrap=True)
    for heading in ("motes", "mW", "of all", "joules so far", "of all"):
        table.add_column(heading, justify="right", no_wrap=True)
    drawn, joules = bill["milliwatts"]["value"], bill["joules"]
    for each in bill["queries"]:
        table.add_row(
            each["query"], f"{each['motes']:,}", _figure(each["milliwatts"]), f"{each['milliwatts_share']:.1%}",
            _number(each["joules"]), f"{each['joules_share']:.1%}",
        )  # fmt: skip
    shared = bill["everybody_milliwatts"]
    table.add_row(
        "shared (asleep)", f"{bill['motes']:,}", _figure(shared), _percent(shared["value"], drawn),
        _number(bill["everybody_joules"]), _percent(bill["everybody_joules"], joules),
    )  # fmt: skip
    for name, words in (("ended_joules", "queries that have ended"), ("unbilled_joules", "cannot be divided")):
        if bill[name]:
            table.add_row(words, "", "", "", _number(bill[name]), _percent(bill[name], joules))
    table.add_row("in all", f"{bill['motes']:,}", _figure(bill["milliwatts"]), "", _number(joules), "", style="bold")
    _print(table, "", *_remarks(bill))


def _remarks(bill: Mapping[str, Any]) -> list[str]:
    from cluster.fjord.batch import instant_text

    found = []
    if bill["measured_motes"]:
        since = str(instant_text(bill["since_us"])).partition(".")[0]
        expected = f"; proxies expected {_number(bill['expected_joules'])} J" if bill["expected_joules"] else ""
        found.append(f"joules of {bill['measured_motes']:,} motes since {since}Z, by their own counters{expected}")
    else:
        found.append("no mote has sent two reports of its health: it is unknown yet what was spent")
    methods = {
        "sampled": "from some orders of queries",
        "proportional": "by what each query would cost alone, as there are too many different ones",
    }
    found += [
        f"shares of {bill['methods'][name]:,} motes {how}" for name, how in methods.items() if name in bill["methods"]
    ]
    if any(_saves(each["milliwatts"]) for each in bill["queries"]):
        found.append(SAVING)
    if bill["impossible_motes"]:
        found.append(f"{bill['impossible_motes']:,} motes cannot run what queries demand, and are not in mW")
    if bill.get("without_model"):
        found.append(f"not billed: {_without_model(bill['without_model'])}")
    if bill["implausible_reports"]:
        found.append(f"{bill['implausible_reports']:,} reports exceed what a mote can spend, and count as that")
    return found


def _saves(figure: Mapping[str, float] | None) -> bool:
    return figure is not None and figure["value"] < 0


def _plain(drawn: Mapping[str, Any]) -> str:
    """Return a program in words, with remarks."""
    if drawn["milliwatts"] is None:
        return str(drawn["reason"])
    notes = [
        *([f"periods up to {drawn['stretched']} times as long to save the battery"] if drawn["stretched"] > 1 else []),
        *([] if drawn["lifetime_kept"] else ["the battery will not last as long as it should"]),
    ]
    return "; ".join([f"{drawn['does']}: {drawn['milliwatts']:.3g} mW", *notes])


def _untouched(answer: Mapping[str, Any]) -> str:
    count = answer["untouched"]
    streams = ", ".join(answer["streams"])
    if not count:
        return f"no proxy has announced a mote of {streams}{' that can be asked' if answer['refused'] else ''}"
    return f"{count:,} other {'mote' if count == 1 else 'motes'} of {streams} would not be used"


def _without_model(count: int) -> str:
    return f"{count:,} {'device' if count == 1 else 'devices'} on mains, or of which it is unknown what they draw"


def _joules(figure: Mapping[str, float] | None, *, sign: bool = False) -> str:
    return "not possible" if figure is None else _figure(figure, sign=sign)


def _figure(figure: Mapping[str, float], *, sign: bool = False) -> str:
    """Return a figure and its error band.

    >>> _figure({"value": 100.0, "low": 80.0, "high": 125.0})
    '100 (80-125)'
    """
    shown = f"{'+' if sign and figure['value'] >= 0 else ''}{_number(figure['value'])}"
    if figure["low"] == figure["high"]:
        return shown
    low, high = (_number(figure[end]) for end in ("low", "high"))
    return f"{shown} ({low} to {high})" if figure["low"] < 0 else f"{shown} ({low}-{high})"


def _number(value: float) -> str:
    """Return a number with three significant digits, and all digits before the point.

    >>> _number(1562.3), _number(15.623), _number(0.0015623)
    ('1,562', '15.6', '0.00156')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004


def _days(figure: Mapping[str, float] | None) -> str:
    """Return the lifetime of a battery.

    >>> _days({"value": 100.0, "low": 80.0, "high": 125.0}), _days(None)
    ('100 (80-125) days', '-')
    """
    if figure is None:
        return "-"
    value = figure["value"]
    factor, unit = 1.0, "days"
    if value < HOURS_BELOW_DAYS:
        factor, unit = 24.0, "hours"
    elif value >= YEARS_FROM_DAYS:
        factor, unit = 1 / YEAR_DAYS, "years"
    ends = "-".join(f"{figure[end] * factor:.3g}" for end in ("low", "high"))
    return f"{value * factor:.3g} ({ends}) {unit}"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _print(*things: RenderableType) -> None:
    from cluster.service.client.command import print_whole

    print_whole(*(_harmless(each) if isinstance(each, str) else each for each in things))


def _harmless(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)

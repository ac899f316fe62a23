"""Runs the demonstration: starts processes, adds queries, shows results, drops queries, stops processes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live

from cluster.demo.parts import Children, Parts, stage
from cluster.demo.view import GENERATED, TRACE, DemoState, QueryView, Scenario, render, row_text, summary_line
from cluster.service.client.api_client import ApiClient
from protocols.errors import FjordError, FrameError
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.catalog import decode_mote_entry

PROXY = "roadside"
BATTERY = "alkaline-aa-pair"
"""Of each mote."""
RATE_SECONDS = 20.0
"""Packets are counted over so long: the proxy tells of its motes every ten seconds."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How to run the demonstration."""

    duration_seconds: float
    motes: int
    trace: Path | None
    speed: float
    keep: Path | None


class NoResultsError(FjordError):
    """The demonstration ran to its end, but a query answered nothing."""


def run_demo(settings: DemoSettings) -> None:
    """Run the demonstration, and return when its time is over.

    Raises
    ------
    ChildError
        If a part fails.
    NoResultsError
        If no query answered.
    """
    console = Console()
    with ExitStack() as stack:
        parts = stack.enter_context(stage(settings.keep, console))
        broker, client, children = parts.broker, stack.enter_context(ApiClient(parts.api_address)), parts.children
        _start_parts(settings, parts, console)
        scenario = GENERATED if settings.trace is None else TRACE
        state = DemoState({query.name: QueryView(query) for query in scenario.queries})
        for query in scenario.queries:
            client.add(query.sql, query.name)
            state.queries[query.name].running = True
            console.print(f"[bold]{query.name}[/]: {query.sql}", highlight=False, soft_wrap=True)
        asyncio.run(_show(settings, scenario, state, broker, client, children, console))
    total = sum(view.rows for view in state.queries.values())
    console.print(f"{total:,} result rows in {settings.duration_seconds:.0f} s; all parts have been stopped")
    if total == 0:
        raise NoResultsError("no query answered anything", hint="keep the logs with --keep and look at them")


def _start_parts(settings: DemoSettings, parts: Parts, console: Console) -> None:
    with console.status("starting the broker") as spinner:

        def show(text: str) -> None:
            if console.is_terminal:
                spinner.update(text)
            else:
                console.print(text, highlight=False)

        parts.start_broker()
        show("starting the cluster: Spark takes some seconds")
        parts.start_cluster()
        show("starting the proxy and the motes")
        proxy = parts.start_proxy(PROXY)
        fleet = (
            ["--motes", str(settings.motes)]
            if settings.trace is None
            else ["--trace", str(settings.trace), "--speed", str(settings.speed)]
        )
        parts.start_motes(PROXY, *fleet, "--battery", BATTERY)
        parts.wait_for_stream("traffic", proxy)


async def _show(  # noqa: PLR0917 - called once, with all parts of the demonstration
    settings: DemoSettings,
    scenario: Scenario,
    state: DemoState,
    broker: BrokerAddress,
    client: ApiClient,
    children: Children,
    console: Console,
) -> None:
    """Show results for the given time, and drop queries at the times of the scenario."""

    async def receive(message: Message) -> None:
        _take(state, message, console if not console.is_terminal else None)

    link = MqttLink(
        broker,
        client_id="fjord-demo",
        subscriptions=[Subscription(topics.results("+")), Subscription(topics.mote_entry(PROXY, "+"))],
    )
    receiving = asyncio.create_task(link.run(receive), name="results")
    drops = list(scenario.drops)
    began = time.monotonic()
    seen_rows, seen_at, reported = 0, began, began
    packets: deque[tuple[float, int]] = deque()
    with ExitStack() as stack:
        live = stack.enter_context(Live(console=console, refresh_per_second=4)) if console.is_terminal else None
        while (elapsed := time.monotonic() - began) < settings.duration_seconds:
            await asyncio.sleep(0.25)
            children.check()
            state.seconds_left = settings.duration_seconds - elapsed
            while drops and elapsed >= drops[0][0] * settings.duration_seconds:
                _, name = drops.pop(0)
                await asyncio.to_thread(client.drop, name)
                state.queries[name].running = False
                state.note = f"dropped {name}"
                if live is None:
                    console.print(f"-- dropped {name}", highlight=False)
            now = time.monotonic()
            if now - seen_at >= 2.0:  # noqa: PLR2004 - rates over two seconds
                rows = sum(view.rows for view in state.queries.values())
                state.rows_per_second = (rows - seen_rows) / (now - seen_at)
                state.packets_per_second = _rate(packets, now, state.mission.packets)
                seen_rows, seen_at = rows, now
            if live is not None:
                live.update(render(state))
            elif now - reported >= 5.0:  # noqa: PLR2004 - a line every five seconds
                reported = now
                console.print(f"-- {summary_line(state)}", highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.print(f"-- {summary_line(state)}", highlight=False, soft_wrap=True)
    receiving.cancel()


def _rate(counts: deque[tuple[float, int]], now: float, count: int) -> float:
    """Add a count; return how much it has grown in a second, over the last while."""
    counts.append((now, count))
    while now - counts[0][0] > RATE_SECONDS:
        counts.popleft()
    since, before = counts[0]
    return (count - before) / (now - since) if now > since else 0.0


def _take(state: DemoState, message: Message, printer: Console | None) -> None:
    topic = topics.parse(message.topic)
    if topic.kind == "mote_entry":
        try:
            entry = decode_mote_entry(message.payload)
        except FrameError:
            return
        state.motes[entry.mote] = entry
        return
    view = state.queries.get(topic.names[0])
    if view is None:
        return
    row = msgspec.json.decode(message.payload)
    view.rows += 1
    view.last.append(row)
    if printer is not None and view.rows <= 5:  # noqa: PLR2004 - the first rows of each query, then counts
        printer.print(f"{view.query.name}  {row_text(row)}", highlight=False, soft_wrap=True)

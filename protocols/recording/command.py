"""``fjord replay``: what is in a log of events, and running a part again as it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from protocols.recording.comparison import Comparison
    from protocols.recording.player import Player
    from protocols.recording.reading import RecordedRun, RecordedTurn

REPLAYS_GROUP: Final = "fjord.replays"
"""Entry-point group: by part, a function that replays a run of it."""
DIFFERENT, NOT_COMPARABLE = 1, 3
"""Exit codes."""

app = typer.Typer(add_completion=False)


@app.command()
def replay(
    log: Annotated[Path, typer.Argument(help="Folder, or one file, that --record has written.", metavar="LOG")],
    *,
    events: Annotated[
        bool, typer.Option("--events", help="List what happened instead: time, direction, stimulus.")
    ] = False,
    run: Annotated[
        int | None, typer.Option(help="Which run of the process, from 1.", show_default="the last", min=1)
    ] = None,
) -> None:
    """Run a part again on what it had received, in simulated time, and compare what it publishes.

    Of a proxy all is replayed: its messages, the end of each write and merge, its clocks and timers, from the databases
    with which it began; of motes their machines, radio and world; of a cluster all but Spark, publishers and answers to
    GET. What they publish is compared byte by byte, but for the size of a proxy's spool.

    Exit codes: 0 all is the same; 1 something differs, or the part failed; 3 not compared, as older segments are gone:
    the part began with its databases of the time of the first that is left, as after a restart. Or these did not fit
    into the log, which is in the event log of the process that was recorded.
    """
    from protocols.recording.entries import LogError
    from protocols.recording.reading import read_runs

    runs = read_runs(log)
    if run is not None and run > len(runs):
        raise LogError(f"the log has {len(runs)} runs, not {run}")
    chosen = runs[-1 if run is None else run - 1]
    if events:
        for line in event_lines(chosen):
            typer.echo(line)
        return
    header = chosen.header
    typer.echo(f"{header.part} {header.name}: run {header.run}, recorded by fjord {header.versions.get('fjord', '?')}")
    code = _report(chosen, _replaying(header.part)(chosen))
    if code:
        raise typer.Exit(code)


def event_lines(run: RecordedRun) -> Iterator[str]:
    """Yield a line for each event of a run."""
    from datetime import UTC, datetime

    from protocols.text.plain_text import printable

    for turn in run.turns():
        words = [*_inputs(turn), *((">", _stimulus(each.topic, each.payload), each.cause) for each in turn.sent)]
        if not words:
            continue
        at = datetime.fromtimestamp((turn.now_ns + turn.ahead_ns) / 1e9, UTC).isoformat(timespec="microseconds")
        for direction, what, cause in words:
            yield printable(f"{at} {direction} {what}" + (f"  (caused by: {cause})" if cause else ""))
    if run.damage is not None:
        yield f"the log ends here: {printable(run.damage)}"


def _inputs(turn: RecordedTurn) -> Iterator[tuple[str, str, str]]:
    from protocols.recording.entries import Messages, Published, Requested, Worked

    for each in turn.inputs:
        match each:
            case Messages(topics, payloads):
                yield from (("<", _stimulus(*one), "") for one in zip(topics, payloads, strict=True))
            case Published(topic, nth, error):
                yield "=", f"{'published' if error is None else f'not published ({error})'}: {topic} #{nth}", ""
            case Requested(method, path):
                yield "<", f"request {method} {path}", ""
            case Worked(task, nth):
                yield "=", f"a thread has done work {nth} of task {task}", ""
            case _:
                yield "=", type(each).__name__.lower(), ""


def _stimulus(topic: str, payload: bytes) -> str:
    from protocols.wire.stimuli import stimulus_of

    return f"{stimulus_of(topic, payload)}  [{topic}]"


def _replaying(part: str) -> Callable[[RecordedRun], Player]:
    import importlib.metadata

    from protocols.recording.entries import LogError

    for entry in importlib.metadata.entry_points(group=REPLAYS_GROUP, name=part):
        found: Callable[[RecordedRun], Player] = entry.load()
        return found
    raise LogError(f"no program here replays a {part}", hint="--events lists what the log holds")


def _report(run: RecordedRun, player: Player) -> int:
    """Print how a replay went; return the exit code."""
    import traceback

    from protocols.recording.comparison import compare, recorded_messages
    from protocols.text.plain_text import printable

    recorded = recorded_messages(run)
    found = compare(recorded, player.sent)
    _print_counts(found)
    if run.damage is not None:
        typer.echo(f"the log ends early: {printable(run.damage)}")
    if player.failure is not None:
        typer.echo("the part failed:\n" + printable("".join(traceback.format_exception(player.failure))))
        return DIFFERENT
    if not run.exact:
        typer.echo(f"not compared: {_why_not(run)}")
        return NOT_COMPARABLE
    if found.first is None:
        typer.echo(f"the same: {len(recorded):,} messages in {player.turn:,} turns")
        return 0
    began_ns = next(run.turns()).now_ns
    at_ns = next((turn.now_ns for n, turn in enumerate(run.turns(), start=1) if n == found.first.turn), began_ns)
    typer.echo(f"{found.differences:,} messages differ, the first {(at_ns - began_ns) / 1e9:.6f} s after the beginning")
    for line in found.first.lines():
        typer.echo("  " + printable(line))
    return DIFFERENT


def _why_not(run: RecordedRun) -> str:
    """Return why a run that is not exact cannot be compared."""
    if run.header.begins:
        return f"the log has no room for {', '.join(run.header.left_out)}: record with a larger --record-size"
    return "the log does not begin where the process did, so the part began as after a restart"


def _print_counts(found: Comparison) -> None:
    kinds = sorted(found.recorded.keys() | found.replayed.keys())
    typer.echo(f"{'messages':16} {'recorded':>10} {'replayed':>10}")
    for kind in kinds:
        typer.echo(f"{kind:16} {found.recorded.get(kind, 0):10,} {found.replayed.get(kind, 0):10,}")

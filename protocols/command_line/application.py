"""The console command ``fjord``.

Each part of Fjord contributes its own subcommands through the entry-point group ``fjord.commands``; this module
finds them, imports only the one that is called, and turns errors into readable messages.
"""

from __future__ import annotations

import importlib.metadata
import traceback
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from protocols.errors import FjordError
from protocols.event_log import LEVEL_VARIABLE, configure_logging
from protocols.text.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer._click import Command, Context

COMMANDS_GROUP: Final = "fjord.commands"
"""Entry-point group; each entry points to a :class:`typer.Typer`."""

_OUR_PACKAGES: Final = ("protocols", "firmware_sim", "proxy", "cluster")
_EXTRA_OF_PACKAGE: Final = {"cluster": "cluster"}
_COMPLETION_PARAMETERS: Final = ("install_completion", "show_completion")


class IncompleteInstallationError(FjordError):
    """A command needs a library that is not installed."""

    def __init__(self, command: str, module: str, extra: str | None) -> None:
        wanted = "fjord" if extra is None else f"fjord[{extra}]"
        super().__init__(
            f"`fjord {command}` needs the Python module {module!r}, which is not installed",
            hint=f"pip install '{wanted}'",
        )
        self.command = command
        self.module = module
        self.extra = extra


class NoCommandsError(FjordError):
    """Fjord's entry points cannot be found."""

    def __init__(self) -> None:
        super().__init__("Fjord's commands are not installed", hint="run `pip install -e .` in the source folder")


class LazyCommandGroup(TyperGroup):
    """The top-level group: subcommands come from entry points and are imported one by one, when called."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Names of all installed subcommands, without importing any."""
        _ = ctx
        names = sorted(importlib.metadata.entry_points(group=COMMANDS_GROUP).names)
        if not names:
            raise NoCommandsError
        return names

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import one subcommand; if its libraries are missing, return a command that reports it."""
        _ = ctx
        if cmd_name not in self.commands:
            entries = importlib.metadata.entry_points(group=COMMANDS_GROUP, name=cmd_name)
            if not entries:
                return None
            self.commands[cmd_name] = _load(next(iter(entries)))
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Find the subcommand; for a misspelt one, suggest similar names."""
        if self.get_command(ctx, args[0]) is None:
            for name in self.list_commands(ctx):
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Context) -> Any:
        """Run a subcommand; one of Fjord's own errors becomes a message and exit code 1."""
        try:
            return super().invoke(ctx)
        except (FjordError, BaseExceptionGroup, ModuleNotFoundError) as error:
            errors = list(_understood(error, ctx.invoked_subcommand))
            if not errors:
                raise
            if ctx.params.get("debug"):
                traceback.print_exception(error)
            for each in errors:
                show_error(each)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=LazyCommandGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Continuous SQL over fleets of battery-powered sensors.",
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 (typer's callbacks are positional)
    if wanted:
        typer.echo(f"fjord {importlib.metadata.version('fjord')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where in the program an error arose.", envvar="FJORD_DEBUG")
    ] = False,
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning, error or critical.", envvar=LEVEL_VARIABLE)
    ] = "warning",
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Write the event log as JSON lines.", envvar="FJORD_LOG_JSON")
    ] = False,
) -> None:
    _ = version, debug  # the first has a callback, the second is read where errors are caught
    configure_logging(log_level, json=log_json)


def show_error(error: FjordError) -> None:
    """Print an error. Text that it quotes cannot control the terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), printable(error.message)))
    if error.hint is not None:
        console.print(Text.assemble(("hint:  ", "bold"), printable(error.hint)))


def main() -> None:
    """Run ``fjord`` with the arguments of this process.

    Exit codes: 0 done, 1 an error that was explained, 2 wrong usage, 130 interrupted.
    """
    typer.main.get_command(app).main(prog_name="fjord")


def _load(entry: importlib.metadata.EntryPoint) -> Command:
    try:
        command = typer.main.get_command(entry.load())
    except ModuleNotFoundError as error:
        missing = _incomplete(error, entry)
        return _placeholder(entry.name, missing or IncompleteInstallationError(entry.name, str(error.name), None))
    command.name = entry.name
    command.params = [each for each in command.params if each.name not in _COMPLETION_PARAMETERS]
    return command


def _placeholder(name: str, error: IncompleteInstallationError) -> Command:
    from rich.markup import escape

    def report_missing_library() -> None:
        raise error

    return TyperCommand(
        name=name,
        callback=report_missing_library,
        help=f"(not available here: {escape(error.hint or str(error))})",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _incomplete(
    error: ModuleNotFoundError, entry: importlib.metadata.EntryPoint | None
) -> IncompleteInstallationError | None:
    """Return the error of a missing extra; None if the missing module is our own, which means that Fjord is broken."""
    module = (error.name or "").partition(".")[0]
    if entry is None or not module or module in _OUR_PACKAGES:
        return None
    return IncompleteInstallationError(entry.name, module, _EXTRA_OF_PACKAGE.get(entry.module.partition(".")[0]))


def _understood(error: BaseException, command: str | None) -> Iterator[FjordError]:
    """Yield the errors to show for ``error``; none unless all of its parts are known."""
    if isinstance(error, FjordError):
        yield error
    elif isinstance(error, ModuleNotFoundError):
        entries = importlib.metadata.entry_points(group=COMMANDS_GROUP, name=command or "")
        missing = _incomplete(error, next(iter(entries), None))
        if missing is not None:
            yield missing
    elif isinstance(error, BaseExceptionGroup):
        parts = [list(_understood(each, command)) for each in error.exceptions]
        if all(parts):
            yield from (each for part in parts for each in part)

"""Options and groups of commands that several parts of the command line use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from protocols.errors import FjordError
from protocols.text.quantities import LONGEST_OPTION_US, parse_byte_size, parse_duration_between

if TYPE_CHECKING:
    from typer._click import Context


class DefaultCommandGroup(TyperGroup):
    """A group with ``run`` as default subcommand: ``fjord motes --speed 3`` is ``fjord motes run --speed 3``.

    Use as ``typer.Typer(cls=DefaultCommandGroup)``; such a group takes no options of its own.
    """

    default_command = "run"

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Insert the default command if the first word is an option, or if there is none."""
        wants_help = bool(args) and args[0] in ctx.help_option_names
        if not wants_help and (not args or args[0].startswith("-")):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


class UsualValueCommand(TyperCommand):
    """A command with an option that may stand without its value."""

    usual: ClassVar[tuple[str, str]]
    """The option, and the word that stands for its usual value."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Write out the usual value where there is none."""
        return super().parse_args(ctx, with_usual(args, *self.usual))


def with_usual(arguments: Sequence[str], option: str, usual: str) -> list[str]:
    """Return arguments in which an option that stands without a value has its usual one.

    Examples
    --------
    >>> with_usual(["--often", "--long", "3"], "--often", "usual"), with_usual(["--often", "3"], "--often", "usual")
    (['--often', 'usual', '--long', '3'], ['--often', '3'])
    """
    found: list[str] = []
    for place, each in enumerate(arguments):
        found.append(each)
        if each == option and (place + 1 == len(arguments) or arguments[place + 1].startswith("-")):
            found.append(usual)
    return found


def duration_option(
    *names: str,
    help: str,  # noqa: A002 (typer's word)
    shown_default: str | bool = True,
    least_us: int = 0,
    most_us: int = LONGEST_OPTION_US,
    usual: str = "",
) -> Any:
    """Return a typer option for a parameter in microseconds, written as ``30s``.

    Parameters
    ----------
    names
        The option's names; without any, typer takes the parameter's name.
    help
        One line for the help text.
    shown_default
        The default as the help shows it, for instance "30s"; True shows microseconds.
    least_us, most_us
        The shortest and the longest duration accepted.
    usual
        A word that may stand for the duration, and is 0: that of :func:`with_usual`, if the option may stand alone.

    Examples
    --------
    ``duration_us: Annotated[int, duration_option("--duration", help="How long.", shown_default="1m")] = 60_000_000``
    """

    def parse(text: str) -> int:
        return 0 if usual and text == usual else parse_duration_between(text, least_us, most_us)

    metavar = "[DURATION]" if usual else "DURATION"
    return typer.Option(*names, help=help, metavar=metavar, parser=option_parser(parse), show_default=shown_default)


def byte_size_option(*names: str, help: str, shown_default: str | bool = True) -> Any:  # noqa: A002 (typer's word)
    """Return a typer option for a parameter in bytes, written as ``64KiB``; as :func:`duration_option`."""
    return typer.Option(
        *names,
        help=help,
        metavar="SIZE",
        parser=option_parser(parse_byte_size),
        show_default=shown_default,
    )


def record_option() -> Any:
    """Return the option ``--record``; a name that is empty is an error, as it would be the current folder."""
    return typer.Option(
        help="Folder for a log of all that happens, for `fjord replay`.", metavar="FOLDER", parser=_folder
    )


def _folder(name: str | Path) -> Path:
    if not str(name).strip():
        raise typer.BadParameter("a folder's name is not empty")
    return Path(name)


def option_parser(parse: Callable[[str], int]) -> Callable[[str | int], int]:
    """Return what reads the text of an option, with errors that name the option."""

    def from_text(value: str | int) -> int:
        if isinstance(value, int):  # a default
            return value
        try:
            return parse(value)
        except FjordError as error:
            raise typer.BadParameter(str(error)) from error

    return from_text

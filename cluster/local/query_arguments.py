"""The query of a command, written out or in a file, and the values that ``--set`` gives its parameters."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import ClusterError
from protocols.wire.names import NAME_PATTERN, folded, normal

if TYPE_CHECKING:
    from cluster.language.parameter_values import Value
    from cluster.language.statement_texts import StatementText

TOO_LARGE = "is larger than any REAL: the largest is about 1.8e308"


def is_too_large(value: Value) -> bool:
    """Return whether a number was written that no REAL holds."""
    return isinstance(value, float) and isinf(value)


SET_HELP = (
    "A value for a parameter such as :limit. It is written as in FjordSQL; what is no number, quoted text, TRUE, FALSE "
    "or NULL is a text. Again for more parameters."
)
QUERY_HELP = "The query, a file NAME.sql with it, or - to read it from standard input."
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET_HELP)]


@dataclass(frozen=True, slots=True)
class GivenText:
    """The text that an argument gives.

    Parameters
    ----------
    text
        The text.
    source
        Where it was read; None if the argument is the text itself.
    """

    text: str
    source: str | None = None

    @property
    def statements(self) -> tuple[StatementText, ...]:
        """Its statements."""
        from cluster.language.statement_texts import statements_in  # noqa: PLC0415 - commands load what they need

        return statements_in(self.text)


def text_given(argument: str) -> GivenText:
    """Return the text that an argument gives: itself, or that of a file or of standard input.

    Raises
    ------
    ClusterError
        If a file cannot be read.
    """
    if argument == "-":
        return GivenText(sys.stdin.read(), "standard input")
    return file_text(Path(argument)) if names_file(argument) else GivenText(argument)


def names_file(argument: str) -> bool:
    """Return whether an argument is the name of a file: no query is one word that ends with ``.sql``.

    >>> names_file("slow.sql"), names_file("SELECT a FROM s WHERE a = t.sql")
    (True, False)
    """
    if not argument.lower().endswith(".sql") or "\n" in argument:
        return False
    return len(argument.split()) == 1 or Path(argument).is_file()


def names_query(argument: str) -> bool:
    """Return whether an argument may be the name of a query: no text of a query is one word.

    >>> names_query("slow-7"), names_query("slow.sql"), names_query("SELECT a FROM s"), names_query("-")
    (True, False, False, False)
    """
    return re.match(NAME_PATTERN, argument) is not None and not names_file(argument)


def file_text(file: Path) -> GivenText:
    """Return the text of a file; ``-`` is standard input.

    Raises
    ------
    ClusterError
        If it cannot be read, or is empty.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"{file} cannot be read: {error}") from error
    if not text.strip():
        raise ClusterError(f"there is no query in {file}", hint="each ends with a semicolon: SELECT ... FROM stream;")
    return GivenText(text, "standard input" if str(file) == "-" else str(file))


def one_query(given: GivenText) -> str:
    """Return the one query in a text, at the line and column at which it stands there.

    Raises
    ------
    ClusterError
        If there are several.
    """
    if given.source is None:
        return given.text
    statements = given.statements
    if len(statements) > 1:
        reason = f"there are {len(statements):,} statements in {given.source}, and this command takes one query"
        raise ClusterError(reason, hint="`fjord query add` takes all queries of a file")
    return placed(given.text, statements[0]) if statements else given.text


def placed(text: str, statement: StatementText) -> str:
    r"""Return a statement of a text, with nothing but spaces and ends of lines before it.

    >>> given = GivenText("-- slow\n  SELECT 1;\n")
    >>> placed(given.text, given.statements[0])
    '\n  SELECT 1'
    """
    start = statement.start
    line = text.rfind("\n", 0, start) + 1
    return "\n" * text.count("\n", 0, start) + " " * (start - line) + statement.text


def values_given(settings: Iterable[str]) -> dict[str, Value]:
    """Return values by parameter, given as NAME=VALUE.

    Raises
    ------
    typer.BadParameter
        If one is written otherwise, or a parameter has two values.
    """
    found: dict[str, Value] = {}
    names: set[str] = set()
    for each in settings:
        from cluster.language.parameter_values import value_of_word  # noqa: PLC0415 - commands load what they need

        name, equals, word = each.partition("=")
        name = normal(name.strip().removeprefix(":"))
        if not (name and equals):
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--set")
        key = folded(name)
        if key in names:
            raise typer.BadParameter(f"the parameter {name} has two values", param_hint="--set")
        names.add(key)
        found[name] = value_of_word(word)
        if is_too_large(found[name]):
            raise typer.BadParameter(f"{word} {TOO_LARGE}", param_hint="--set")
    return found

"""Options of ``fjord query try`` that are given for all streams, and for some as STREAM=VALUE."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

import typer

from protocols.wire.names import WORD, folded, normal

_NAMED = re.compile(rf"(?P<name>{WORD})=(?P<value>.+)", re.DOTALL)


def named_values(given: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
    """Return names, as they are first written, and values; by name in lower case, "" if there is none."""
    found: dict[str, tuple[str, list[str]]] = {}
    for each in given:
        named = _NAMED.fullmatch(each)
        name, value = (normal(named["name"]), named["value"]) if named else ("", each)
        found.setdefault(folded(name), (name, []))[1].append(value)
    return found


def of_streams(given: Sequence[str], streams: Container[str], option: str, what: str) -> dict[str, str]:
    """Return what is given for all streams, and for some: by name of a stream in lower case, "" for all.

    Parameters
    ----------
    given
        Values of the option.
    streams
        Names of those that files are given for, in lower case.
    option, what
        The option, and what it gives, as messages name them.

    Raises
    ------
    typer.BadParameter
        If there are two for a stream, or one for a stream without a file.
    """
    found: dict[str, str] = {}
    for key, (name, values) in named_values(given).items():
        if len(values) > 1:
            raise typer.BadParameter(f"there are two {what} for {name or 'all streams'}", param_hint=option)
        if key and key not in streams:
            raise typer.BadParameter(f"--on {name}=FILE is missing", param_hint=option)
        found[key] = normal(values[0])
    return found

"""Options of ``fjord query try`` about files: for all, or for those of one stream or relation."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

import typer

from cluster.local.csv_files import CsvStyle
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


_NO_SEPARATORS = frozenset("\"'\r\n .+-_")


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """What is given about CSV.

    Parameters
    ----------
    separators, decimals
        For all files, and STREAM=MARK for some.
    nulls
        Words that stand for NULL.
    """

    separators: Sequence[str] = ()
    decimals: Sequence[str] = ()
    nulls: Sequence[str] = ()

    @property
    def option(self) -> str | None:
        """One of the options that are given; None if there is none."""
        given = {"--separator": self.separators, "--decimal": self.decimals, "--null": self.nulls}
        return next((option for option, values in given.items() if values), None)

    def styles(self, names: Container[str]) -> CsvStyles:
        """Return how the CSV of each stream and relation is written.

        Parameters
        ----------
        names
            Of those that files are given for, in lower case.

        Raises
        ------
        typer.BadParameter
            If there can be no such CSV.
        """
        return CsvStyles(
            of_streams(self.separators, names, "--separator", "separators"),
            of_streams(self.decimals, names, "--decimal", "marks before decimals"),
            tuple(self.nulls),
        )


class CsvStyles:
    """How the CSV of streams and relations is written.

    Parameters
    ----------
    separators, decimals
        By name of a stream or relation in lower case, "" for all.
    nulls
        Words that stand for NULL.
    """

    def __init__(self, separators: dict[str, str], decimals: dict[str, str], nulls: tuple[str, ...]) -> None:
        self._separators, self._decimals, self._nulls = separators, decimals, nulls
        for name in {"", *separators, *decimals}:
            self.of(name)

    def of(self, name: str) -> CsvStyle:
        """Return how the CSV of a stream or relation is written, given its name in lower case."""
        separator = self._separators.get(name, self._separators.get(""))
        point = self._decimals.get(name, self._decimals.get("", "."))
        mark = {"tab": "\t", "\\t": "\t", None: ","}.get(separator, separator or "")
        if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in _NO_SEPARATORS:
            reason = f"{separator!r} is not one mark that can stand between values, such as ';', '|' or tab"
            raise typer.BadParameter(reason, param_hint="--separator")
        if point not in {".", ","}:
            raise typer.BadParameter(f"{point!r} is neither a point nor a comma", param_hint="--decimal")
        if point == mark:
            reason = "it separates values, too: --separator ';' (or '|', or tab) names another mark for that"
            raise typer.BadParameter(reason, param_hint="--decimal")
        return CsvStyle(mark, point, self._nulls)

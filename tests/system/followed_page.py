"""A page of documentation, followed word for word: its commands are run, and their output is compared with it.

========================  ==============================================================================
block                     is
========================  ==============================================================================
```sh                     for the reader
```sh terminals           commands that keep running, each in a terminal of its own
```sh reload              lets the broker read its files again
```console                ``$`` commands, and their output; ``…`` stands for any text
```console WORD           the same, only if WORD is chosen
========================  ==============================================================================
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMAND_SECONDS = 240


@dataclass(frozen=True)
class Terminals:
    """Commands that keep running."""

    commands: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A command and the lines it prints."""

    command: str
    printed: tuple[str, ...]


@dataclass(frozen=True)
class Reload:
    """The broker reads its files again."""


def steps_of(page: Path, chosen: str) -> Iterator[Terminals | Step | Reload]:
    """Yield the steps of a page for a choice, in its order."""
    for kind, text in re.findall(r"^```([^\n]+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        if kind == "sh terminals":
            yield Terminals(tuple(text.splitlines()))
        elif kind == "sh reload":
            yield Reload()
        elif kind in {"console", f"console {chosen}"}:
            for typed in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *printed = typed.splitlines()
                yield Step(command, tuple(printed))


def type_in(command: str, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Type a command; return the lines it prints."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS, check=False,
    )  # fmt: skip
    return done.stdout.splitlines()


def differences(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return the lines that differ from the page; rows have any order and number, rates any value."""
    wanted, found = sorted(map(_unnumbered, wanted)), sorted(map(_unnumbered, found))
    if len(wanted) != len(found):
        return [f"{len(wanted)} lines were to come, not {len(found)}:", *found]
    return [
        f"{line!r} is not {each!r}"
        for each, line in zip(wanted, found, strict=True)
        if not re.fullmatch(".*".join(map(re.escape, each.split("…"))), line)
    ]


def _unnumbered(line: str) -> str:
    if line.startswith("{"):
        return re.sub(r'"sequence":\d+', '"sequence":…', line)
    line = re.sub(r"^ +[\d.,]+( +\S+ +\S+) +[\d.,]+[um]?s(?=  )", r"…\1 …", line)  # rows and work in a second
    line = re.sub(r"^  in all: [\d.,]+[um]?s of", "  in all: … of", line)
    return re.sub(r"^ +[\d.,]+(?=  )", "…", line)

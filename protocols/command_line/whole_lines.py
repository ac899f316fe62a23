"""Output of commands whose lines are whole: a terminal may wrap them, but their ends are not cut off, nor in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST: Final = 10_000
"""Characters of a line: what is measured may be as wide as it wants to be."""


def print_whole(*things: RenderableType) -> None:
    """Print tables and texts, each as wide as it is; brackets in texts are no markup."""
    from rich.console import Console

    width = max(Console(width=WIDEST, markup=False).measure(each).maximum for each in things)
    console = Console(width=max(width, 1), markup=False, highlight=False)
    for each in things:
        console.print(each, soft_wrap=True)

"""Prove what `make test` leaves out, part by part: ``make proof``. It takes hours; the same command continues."""

from __future__ import annotations

import sys

import click

from tests.proof.parts import PARTS
from tests.proof.record import Record, commit, uncommitted
from tests.proof.running import prove

INTERRUPTED = 130
MOST_SHOWN = 5


@click.command()
@click.option("--only", multiple=True, metavar="PART", help="Only this part; may be given several times.")
@click.option("--again", is_flag=True, help="Run what has passed at this commit once more.")
@click.option("--show", is_flag=True, help="Show the parts, and when all were run last.")
def main(only: tuple[str, ...], *, again: bool, show: bool) -> None:
    """Run all parts that have not passed at this commit; ends with 1 if one fails, 130 after Ctrl-C."""
    record = Record()
    names = [part.name for part in PARTS]
    if unknown := [each for each in only if each not in names]:
        raise click.UsageError(f"there is no part {unknown[0]!r}; parts are {', '.join(names)}")
    click.echo(record.last())
    if show:
        for part in PARTS:
            click.echo(f"{part.name:12} {part.shown}")
        return
    if changed := uncommitted():
        shown = ", ".join(changed[:MOST_SHOWN])
        raise click.ClickException(f"a proof is of a commit, and these files are not in one: {shown}")
    wanted = [part for part in PARTS if not only or part.name in only]
    try:
        good = prove(PARTS, wanted, commit(), record, click.echo, again=again)
    except KeyboardInterrupt:
        click.echo("stopped; the same command continues from here")
        sys.exit(INTERRUPTED)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

"""How long a search may take, as an option of a command."""

from __future__ import annotations

import math

import click

MOST_MINUTES = 100_000


class Minutes(click.FloatRange):
    """A number of minutes above 0; what is no number, NaN too, is refused as a wrong option."""

    def __init__(self) -> None:
        super().__init__(0, MOST_MINUTES, min_open=True)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the minutes, or end with what is wrong about them."""
        minutes = float(super().convert(value, param, ctx))
        if math.isnan(minutes):  # it is neither below nor above a bound
            self.fail(f"{value} is no number of minutes.", param, ctx)
        return minutes

"""Random clauses behind an item of FROM: windows, granularities, sample periods and pasts."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Known
from tests.cluster.oracle.text_forms import Window


def sampled(dice: random.Random) -> tuple[int, str]:
    """Return a sample period, and its clause."""
    period = dice.choice((2, 2, 5, 1))
    rate = spelling.rate(dice, period) if dice.random() < 0.4 else None
    text = f"SAMPLE EVERY {spelling.duration(dice, period)}" if rate is None else f"SAMPLE RATE {rate}"
    if dice.random() < 0.3:
        slow = period * dice.choice((1, 2, 10))
        slowest = spelling.rate(dice, slow) if dice.random() < 0.3 else None
        every = f"EVERY {spelling.duration(dice, slow)}" if slowest is None else f"RATE {slowest}"
        text += f" AT LEAST {every}"
    return period, text


def since(dice: random.Random) -> str:
    return dice.choice(
        ("SINCE BEGINNING", f"SINCE {spelling.duration(dice, dice.choice((5, 10**6, 3600 * 10**6)))} AGO")
    )


def granularity(dice: random.Random) -> tuple[int, str]:
    granule = dice.choice((2, 3, 4))
    finest = spelling.duration(dice, granule)
    if dice.random() < 0.25:
        coarsest = spelling.duration(dice, granule * 2)
        return granule, f"GRANULARITY(COARSEST {coarsest}{dice.choice((',', ''))} FINEST {finest})"
    return granule, f"GRANULARITY({finest})"


def window(dice: random.Random, columns: Sequence[Known], *, lasting: bool) -> Window:
    slide = dice.choice(("SLIDE", "SLIDE", "SLIDES"))
    if lasting and dice.random() < 0.3:
        kind = dice.choice(("RANGE", "ROWS"))
        return Window(f"WINDOW({kind} UNBOUNDED)", kind, None)
    partition, keys = "", ()
    if dice.random() < 0.3:
        keys = tuple(dice.sample(range(len(columns)), min(len(columns), dice.choice((1, 1, 2)))))
        partition = f"PARTITION BY {', '.join(spelling.name(dice, columns[key].name) for key in keys)} "
    if dice.random() < (0.25 if not keys else 0.9):
        size, step = dice.randint(1, 4), dice.choice((1, 1, 2, 3))
        written = f"MIN 1, MAX {size}" if dice.random() < 0.1 else dice.choice((f"{size}", f"{size}.0"))
        end = f" {slide} {step}" if step > 1 or dice.random() < 0.1 else ""
        return Window(f"WINDOW({partition}ROWS {written}{end})", "ROWS", size, step, keys)
    size, step = dice.randint(1, 7), dice.choice((1, 1, 1, 2, 3, 5, None))
    if dice.random() < 0.15:
        size = dice.choice((12, 20, 27))  # 27 microseconds are a finite fraction of a day
    step = size if step is None else step
    written = spelling.duration(dice, size)
    if dice.random() < 0.1:
        written = f"MIN {spelling.duration(dice, 1)}{dice.choice((',', ''))} MAX {written}"
    end = f" {slide} {spelling.duration(dice, step)}" if step > 1 or dice.random() < 0.1 else ""
    return Window(f"WINDOW({partition}RANGE {written}{end})", "RANGE", size, step)

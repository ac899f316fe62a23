"""Random clauses behind an item of FROM: windows, sample periods and pasts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Known
from tests.cluster.oracle.text_forms import Window

PERIODS = (2, 5, 1)
"""Sample periods, in microseconds."""


def sampled(dice: random.Random) -> tuple[int, str]:
    """Return a sample period, and its clause."""
    period = dice.choice((2, *PERIODS))
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


def until_next(dice: random.Random, columns: Sequence[Known], *, ending: bool = False) -> Window:
    """Return VALID UNTIL NEXT, which stands where a window does, or beside one; with MAX, if it has to end."""
    keys = tuple(dice.sample(range(len(columns)), min(len(columns), dice.choice((0, 1, 1, 2)))))
    names = ", ".join(spelling.name(dice, columns[key].name) for key in keys)
    size = dice.choice((1, 3, 5, 9) if ending else (None, 1, 3, 5, 9))
    by = f" BY ({names})" if len(keys) > 1 or (keys and dice.random() < 0.2) else f" BY {names}" if keys else ""
    most = "" if size is None else f" MAX {spelling.duration(dice, size)}"
    return Window(f"VALID UNTIL NEXT{by}{most}", "NEXT", size, keys=keys)


def window(
    dice: random.Random, columns: Sequence[Known], *, lasting: bool, long: bool, stamped: bool = False
) -> Window:
    """Return a window; `lasting` and `long` where tuples may be valid for ever, and for longer than stamps reach.

    With `stamped`, tuples are valid at instants.
    """
    if stamped and dice.random() < 0.1:
        return until_next(dice, columns)
    if dice.random() < 0.12:
        return session(dice, columns, long=long)
    if dice.random() < 0.12:
        return on_grid(dice, columns, long=long)
    slide = dice.choice(("SLIDE", "SLIDE", "SLIDES"))
    if lasting and dice.random() < 0.3:
        kind = dice.choice(("RANGE", "ROWS"))
        return Window(f"WINDOW({kind} UNBOUNDED)", kind, None)
    partition, keys = _partition(dice, columns) if dice.random() < 0.3 else ("", ())
    if dice.random() < (0.25 if not keys else 0.9):
        size, step = dice.randint(1, 4), dice.choice((1, 1, 2, 3))
        written = f"MIN 1, MAX {size}" if dice.random() < 0.1 else dice.choice((f"{size}", f"{size}.0"))
        end = f" {slide} {step}" if step > 1 or dice.random() < 0.1 else ""
        return Window(f"WINDOW({partition}ROWS {written}{end})", "ROWS", size, step, keys, partition=keys)
    size, step = dice.randint(1, 7), dice.choice((1, 1, 1, 2, 3, 5, None))
    if dice.random() < 0.15:
        size = dice.choice((12, 20, 27))  # 27 microseconds are a finite fraction of a day
    step = size if step is None else step
    written = spelling.duration(dice, size)
    if dice.random() < 0.1:
        slid = step if size % step == 0 else size  # the bounds of a range are multiples of its slide
        least = slid * dice.randint(1, size // slid)
        written = f"MIN {spelling.duration(dice, least)}{dice.choice((',', ''))} MAX {written}"
        step = slid
    end = f" {slide} {spelling.duration(dice, step)}" if step > 1 or dice.random() < 0.1 else ""
    return Window(f"WINDOW({partition}RANGE {written}{end})", "RANGE", size, step, partition=keys)


def _partition(dice: random.Random, columns: Sequence[Known]) -> tuple[str, tuple[int, ...]]:
    keys = tuple(dice.sample(range(len(columns)), min(len(columns), dice.choice((1, 1, 2)))))
    return f"PARTITION BY {', '.join(spelling.name(dice, columns[key].name) for key in keys)} ", keys


def session(dice: random.Random, columns: Sequence[Known], *, long: bool) -> Window:
    """Return a window of sessions; a day long at most if nothing is written."""
    partition, keys = _partition(dice, columns) if dice.random() < 0.7 else ("", ())
    gap = dice.randint(1, 6)
    longest = gap + dice.choice((0, 1, 3, 8))
    early = dice.random() < 0.4
    words = ["EARLY"] if early else []
    if dice.random() < 0.6 or (early and not long):
        words.append(f"MAX {spelling.duration(dice, longest)}")
    else:
        longest = 86_400_000_000
    in_front = dice.random() < 0.4
    if partition and not in_front:
        words.append(partition.strip())
    dice.shuffle(words)
    written = " ".join([f"SESSION GAP {spelling.duration(dice, gap)}", *words])
    return Window(
        f"WINDOW({partition if in_front else ''}{written})", "SESSION", gap, keys=keys, longest=longest, early=early
    )


def on_grid(dice: random.Random, columns: Sequence[Known], *, long: bool) -> Window:
    """Return a window that is moved by an offset, by the calendar, or reset."""
    partition, keys = _partition(dice, columns) if dice.random() < 0.1 else ("", ())
    if long and dice.random() < 0.5:
        return replace(_by_calendar(dice, partition), partition=keys)
    step = dice.randint(2, 9)
    offset = dice.randint(0, step - 1)
    parts = [f"OFFSET {spelling.duration(dice, offset)}"] if offset else []
    if dice.random() < 0.5:
        slide = dice.choice((1, 1, 2, 3))
        parts += _slide(dice, min(slide, step))
        dice.shuffle(parts)
        text = f"WINDOW({partition}{' '.join([f'RESET EVERY {spelling.duration(dice, step)}', *parts])})"
        return Window(text, "RESET", step, min(slide, step), offset=offset, partition=keys)
    size = dice.randint(1, 12)
    parts.append(f"{dice.choice(('SLIDE', 'SLIDES'))} {spelling.duration(dice, step)}")
    dice.shuffle(parts)
    text = f"WINDOW({partition}{' '.join([f'RANGE {spelling.duration(dice, size)}', *parts])})"
    return Window(text, "RANGE", size, step, offset=offset, partition=keys)


def _slide(dice: random.Random, slide: int) -> list[str]:
    return [f"SLIDE {spelling.duration(dice, slide)}"] if slide > 1 or dice.random() < 0.2 else []


HOUR, DAY = 3_600_000_000, 86_400_000_000
CALENDAR = (
    (DAY, "DAY", 0), (2 * DAY, "2 DAYS", 0), (DAY, "1.0 D", 0), (7 * DAY, "1 WEEK", 3 * DAY),
    (14 * DAY, "2 WEEKS", 10 * DAY),
    *((28 * DAY, words, 0) for words in ("1 MONTH", "3 MONTHS", "1 QUARTER", "2 QUARTERS", "1 YEAR", "2e0 YEARS")),
)  # fmt: skip
"""Steps: the shortest length, how it is written, and how long before 1970 one began last."""
ZONES = {"UTC": 0, "Europe/Berlin": 1, "Asia/Kolkata": 5.5, "Asia/Tokyo": 9}
"""Hours that clocks were ahead in January 1970."""


def _by_calendar(dice: random.Random, partition: str) -> Window:
    """Return a window by the calendar: stamps are some microseconds after 1970 began, and so is one boundary."""
    _, words, before = dice.choice(CALENDAR)
    words = words if words[0].isdigit() else f"1 {words}"
    zone = dice.choice(sorted(ZONES))
    boundary = dice.randint(1, 15)
    offset = before + round(ZONES[zone] * HOUR) + boundary
    parts = [f"OFFSET {spelling.duration(dice, offset)}"]
    if zone != "UTC" or words.split()[1][0] in "DW" or dice.random() < 0.3:
        parts.append(f"AT TIME ZONE '{zone}'")
    if dice.random() < 0.5:
        slide = dice.choice((1, 1, 2, 3))
        parts += _slide(dice, slide)
        dice.shuffle(parts)
        text = f"WINDOW({partition}{' '.join([f'RESET EVERY {words}', *parts])})"
        return Window(text, "CALENDAR RESET", 1, slide, offset=boundary)
    size = dice.choice((words, "36 HOURS", "1 MONTH", "1 DAY", "2 QUARTERS"))
    parts.append(f"SLIDE {words}")
    dice.shuffle(parts)
    return Window(f"WINDOW({partition}{' '.join([f'RANGE {size}', *parts])})", "CALENDAR", 1, offset=boundary)
